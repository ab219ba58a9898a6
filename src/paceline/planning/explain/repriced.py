"""Objectives of candidates at other prices of their machines, and the price at which one wins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.strategy.complexity import USUAL_KINDS
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.evaluation import hour_value_usd, objective_name
from paceline.planning.search.pareto import Index
from paceline.planning.search.preference import Standing, competing
from paceline.planning.search.script import within
from paceline.units import HOUR_S
from paceline.values import dataclass


def price_changed(search: Search, rows: Index, factor: float) -> FloatArray:
    """The objective of some candidates, were their price so many times as high, (len(rows),)."""
    return np.asarray(search.objective[rows] * factor - (factor - 1.0) * fixed_usd(search, rows))


def cost_per_price(search: Search, rows: Index) -> FloatArray:
    """Cost, as the Pareto front counts it, per dollar an hour for one machine."""
    num_nodes = search.candidates.num_nodes[rows].astype(np.float64)
    amount = search.job.amount
    if amount.samples_per_s is not None:
        return num_nodes
    if amount.items_per_epoch is not None:
        return np.asarray(num_nodes * search.evaluation.billed_s[rows] / HOUR_S)
    return per_sample_price(search, rows)


def per_sample_price(search: Search, rows: Index) -> FloatArray:
    """Cost of a million samples per dollar an hour for one machine."""
    usd_per_price = search.evaluation.usd_per_million[rows] / search.evaluation.usd_per_hour[rows]
    per_million_s = 1e6 / search.evaluation.samples_per_s[rows] / HOUR_S
    known = np.where(np.isfinite(usd_per_price), usd_per_price, per_million_s)
    return np.asarray(search.candidates.num_nodes[rows] * known)


def fixed_usd(search: Search, rows: Index) -> FloatArray:
    """What an objective holds beside the price of machines, (len(rows),).

    Of the cost what is kept on disks and taken out, of a balance of cost and time the wait as well.
    """
    evaluation, name = search.evaluation, objective_name(search.goal)
    if name not in ("cost", "balanced"):
        return np.zeros(len(rows))
    if name == "cost":
        return evaluation.beside_usd[rows]
    is_job = np.isfinite(evaluation.time_s[rows])
    waited_s = evaluation.pareto_time[rows] * np.where(is_job, 1.0, 1e6)
    waited_usd = hour_value_usd(search.goal) * waited_s / HOUR_S
    return np.asarray(evaluation.beside_usd[rows] + waited_usd)


def _bracket(is_below: Callable[[float], bool], guess: float) -> tuple[float, float]:
    """Two values, of which the first is below and the second is not; zero where nothing is."""
    factor, value, starts_below = 1.1, guess, is_below(guess)
    while guess / _FARTHEST_FACTOR < value < guess * _FARTHEST_FACTOR:
        last, value = value, value * (factor if starts_below else 1.0 / factor)
        if is_below(value) != starts_below:
            return (last, value) if starts_below else (value, last)
        factor **= 2
    return (value, value) if starts_below else (0.0, 0.0)


#: Candidates beyond so many times the best objective tell nothing apart from it.
_CLOSE_FACTOR = 1.5
#: A price is found within this factor, no farther than so many times from where it is sought.
_PRICE_FACTOR, _FARTHEST_FACTOR = 1.0004, 64.0
#: Rows that are held against all others at once.
_NUM_AT_ONCE = 128
#: Above any number of machines.
_MANY_NODES = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Winning:
    """What a candidate that is not ranked must undercut to stand first.

    Attributes:
        search: What was seen.
        standing: Of all candidates, those that are not ranked at a price of today.
        near: Ranked ones that stand near the first and are not beaten, in order.
        close: Ranked ones that may tell others from it.
    """

    search: Search
    standing: Standing
    near: Index
    close: Index

    @classmethod
    def of(cls, search: Search) -> Winning:
        """Prepare the comparison; at least one candidate must keep the goal."""
        standing, rows = Standing.of(search), competing(search, search.is_feasible)
        near = standing.near(rows)
        unpriced = np.flatnonzero(~search.places.is_ranked[search.candidates.place])
        close = rows[search.objective[rows] <= _CLOSE_FACTOR * search.objective[near].max()]
        today = standing.priced(unpriced, search.objective[unpriced], search)
        near = near[~standing.is_beaten(near, close)]
        return cls(search=search, standing=today, near=near, close=close)

    def usd_per_hour(self, places: Sequence[tuple[Index, FloatArray]]) -> list[float | None]:
        """Price of one machine below which each place stands first; None if no price would do.

        Args:
            places: Candidates of each, and their objective per dollar an hour for one machine.
        """
        if not places:
            return []
        chosen = [self._representatives(*one) for one in places]
        each = [rows[kept] for (rows, _), kept in zip(places, chosen, strict=True)]
        slopes = [per_price[kept] for (_, per_price), kept in zip(places, chosen, strict=True)]
        prices = self._prices(np.concatenate(each), np.concatenate(slopes))
        ends = np.cumsum([len(one) for one in each])[:-1]
        best = (float(part.max(initial=0.0)) for part in np.split(prices, ends))
        return [one if one > 0.0 else None for one in best]

    def _prices(self, rows: Index, per_price: FloatArray) -> FloatArray:
        """Price of one machine below which each of some rows stands first, some rows at a time."""
        parts = np.split(rows, range(_NUM_AT_ONCE, len(rows), _NUM_AT_ONCE))
        limits = [self.standing.winning_objectives(one, self.near, self.close) for one in parts]
        return np.asarray((np.concatenate(limits) - fixed_usd(self.search, rows)) / per_price)

    def exact_usd_per_hour(
        self, rows: Index, per_price: FloatArray, guess_usd_per_hour: float
    ) -> float | None:
        """The same as the rule itself has it, which looks at all candidates at once.

        Where it is first at any price that is tried, the highest of these.

        Args:
            rows: Candidates of one place.
            per_price: As in `usd_per_hour`.
            guess_usd_per_hour: Where to begin.
        """
        fixed = fixed_usd(self.search, rows)

        def is_first(usd_per_hour: float) -> bool:
            return self._is_first(rows, fixed + per_price * usd_per_hour)

        low, high = _bracket(is_first, guess_usd_per_hour)
        while low > 0.0 and high > low * _PRICE_FACTOR:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if is_first(middle) else (low, middle)
        return math.sqrt(low * high) if low > 0.0 else None

    def _is_first(self, rows: Index, objective: FloatArray) -> bool:
        """Whether one of some rows stands first, were their objectives these."""
        search, whole = self.search, self.search.objective.copy()
        whole[rows] = objective
        mask = search.is_feasible.copy()
        mask[rows] = True
        able = competing(search, mask, whole)
        is_own = np.isin(able, rows)
        others = self.standing.in_reach(able[~is_own], rows)
        shown = np.sort(np.concatenate([others, able[is_own]]))
        standing = replace(self.standing.taken(shown), objective=whole[shown])
        first = standing.first(np.arange(len(shown)))
        return first is not None and bool((rows == shown[first]).any())

    def _representatives(self, rows: Index, per_price: FloatArray) -> Index:
        """Of each kind of strategy and number of machines the cheapest and the fastest."""
        kinds, time = self.search.kinds, self.search.evaluation.pareto_time
        is_able = within(kinds[rows], self.search.goal.strategies or USUAL_KINDS)
        able = np.flatnonzero(is_able if is_able.any() else np.ones(len(rows), dtype=bool))
        group = kinds[rows[able]] * _MANY_NODES + self.search.candidates.num_nodes[rows[able]]
        firsts = [
            able[order][np.unique(group[order], return_index=True)[1]]
            for order in (
                np.argsort(per_price[able], kind="stable"),
                np.argsort(time[rows[able]], kind="stable"),
            )
        ]
        return distinct(np.concatenate(firsts))
