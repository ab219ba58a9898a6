"""Which of several plans stands first, where better within the noise is not better.

Two plans are told apart where one is better at a stated chance. Of those that nothing is told to be
better than, the simplest strategy stands first, then the fewest machines, the shortest time (of the
fastest ones the lowest cost), and the most dependable provider. What errs the same way in both
plans tells them not apart: the device and the kernels that they share, and the price list of one
provider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.parallelism.strategy.complexity import complexity
from paceline.parallelism.uncertainty import STRATEGY_LOG_SIGMA
from paceline.planning.goal.chance import STATED_CHANCE, normal_cdf, normal_quantile
from paceline.planning.places.place_table import BoolArray, IntArray
from paceline.planning.places.places import Place
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.evaluation import objective_log_sigma, objective_name
from paceline.planning.search.pareto import Index
from paceline.planning.search.script import worth_writing
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.calibration.gaussian_process import Spreads
from paceline.shipped import shipped_rows

#: `STATED_CHANCE` in standard deviations.
_Z = normal_quantile(STATED_CHANCE)
#: Times that differ by less than this factor are called the same; costs likewise.
_SAME_FACTOR = 1.05
#: Rank of the most complex strategy in which every rank holds whole layers.
_UNSPLIT_RANK = 2
#: From the least dependable on.
_PROVIDERS = ("marketplace", "specialised", "hyperscaler")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """What tells candidates apart and orders those that are not, (num_candidates,) each.

    Attributes:
        objective: What is to be small.
        log_sigma: Standard deviation of its logarithm.
        step_log_sigma: Of it, that of the whole step; zero where the objective does not hang on it.
        device_log_sigma: Of that, what a device computes.
        price_log_sigma: What the age of the price adds; zero where it does not count.
        device: Row of the device.
        cell: A number for each configuration and batch.
        setting: A number for each precision and compiler.
        price_list: A number for each provider, device and way of paying.
        kinds: What the strategy asks of a script.
        order: Keys by which candidates that are not told apart are ordered, the first counts most,
            (4, num_candidates).
        within_setting_frac: Share of a step's variance that another in its setting has too.
        within_device_frac: The same in another setting.
    """

    objective: FloatArray
    log_sigma: FloatArray
    step_log_sigma: FloatArray
    device_log_sigma: FloatArray
    price_log_sigma: FloatArray
    device: IntArray
    cell: IntArray
    setting: IntArray
    price_list: IntArray
    kinds: IntArray
    order: FloatArray
    within_setting_frac: float
    within_device_frac: float

    @classmethod
    def of(cls, search: Search) -> Standing:
        """All candidates of a search."""
        candidates, forecast, places = search.candidates, search.forecast, search.places
        place, configuration = candidates.place, candidates.configuration
        device = places.device[place]
        objective, is_hourly = objective_name(search.goal), _is_hourly(search)
        has_price = objective not in ("time", "energy")
        has_step = objective != "cost" or not is_hourly
        steps = search.evaluation.steps
        alone = np.where(np.isnan(steps.device_log_sigma), steps.log_sigma, steps.device_log_sigma)
        within_setting, within_device = _shared_fracs(search.question.calibration)
        return cls(
            objective=search.objective,
            log_sigma=objective_log_sigma(
                search.evaluation, search.goal, places.price_log_sigma[place], is_hourly=is_hourly
            ),
            step_log_sigma=steps.log_sigma * has_step,
            device_log_sigma=alone * has_step,
            price_log_sigma=places.price_log_sigma[place] * has_price,
            device=device,
            cell=configuration * len(forecast.batch) + candidates.batch,
            setting=_settings(search)[configuration],
            price_list=_price_lists(search.found.places)[place],
            kinds=search.kinds,
            order=_order(search),
            within_setting_frac=within_setting,
            within_device_frac=within_device,
        )

    def priced(self, rows: Index, objective: FloatArray, search: Search) -> Standing:
        """The same with another objective of some rows, at a price that is known today."""
        log_sigma, price, whole = (
            self.log_sigma.copy(), self.price_log_sigma.copy(), self.objective.copy(),
        )  # fmt: skip
        undated = replace(search.evaluation, cost_log_sigma=search.evaluation.steps.log_sigma)
        log_sigma[rows] = objective_log_sigma(
            undated, search.goal, np.zeros(len(price)), is_hourly=_is_hourly(search)
        )[rows]
        price[rows], whole[rows] = 0.0, objective
        return replace(self, objective=whole, log_sigma=log_sigma, price_log_sigma=price)

    def apart(self, row: int | Index, rows: Index) -> FloatArray:
        """Standard deviation of the log ratio of objectives of a row and others, (len(rows),).

        Of a column of rows the same of each, (len(row), len(rows)).
        """
        own, other = self.log_sigma[row], self.log_sigma[rows]
        shared = np.hypot(self._shared_step(row, rows), self._shared_price(row, rows))
        shared = np.minimum(shared, np.minimum(own, other))
        variance = own**2 + other**2 - 2.0 * shared**2 + self._of_strategies(row, rows)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

    def is_told_better(self, row: int, rows: Index) -> BoolArray:
        """Whether a row is better than each of others at the stated chance."""
        return self._is_told(row, rows, np.log(self.objective[rows] / self.objective[row]))

    def is_told_worse(self, row: int, rows: Index) -> BoolArray:
        """Whether each of others is better than a row at the stated chance."""
        return self._is_told(row, rows, np.log(self.objective[row] / self.objective[rows]))

    def near(self, rows: Index) -> Index:
        """Of these rows, those that none of them is told to be better than, in order."""
        if not len(rows):
            return rows
        leader = int(rows[np.argmin(self.objective[rows])])
        sigma = self.log_sigma
        widest = np.sqrt(sigma[leader] ** 2 + sigma[rows].max() ** 2 + 2.0 * STRATEGY_LOG_SIGMA**2)
        close = rows[self.objective[rows] <= np.exp(_Z * widest) * self.objective[leader]]
        left = close[~self.is_told_better(leader, close)]
        keys = (left, self.objective[left], *self.order[::-1, left])
        ordered = left[np.lexsort(keys)].tolist()
        kept = [row for row in ordered if not self.is_told_worse(row, close).any()]
        return np.array(kept, dtype=np.int64)

    def first(self, rows: Index) -> int | None:
        """The row that stands first; None of none."""
        near = self.near(rows)
        return int(near[0]) if len(near) else None

    def winning_objectives(self, each: Index, near: Index, rows: Index) -> FloatArray:
        """Objective below which each of some rows would stand first, (len(each),).

        Args:
            each: Which.
            near: Of the others, those that stand near the first one, in order.
            rows: All others.
        """
        column = each[:, None]
        z_apart = _Z * self.apart(column, near)
        better, worse = self._preferred(column, near)
        must = np.where(better, np.exp(-z_apart), np.where(worse, np.inf, 1.0))
        enters = self.objective[rows] * np.exp(_Z * self.apart(column, rows))
        least = (self.objective[near] * must).min(axis=1)
        return np.asarray(np.minimum(least, enters.min(axis=1)))

    def _preferred(self, row: Index, rows: Index) -> tuple[BoolArray, BoolArray]:
        """Whether others come before a row where nothing is told apart, and whether after."""
        before, after = np.zeros((2, len(row), len(rows)), dtype=np.bool_)
        for key in self.order:
            is_open = ~(before | after)
            before |= is_open & (key[rows] < key[row])
            after |= is_open & (key[rows] > key[row])
        return before, after

    def _is_told(self, row: int, rows: Index, log_gain: FloatArray) -> BoolArray:
        return np.asarray((log_gain > 0) & (log_gain >= _Z * self.apart(row, rows)))

    def _of_strategies(self, row: int | Index, rows: Index) -> FloatArray:
        """What different ways to share a model err apart from each other."""
        rank = self.order[0]
        num_split = (rank[rows] > _UNSPLIT_RANK) + 1.0 * (rank[row] > _UNSPLIT_RANK)
        is_other = self.kinds[rows] != self.kinds[row]
        return np.asarray(np.where(is_other, num_split * STRATEGY_LOG_SIGMA**2, 0.0))

    def _shared_step(self, row: int | Index, rows: Index) -> FloatArray:
        """Of the same step all; of another step of the same device what its steps share."""
        is_setting = self.setting[rows] == self.setting[row]
        share = np.where(is_setting, self.within_setting_frac, self.within_device_frac) ** 0.5
        common = share * np.minimum(self.device_log_sigma[rows], self.device_log_sigma[row])
        whole = np.minimum(self.step_log_sigma[rows], self.step_log_sigma[row])
        common = np.where(self.cell[rows] == self.cell[row], whole, common)
        return np.asarray(np.where(self.device[rows] == self.device[row], common, 0.0))

    def _shared_price(self, row: int | Index, rows: Index) -> FloatArray:
        is_list = self.price_list[rows] == self.price_list[row]
        price = np.minimum(self.price_log_sigma[rows], self.price_log_sigma[row])
        return np.asarray(np.where(is_list, price, 0.0))


def better_chance(search: Search, first: int, second: int) -> float:
    """Chance that ``first`` has the smaller objective."""
    gain = float(np.log(search.objective[second] / search.objective[first]))
    apart = float(Standing.of(search).apart(first, np.array([second]))[0])
    if gain == 0.0:
        return 0.5
    return normal_cdf(gain / apart) if apart > 0.0 else float(gain > 0.0)


def competing(search: Search, mask: BoolArray) -> Index:
    """Rows of a mask with a finite objective whose strategy is worth its script."""
    has_work = search.job.amount.items_per_epoch is not None and search.question.is_training
    able = worth_writing(
        search.kinds, search.objective, mask & np.isfinite(search.objective), search.goal,
        has_work=has_work,
    )  # fmt: skip
    return np.flatnonzero(able)


def preferred_words(search: Search, first: int, other: int) -> str:
    """Why one of two plans that are not told apart stands first, as the end of a sentence."""
    order = _order(search)[:, [first, other]]
    words = (
        "has the simpler strategy", "takes fewer machines",
        "is cheaper" if _is_of_time(search) else "is faster",
        "is from the more dependable provider",
    )  # fmt: skip
    return next((w for w, (one, two) in zip(words, order, strict=True) if one < two), "is cheaper")


def dependability(place: Place) -> int:
    """Rank of a provider; higher is more dependable, and what can be taken back is least so."""
    if place.is_owned:
        return len(_PROVIDERS)
    return -1 if place.is_spot else _PROVIDERS.index(provider_kind(place.offer.cloud))


def provider_kind(cloud: str) -> str:
    """``hyperscaler``, ``marketplace`` of other people's machines or, of the rest, ``specialised``.

    >>> provider_kind("vast"), provider_kind("aws"), provider_kind("lambda")
    ('marketplace', 'hyperscaler', 'specialised')
    """
    return _provider_kinds().get(cloud, "specialised")


@cache
def _provider_kinds() -> dict[str, str]:
    return {row["cloud"]: row["kind"] for row in shipped_rows("planning", "provider_kinds.csv")}


def _order(search: Search) -> FloatArray:
    """Complexity, machines, time in steps of what is called the same, dependability.

    Where time is what is to be small, cost takes its place.
    """
    candidates, evaluation = search.candidates, search.evaluation
    other = evaluation.pareto_cost if _is_of_time(search) else evaluation.pareto_time
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = np.floor(np.log(other) / np.log(_SAME_FACTOR))
    dependable = np.array([dependability(place) for place in search.found.places], dtype=float)
    return np.stack([
        complexity(search.kinds), candidates.num_nodes, steps, -dependable[candidates.place],
    ])  # fmt: skip


def _is_of_time(search: Search) -> bool:
    """Whether the fastest is asked for."""
    return objective_name(search.goal) == "time"


def _is_hourly(search: Search) -> bool:
    """Whether cost is that of an hour of serving."""
    return search.job.amount.samples_per_s is not None


def _shared_fracs(calibration: Calibration) -> tuple[float, float]:
    """Share of a step's variance that other steps of a model on its device have, by setting.

    Of those in the same setting, and of those in another.
    """
    spreads = Spreads.of(calibration.constants["calibrate"])
    alike = 1.0 - spreads.step / spreads.total
    return alike, alike - spreads.setting / spreads.total


def _settings(search: Search) -> IntArray:
    """A number for each configuration, alike for those of one precision and compiler."""
    ways = [(how.precision, how.compiler) for how in search.forecast.configurations]
    return np.array([ways.index(way) for way in ways], dtype=np.int64)


def _price_lists(places: Sequence[Place]) -> IntArray:
    """A number for each place, alike for those of one provider, device and way of paying."""
    numbers: dict[tuple[str, str, bool], int] = {}
    keys = [(place.offer.cloud, place.device.name, place.is_spot) for place in places]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
