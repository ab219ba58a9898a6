"""Which of several plans stands first, where better within the noise is not better.

Two plans are told apart where one is better by what matters to a buyer, at a stated chance. Of
those that nothing is told to be better than, and that none of their price list which is as simple
beats by both medians, the simplest strategy stands first, then the fewest machines, the shortest
time, the fewest devices, and the most dependable provider. Where the fastest is asked for, the
lowest cost comes before the fewest machines: what others cost beyond it buys nothing.
What errs the same way in both plans tells them not apart: the model, the device and the kernels
that they share, how its devices are joined, the price list of one provider, and that its prices go
up and down together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.strategy.complexity import RANK_OF_KIND, complexity
from paceline.parallelism.uncertainty import STRATEGY_LOG_SIGMA
from paceline.planning.goal.chance import STATED_CHANCE, STATED_Z
from paceline.planning.goal.providers import PROVIDER_KINDS, provider_kind
from paceline.planning.places.place_table import BoolArray, IntArray
from paceline.planning.places.places import Place
from paceline.planning.places.price import PRICE_COMMON_FRAC
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.evaluation import (
    MATTERS_FRAC,
    hour_value_usd,
    objective_log_sigma,
    objective_name,
)
from paceline.planning.search.pareto import Index
from paceline.planning.search.script import worth_writing
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.calibration.gaussian_process import Spreads
from paceline.prediction.uncertainty.normal import normal_cdf
from paceline.units import HOUR_S
from paceline.values import dataclass

UInt64Array = npt.NDArray[np.uint64]

#: A gain of less than a person earns in so long, who reads about it, does not matter either.
_MATTERS_S = 60.0
#: Times that differ by less than this factor are called the same; costs likewise.
_SAME_FACTOR = 1.25
#: So is what passes while a machine is set up: this long beside every time, for what it costs.
_SAME_S = 900.0
#: A job of so long, half a working day, is not spread where one device is as good.
_SHORT_S = 4 * HOUR_S
#: Share of a step's variance that steps of its model have in common on all devices: of 1,639 pairs
#: of GPUs in Lambda's PyTorch suite, each pair on one model, without the worst twentieth of errors.
_WITHIN_MODEL_FRAC = 0.35
#: Figures are drawn so many times, as far out as so many standard deviations.
_NUM_DRAWS, _DRAWN_SIGMA = 512, 2.0
#: Parts of errors whose draws are kept, of two sets of candidates.
_NUM_PARTS_KEPT = 16
#: Rank of the most complex strategy in which every rank holds whole layers.
_UNSPLIT_RANK = RANK_OF_KIND["recompute"]
#: Why a plan stands first that is as simple, as fast and as dependable.
_BY_MEDIAN = "has the better median"
#: Candidates that are held against all others at once.
_NUM_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Standing:
    """What tells candidates apart and orders those that are not, (num_candidates,) each.

    Attributes:
        objective: What is to be small.
        log_sigma: Standard deviation of its logarithm.
        step_log_sigma: Of it, that of the whole step.
        device_log_sigma: Of that, what a device computes.
        price_log_sigma: What the age of the price adds; zero where it does not count.
        device: Row of the device.
        cell: A number for each configuration and batch.
        setting: A number for each precision and compiler.
        provider: A number for each provider and way of paying.
        price_list: The same for each of its devices.
        kinds: What the strategy asks of a script.
        order: Keys by which candidates that are not told apart are ordered, the first counts most,
            (5, num_candidates).
        second: Of them, time in steps of what is called the same; cost where time is the objective.
        num_machines: How many they take.
        within_setting_frac: Share of a step's variance that another in its setting has too.
        within_device_frac: The same in another setting.
        within_model_frac: Share that a step of the model on any other device has too.
        matters_frac: Smallest gain that matters, as a share of the better objective, …
        matters: … and at least.
    """

    objective: FloatArray
    log_sigma: FloatArray
    step_log_sigma: FloatArray
    device_log_sigma: FloatArray
    price_log_sigma: FloatArray
    device: IntArray
    cell: IntArray
    setting: IntArray
    provider: IntArray
    price_list: IntArray
    kinds: IntArray
    order: FloatArray
    second: FloatArray
    num_machines: IntArray
    within_setting_frac: float
    within_device_frac: float
    within_model_frac: float
    matters_frac: float
    matters: float

    @classmethod
    def of(cls, search: Search) -> Standing:
        """All candidates of a search."""
        candidates, forecast, places = search.candidates, search.forecast, search.places
        place, configuration = candidates.place, candidates.configuration
        device = places.device[place]
        has_price = objective_name(search.goal) not in ("time", "energy")
        steps = search.evaluation.steps
        alone = np.where(np.isnan(steps.device_log_sigma), steps.log_sigma, steps.device_log_sigma)
        within_setting, within_device = _shared_fracs(search.question.calibration)
        matters_frac, matters = what_matters(search)
        return cls(
            objective=search.objective,
            log_sigma=objective_log_sigma(search.evaluation, search.goal),
            step_log_sigma=steps.log_sigma,
            device_log_sigma=alone,
            price_log_sigma=places.price_log_sigma[place] * has_price,
            device=device,
            cell=configuration * len(forecast.batch) + candidates.batch,
            setting=_settings(search)[configuration],
            provider=_numbered((p.offer.cloud, p.is_spot) for p in search.found.places)[place],
            price_list=_numbered(
                (p.offer.cloud, p.device.name, p.is_spot) for p in search.found.places
            )[place],
            kinds=search.kinds,
            order=_order(search),
            second=_second(search),
            num_machines=candidates.num_nodes,
            within_setting_frac=within_setting,
            within_device_frac=within_device,
            within_model_frac=_WITHIN_MODEL_FRAC,
            matters_frac=matters_frac,
            matters=matters,
        )

    def priced(self, rows: Index, objective: FloatArray, search: Search) -> Standing:
        """The same with another objective of some rows, at a price that is known today."""
        log_sigma, price, whole = (
            self.log_sigma.copy(), self.price_log_sigma.copy(), self.objective.copy(),
        )  # fmt: skip
        undated = replace(search.evaluation, cost_log_sigma=search.evaluation.steps.log_sigma)
        log_sigma[rows] = objective_log_sigma(undated, search.goal)[rows]
        price[rows], whole[rows] = 0.0, objective
        return replace(self, objective=whole, log_sigma=log_sigma, price_log_sigma=price)

    def taken(self, rows: Index) -> Standing:
        """Of some rows alone, in their order; what stands first of them is drawn alike."""
        every = {one.name: getattr(self, one.name) for one in fields(self)}
        columns: dict[str, Any] = {
            name: column[..., rows] for name, column in every.items()
            if isinstance(column, np.ndarray)
        }  # fmt: skip
        return replace(self, **columns)

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
        """Whether a row is better than each of others by what matters, at the stated chance."""
        gain = np.log(self.objective[rows] / self.least_worse(self.objective[row]))
        return self._is_told(row, rows, gain)

    def is_told_worse(self, row: int, rows: Index) -> BoolArray:
        """Whether each of others is better than a row by what matters, at the stated chance."""
        gain = np.log(self.objective[row] / self.least_worse(self.objective[rows]))
        return self._is_told(row, rows, gain)

    def least_worse(self, objective: npt.ArrayLike) -> FloatArray:
        """The smallest objective that is worse by what matters, of the shape of the better one."""
        better = np.asarray(objective)
        return np.asarray(better + np.maximum(self.matters_frac * better, self.matters))

    def _most_better(self, objective: FloatArray) -> FloatArray:
        """The largest objective that is better by what matters; the inverse of `least_worse`."""
        lower = np.minimum(objective / (1.0 + self.matters_frac), objective - self.matters)
        return np.asarray(np.maximum(lower, 0.0))

    def near(self, rows: Index) -> Index:
        """Of these rows, those that may stand first, in order.

        Nothing is told to be better than one of them, and its offer is as good as the best but for
        what does not matter, at the stated chance; where no offer is, the likeliest.
        """
        kept = list(self._in_order(rows))
        return np.concatenate(kept) if kept else rows

    def first(self, rows: Index) -> int | None:
        """The row that stands first; None of none."""
        return next((int(kept[0]) for kept in self._in_order(rows)), None)

    def _in_order(self, rows: Index) -> Iterator[Index]:
        """What `near` gives, some rows at a time, so that the first is known before all are."""
        if not len(rows):
            return
        leader, close = self._close(rows)
        likely = self._of_likely_offers(close[~self.is_told_better(leader, close)], rows)
        is_beaten = self.is_beaten(likely, close)
        keys = (likely, self.objective[likely], *self.order[::-1, likely], is_beaten)
        ordered, num_kept = likely[np.lexsort(keys)], 0
        for start in range(0, len(ordered), _NUM_AT_ONCE):
            some = ordered[start : start + _NUM_AT_ONCE]
            kept = some[~self._is_dominated(some, close)]
            num_kept += len(kept)
            if len(kept):
                yield kept
        if not num_kept:
            yield np.array([leader], dtype=np.int64)

    def _of_likely_offers(self, left: Index, rows: Index) -> Index:
        """Those of some rows whose offer is likely enough among the offers of all rows."""
        offers, chances = self.offer_chances(rows)
        chance = np.zeros(int(self.price_list.max()) + 1)
        chance[offers] = chances
        of_left = chance[self.price_list[left]]
        most = float(of_left.max())
        return left[of_left >= STATED_CHANCE * (1.0 if most >= STATED_CHANCE else most)]

    def offer_chances(self, rows: Index) -> tuple[Index, FloatArray]:
        """Chance that an offer is as good as the best of all, but for what does not matter.

        An offer is a device at a provider: another number of them is the same at another scale.

        Returns:
            Numbers of offers, as ``price_list`` has them, and the chance of each.
        """
        sigma, equal = self.log_sigma[rows], self.least_worse(self.objective[rows].min())
        reach = equal * np.exp(_DRAWN_SIGMA * np.hypot(sigma, sigma.min()))
        rows = self._one_of_each(rows[self.objective[rows] <= reach])
        offers, starts = np.unique(self.price_list[rows], return_index=True)
        drawn = self.objective[rows, None] * np.exp(self.draws(rows).T)
        best = np.minimum.reduceat(drawn, starts)
        is_near = best <= self.least_worse(best.min(axis=0))
        return offers, np.asarray(is_near.mean(axis=1))

    def in_reach(self, rows: Index, others: Index) -> Index:
        """Of some rows those that may count where others, at any objective, compete with them."""
        if not len(rows):
            return rows
        sigma, equal = self.log_sigma[rows], self.least_worse(self.objective[rows].min())
        widest = max(sigma.max(), self.log_sigma[others].max(initial=0.0))
        reach = equal * np.exp(_DRAWN_SIGMA * np.hypot(widest, sigma.min()))
        return np.asarray(rows[self.objective[rows] <= reach])

    def draws(self, rows: Index, num_draws: int = _NUM_DRAWS, seed: int = 0) -> FloatArray:
        """Errors of log objectives, drawn with what they share, (num_draws, len(rows)).

        Each part is drawn once for all that share it: the model, the device, its setting, its step,
        how its devices are joined, its provider, the price list, and the way to share a model.
        """
        alone, device = self.device_log_sigma[rows], self.device[rows]
        price, of_model = self.price_log_sigma[rows], self.within_model_frac
        of_device, of_setting = self.within_device_frac, self.within_setting_frac
        of_strategy = (self.order[0, rows] > _UNSPLIT_RANK) * STRATEGY_LOG_SIGMA
        parts = (
            (np.zeros_like(device), alone * of_model**0.5),
            (device, alone * (of_device - of_model) ** 0.5),
            (_paired(device, self.setting[rows]), alone * (of_setting - of_device) ** 0.5),
            (_paired(device, self.cell[rows]), alone * (1.0 - of_setting) ** 0.5),
            (self.price_list[rows], np.sqrt(self._link_variance(rows))),
            (self.provider[rows], price * PRICE_COMMON_FRAC**0.5),
            (self.price_list[rows], price * (1.0 - PRICE_COMMON_FRAC) ** 0.5),
            (self.kinds[rows], of_strategy),
        )
        drawn = (
            _shared(keys, part + len(parts) * seed, num_draws) * sigma[:, None]
            for part, (keys, sigma) in enumerate(parts)
        )
        errors = next(drawn)
        for _ in parts[1:-1]:
            errors += next(drawn)
        told = np.hypot(self.step_log_sigma[rows], price)
        scale = np.divide(self.log_sigma[rows], told, out=np.zeros(len(rows)), where=told > 0)
        errors *= scale[:, None]
        return np.asarray((errors + next(drawn)).T)

    def _one_of_each(self, rows: Index) -> Index:
        """The best row of each offer, step, number of machines and way to share, by offer."""
        keys = self.price_list, self.num_machines, self.order[3], self.kinds
        order = np.lexsort((self.objective[rows], *(key[rows] for key in keys[::-1])))
        rows = rows[order]
        is_new = np.ones(len(rows), dtype=np.bool_)
        is_new[1:] = np.any([key[rows[1:]] != key[rows[:-1]] for key in keys], axis=0)
        return rows[is_new]

    def _close(self, rows: Index) -> tuple[int, Index]:
        """The best row by its median, and those that it may not be told to be better than."""
        leader = int(rows[np.argmin(self.objective[rows])])
        sigma, equal = self.log_sigma, self.least_worse(self.objective[leader])
        widest = np.sqrt(sigma[leader] ** 2 + sigma[rows].max() ** 2 + 2.0 * STRATEGY_LOG_SIGMA**2)
        return leader, rows[self.objective[rows] <= np.exp(STATED_Z * widest) * equal]

    def _is_dominated(self, some: Index, rows: Index) -> BoolArray:
        """Whether any of other rows is told to be better than each of some, (len(some),)."""
        own, worse = self.objective[some][:, None], self.least_worse(self.objective[rows])
        able = worse < own.max()
        gain = np.log(own / worse[able])
        told = (gain > 0) & (gain >= STATED_Z * self.apart(some[:, None], rows[able]))
        return np.asarray(told.any(axis=1))

    def is_beaten(self, some: Index, rows: Index) -> BoolArray:
        """Whether each of some, which are among other rows, is beaten by one, (len(some),).

        By one of its price list that is no more complex, no worse by its median, and better in what
        is not called the same: more machines that cost no more and are done sooner.
        """
        beaten = np.zeros(len(self.objective), dtype=np.bool_)
        rank, second = self.order[0], self.second
        for most in distinct(rank[some]):
            simple = rows[rank[rows] <= most]
            simple = simple[np.lexsort((second[simple], self.objective[simple]))]
            for number in distinct(self.price_list[some[rank[some] == most]]):
                own = simple[self.price_list[simple] == number]
                is_worse = np.minimum.accumulate(second[own]) < second[own]
                beaten[own[is_worse & (rank[own] == most)]] = True
        return beaten[some]

    def winning_objectives(self, each: Index, near: Index, rows: Index) -> FloatArray:
        """Objective below which each of some rows would stand first, (len(each),).

        Args:
            each: Which.
            near: Of the others, those that stand near the first one and are not beaten, in order.
            rows: All others.
        """
        column = each[:, None]
        z_apart = np.exp(STATED_Z * self.apart(column, near))
        better, worse = self._preferred(column, near)
        own = self.objective[near]
        told = np.minimum(own, self._most_better(own * z_apart))
        must = np.where(better, told, np.where(worse, np.inf, own))
        enters = self.least_worse(self.objective[rows]) / np.exp(
            STATED_Z * self.apart(column, rows)
        )
        enters = np.maximum(enters.min(axis=1), self.objective[rows].min())
        return np.asarray(np.minimum(must.min(axis=1), enters))

    def _preferred(self, row: Index, rows: Index) -> tuple[BoolArray, BoolArray]:
        """Whether others come before a row where nothing is told apart, and whether after."""
        before, after = np.zeros((2, len(row), len(rows)), dtype=np.bool_)
        for key in self.order:
            is_open = ~(before | after)
            before |= is_open & (key[rows] < key[row])
            after |= is_open & (key[rows] > key[row])
        return before, after

    def _is_told(self, row: int, rows: Index, log_gain: FloatArray) -> BoolArray:
        return np.asarray((log_gain > 0) & (log_gain >= STATED_Z * self.apart(row, rows)))

    def _of_strategies(self, row: int | Index, rows: Index) -> FloatArray:
        """What different ways to share a model err apart from each other."""
        rank = self.order[0]
        num_split = (rank[rows] > _UNSPLIT_RANK) + 1.0 * (rank[row] > _UNSPLIT_RANK)
        is_other = self.kinds[rows] != self.kinds[row]
        return np.asarray(np.where(is_other, num_split * STRATEGY_LOG_SIGMA**2, 0.0))

    def _shared_step(self, row: int | Index, rows: Index) -> FloatArray:
        """What devices share, all of it of the same step; and how those of one list are joined."""
        is_device = self.device[rows] == self.device[row]
        is_setting = self.setting[rows] == self.setting[row]
        of_device = np.where(is_setting, self.within_setting_frac, self.within_device_frac)
        of_device = np.where(self.cell[rows] == self.cell[row], 1.0, of_device)
        share = np.where(is_device, of_device, self.within_model_frac)
        common = share * np.minimum(self.device_log_sigma[rows], self.device_log_sigma[row]) ** 2
        is_list = self.price_list[rows] == self.price_list[row]
        link = np.minimum(self._link_variance(rows), self._link_variance(row))
        return np.asarray(np.sqrt(common + is_list * link))

    def _link_variance(self, rows: int | Index) -> FloatArray:
        """What is not known of how devices are joined."""
        variance = self.step_log_sigma[rows] ** 2 - self.device_log_sigma[rows] ** 2
        return np.asarray(np.maximum(variance, 0.0))

    def _shared_price(self, row: int | Index, rows: Index) -> FloatArray:
        is_list = self.price_list[rows] == self.price_list[row]
        is_provider = self.provider[rows] == self.provider[row]
        price = np.minimum(self.price_log_sigma[rows], self.price_log_sigma[row])
        share = np.where(is_list, 1.0, PRICE_COMMON_FRAC * is_provider)
        return np.asarray(price * np.sqrt(share))


def _paired(one: IntArray, other: IntArray) -> IntArray:
    """A number for each pair of numbers below a million."""
    return np.asarray(one * 1_000_000 + other)


def _shared(keys: IntArray, stream: int, num_draws: int) -> FloatArray:
    """Standard normal draws, one for all rows with a key, (len(keys), num_draws).

    Those of a key hang on nothing but the key and the stream, so that a candidate more or less
    changes no other's.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; Box,
    Muller, "A note on the generation of random normal deviates", 1958.
    """
    different, places = np.unique(keys, return_inverse=True)
    normals = _normals(different.astype(np.uint64).tobytes(), stream, num_draws)
    return np.take(normals, places, axis=0)


@lru_cache(maxsize=_NUM_PARTS_KEPT)
def _normals(keys: bytes, stream: int, num_draws: int) -> FloatArray:
    """Draws of distinct keys, (number of keys, num_draws).

    The last are kept, as a price at which one wins is sought by steps.

    Args:
        keys: Numbers of 64 bits, one after another.
        stream: Which draws.
        num_draws: How many of each.
    """
    first = np.uint64(2 * stream) + np.arange(2, dtype=np.uint64)[:, None, None]
    draws = np.arange(num_draws, dtype=np.uint64)
    of_key = _mixed(np.frombuffer(keys, dtype=np.uint64))[:, None]
    bits = _mixed(_mixed(of_key + draws) + first)
    radius, angle = (bits >> np.uint64(11)).astype(np.float64) / 2.0**53
    return np.asarray(np.sqrt(-2.0 * np.log1p(-radius)) * np.cos(2.0 * np.pi * angle))


def _mixed(state: UInt64Array) -> UInt64Array:
    """One step of the generator, from whose states neighbours cannot be told."""
    state = (state + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def better_chance(search: Search, first: int, second: int, *, matters: bool = False) -> float:
    """Chance that ``first`` has the smaller objective, or that it is better by what ``matters``."""
    standing = Standing.of(search)
    objective = standing.least_worse(search.objective) if matters else search.objective
    gain = float(np.log(search.objective[second] / objective[first]))
    apart = float(standing.apart(first, np.array([second]))[0])
    if gain == 0.0:
        return 0.5
    return normal_cdf(gain / apart) if apart > 0.0 else float(gain > 0.0)


def competing(search: Search, mask: BoolArray, objective: FloatArray | None = None) -> Index:
    """Rows of a mask with a finite objective whose strategy is worth its script.

    Args:
        search: What was seen.
        mask: Which candidates.
        objective: Of all of them, at other prices; the search's own if None.
    """
    has_work = search.job.amount.items_per_epoch is not None and search.question.is_training
    values = search.objective if objective is None else objective
    able = worth_writing(
        search.kinds, values, mask & np.isfinite(values), search.goal, has_work=has_work
    )
    return np.flatnonzero(able)


def preferred_words(search: Search, first: int, other: int) -> str:
    """Why one of two plans that are not told apart stands first, as the end of a sentence."""
    order = _order(search)[:, [first, other]]
    if order[0, 0] < min(order[0, 1], 0):
        is_owned = search.found.places[int(search.candidates.place[first])].is_owned
        return "is at hand" if is_owned else "needs one device alone"
    middle = ("takes fewer machines", "is faster")
    middle = ("is cheaper", middle[0]) if _is_of_time(search) else middle
    words = (
        "has the simpler strategy", *middle,
        "takes fewer devices", "is from the more dependable provider",
    )  # fmt: skip
    return next((w for w, (one, two) in zip(words, order, strict=True) if one < two), _BY_MEDIAN)


def dependability(place: Place) -> int:
    """Rank of a provider; higher is more dependable, and what can be taken back is least so."""
    if place.is_owned:
        return len(PROVIDER_KINDS)
    return -1 if place.is_spot else PROVIDER_KINDS.index(provider_kind(place.offer.cloud))


def _order(search: Search) -> FloatArray:
    """Complexity, machines, time in steps of what is called the same, devices, dependability.

    A job that is short on one device is simpler there than any that is spread, but on a machine at
    hand. Where time is what is to be small, cost takes its place, and comes before machines.
    """
    candidates, evaluation = search.candidates, search.evaluation
    dependable = np.array([dependability(place) for place in search.found.places], dtype=float)
    is_owned = np.array([place.is_owned for place in search.found.places])[candidates.place]
    rank = complexity(search.kinds)
    is_short_alone = (candidates.num_devices == 1) & (evaluation.time_s <= _SHORT_S)
    is_simpler = is_short_alone | (is_owned & (rank <= _UNSPLIT_RANK))
    middle = [candidates.num_nodes, _second(search)]
    return np.stack([
        rank - is_simpler, *(middle[::-1] if _is_of_time(search) else middle),
        candidates.num_devices, -dependable[candidates.place],
    ])  # fmt: skip


def _second(search: Search) -> FloatArray:
    """Time, of the fastest cost, in steps of what is called the same."""
    evaluation = search.evaluation
    other = evaluation.pareto_cost if _is_of_time(search) else evaluation.pareto_time
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = np.log(other + _same_at_least(search)) / np.log(_SAME_FACTOR)
        return np.asarray(np.floor(steps))


def _is_job(search: Search) -> bool:
    """Whether it has an end."""
    return search.job.amount.items_per_epoch is not None


def what_matters(search: Search) -> tuple[float, float]:
    """The smallest gain that matters, as a share of the objective and at least.

    Of a service the share alone, as it runs without end. What is asked per sample counts to the
    last cent.
    """
    name = objective_name(search.goal)
    if name in ("energy", "performance-per-usd") or not (_is_job(search) or _is_hourly(search)):
        return 0.0, 0.0
    if _is_hourly(search):
        return MATTERS_FRAC, 0.0
    return MATTERS_FRAC, _MATTERS_S if name == "time" else _worth_usd(search)


def _same_at_least(search: Search) -> float:
    """What is added to times, or costs, before those are compared that are called the same."""
    if not _is_job(search):
        return 0.0
    return _worth_usd(search) if _is_of_time(search) else _SAME_S


def _worth_usd(search: Search) -> float:
    return hour_value_usd(search.goal) * _MATTERS_S / HOUR_S


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


def _numbered(keys: Iterable[tuple[str | bool, ...]]) -> IntArray:
    """A number for each key, the same for equal ones."""
    numbers: dict[tuple[str | bool, ...], int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
