"""From evaluated candidates to a short list: the first, near misses, and those that are faster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray
from paceline.planning.goal.chance import STATED_CHANCE
from paceline.planning.places.place_table import BoolArray
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.evaluation import Constraint, objective_name
from paceline.planning.search.pareto import Index, pareto_front, thin_front
from paceline.planning.search.preference import Standing, competing
from paceline.prediction.uncertainty.normal import normal_cdf
from paceline.values import dataclass

#: A near miss is shown if it beats the best by this share of the objective …
_NEAR_MISS_GAIN_FRAC = 0.1
#: … and keeps the goal with at least this chance.
_NEAR_MISS_CHANCE = 0.25
#: The next choice on the list is better on the second axis by at least this factor.
_STEP_FRAC = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Rows of the candidate table.

    Attributes:
        best: The first choice.
        listed: Every choice, best first; nothing on it is told to be better than another on it.
        near_misses: Those of ``listed`` that are better but do not keep the goal.
        leader: Best candidate by its median, which stands behind the first choice as it is less
            simple, slower or less dependable, and no better by what matters; None if it is first.
        toss_up: Candidate of the other offer that is likeliest as good as the best, where the first
            choice is so in fewer cases than the stated chance; None elsewhere.
        runner_up: Best candidate of another cloud or device; None if there is none.
        next_offer: Best candidate of another offer, perhaps of the same cloud and device.
    """

    best: int
    listed: tuple[int, ...]
    near_misses: tuple[int, ...]
    leader: int | None
    toss_up: int | None
    runner_up: int | None
    next_offer: int | None


def select(search: Search) -> Selection:
    """The short list. At least one candidate must be feasible."""
    rows, standing = competing(search, search.is_feasible), Standing.of(search)
    best = int(standing.near(rows)[0])
    near, leader = near_miss(search, best), _leader(search, best, rows)
    first = [best, *(row for row in (near, leader) if row is not None)]
    room = search.question.options.max_choices - len(first) + 1
    front = _beyond(best, rows, search)
    shown = thin_front(_distinct(front, search), second_axis(search), max_items=room)
    places = search.found.places
    return Selection(
        best=best,
        listed=tuple(dict.fromkeys([*first, *(int(row) for row in shown)])),
        near_misses=() if near is None else (near,),
        leader=leader,
        toss_up=_toss_up(search, standing, best, rows),
        runner_up=_best_other(search, best, [(p.offer.cloud, p.offer.device_name) for p in places]),
        next_offer=_best_other(search, best, [p.offer.name for p in places]),
    )


def _beyond(best: int, rows: Index, search: Search) -> Index:
    """The first choice, and the front of those that are better on the second axis."""
    # Of equals the front keeps the first, which is then the cheapest.
    rows = rows[np.argsort(search.evaluation.pareto_cost[rows], kind="stable")]
    second = second_axis(search)
    faster = rows[second[rows] < second[best]]
    front = faster[pareto_front(search.objective[faster], second[faster])]
    return np.array([best, *front.tolist()], dtype=np.int64)


def _leader(search: Search, best: int, rows: Index) -> int | None:
    """The best by its median, if it is another than the first choice and no such row."""
    leader, table = int(rows[np.argmin(search.objective[rows])]), search.candidates
    columns = (table.place, table.num_nodes, search.kinds)
    is_same = all(column[leader] == column[best] for column in columns)
    return None if is_same else leader


def _toss_up(search: Search, standing: Standing, best: int, rows: Index) -> int | None:
    """The best of the likeliest other offer, if that of the first choice is not sure enough."""
    offers, chances = standing.offer_chances(rows)
    is_own = offers == standing.price_list[best]
    others = np.where(is_own, 0.0, chances)
    if float(chances[is_own].sum()) >= STATED_CHANCE or not others.any():
        return None
    mask = np.zeros_like(search.is_feasible)
    mask[rows] = standing.price_list[rows] == offers[others.argmax()]
    return best_of(search, mask)


def second_axis(search: Search) -> FloatArray:
    """What stands against the objective on the Pareto front: time, or cost if time is it."""
    is_time = objective_name(search.goal) == "time"
    return search.evaluation.pareto_cost if is_time else search.evaluation.pareto_time


def best_of(search: Search, mask: BoolArray) -> int | None:
    """Row of the candidate of a mask that stands first; None where it holds none."""
    return Standing.of(search).first(competing(search, mask))


def _best_other(search: Search, best: int, keys: Sequence[object]) -> int | None:
    """First feasible candidate of a place whose key is not that of the best's place."""
    own = keys[int(search.candidates.place[best])]
    is_other = np.array([key != own for key in keys], dtype=bool)
    return best_of(search, search.is_feasible & is_other[search.candidates.place])


def near_miss(search: Search, best: int) -> int | None:
    """The likeliest candidate that is clearly better than the best but too unsure of one goal.

    It must meet every other constraint, and the failed one with some chance.
    """
    gain = search.objective < search.objective[best] * (1.0 - _NEAR_MISS_GAIN_FRAC)
    failed = [~constraint.is_met for constraint in search.constraints]
    if not failed:
        return None
    one_fails = np.sum(failed, axis=0) == 1
    rows = competing(search, search.is_ranked & gain & one_fails)
    if not len(rows):
        return None
    z = np.min([standard_margin(c, rows) for c in search.constraints], axis=0)
    likeliest = int(rows[z.argmax()])
    return likeliest if normal_cdf(float(z.max())) >= _NEAR_MISS_CHANCE else None


def standard_margin(constraint: Constraint, rows: Index) -> FloatArray:
    """Standard deviations between the median and the limit, (num_rows,).

    A quantity without spread keeps its limit by any number of them, or fails it by as many.
    """
    room = np.maximum(constraint.limit - constraint.fixed[rows], 1e-300)
    sigma = np.maximum(constraint.log_sigma[rows], 1e-12)
    margin = np.log(room / constraint.median[rows]) / sigma
    return np.asarray(np.nan_to_num(margin, nan=-np.inf), dtype=np.float64)


def _distinct(front: Index, search: Search) -> Index:
    """The front without steps that gain less than a twentieth on the second axis.

    Its best end stays, and so does its other end; of a service, which runs without end, the
    cheapest that is as fast as that: replicas that nobody needs are no choice.
    """
    second = second_axis(search)[front]
    if search.job.amount.samples_per_s is not None:
        end = int(np.argmax(second <= second[-1] / _STEP_FRAC))
        front, second = front[: end + 1], second[: end + 1]
    kept = [0]
    for position in range(1, len(front) - 1):
        gains = second[position] < _STEP_FRAC * second[kept[-1]]
        if gains and second[-1] < _STEP_FRAC * second[position]:
            kept.append(position)
    shown: Index = front[distinct(np.array([*kept, len(front) - 1]))]
    return shown
