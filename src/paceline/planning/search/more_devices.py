"""More devices than are usually tried, where a deadline or a rate cannot be kept with those.

And a deadline, where none is stated and what is cheapest would take longer than anybody trains.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from paceline.catalog.entities import Catalog
from paceline.planning.forecast.question import Question
from paceline.planning.goal.goal import USUAL_DEVICES
from paceline.planning.search.all_candidates import Search, flop_bound_s, run_search
from paceline.planning.search.evaluation import objective_name
from paceline.planning.search.whole_strategies import is_searched_whole
from paceline.shipped import shipped_rows
from paceline.units import DAY_S
from paceline.values import dataclass

#: Most devices that are tried without being asked for: as Llama 3 was trained on.
_MOST_DEVICES = 16_384
#: Where nothing is in the usual time: how much slower than the fastest a plan may be.
_AS_FAST_FACTOR = 1.25
#: Devices work less well the more they are.
_LOSS_FACTOR = 1.5
#: Training keeps no device busier than this share of its dense peak.
_MOST_BUSY_FRAC = 0.6
#: Constraints that more devices can keep.
_OF_TIME = ("--deadline", "--throughput")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The search to begin with.

    Attributes:
        question: What is asked first.
        has_meshes: Whether strategies of more than data parallel are searched.
    """

    question: Question
    has_meshes: bool = True


def opening(question: Question, catalog: Catalog) -> Opening:
    """The first search for a plan: within the usual deadline where nothing else can be in time.

    No search of the usual number of devices keeps it then: what they lack needs no meshes.
    """
    if _is_surely_endless(question, catalog):
        return Opening(question=_in_usual_time(question), has_meshes=False)
    return Opening(question=question)


def finished(search: Search, question: Question, catalog: Catalog) -> Search:
    """The search that a plan is made from, after the one that `opening` began.

    A training job that is to be cheap, whatever it takes, is done within `usual_deadline_s` if
    anything is, and about as fast as can be if nothing is.
    """
    search = wide_enough(search, catalog)
    if search.question.has_usual_deadline:
        if search.question.is_widened and search.is_feasible.any():
            return search
        search = wide_enough(run_search(question, catalog), catalog)
    if not _is_endless(search):
        return search
    in_time = wide_enough(run_search(_in_usual_time(question), catalog), catalog)
    if in_time.is_feasible.any():
        return in_time
    longer = _AS_FAST_FACTOR * _lacking_factor(in_time)
    return run_search(_in_usual_time(in_time.question, longer), catalog)


def _in_usual_time(question: Question, factor: float = 1.0) -> Question:
    asked = replace(question.goal, deadline_s=factor * usual_deadline_s())
    return replace(question, goal=asked, has_usual_deadline=True)


def usual_deadline_s() -> float:
    """How long a training job may take where nobody says so (``data/usual_deadline.csv``)."""
    return float(shipped_rows("planning", "usual_deadline.csv")[0]["days"]) * DAY_S


def _is_surely_endless(question: Question, catalog: Catalog) -> bool:
    """Whether the usual number of devices is too slow for the usual deadline, however it is used.

    Only where they may be more, and where the search of strategies takes long.
    """
    goal = question.goal
    if goal.max_devices is not None or not _may_take_the_usual(question):
        return False
    has_end = question.job.amount.items_per_epoch is not None
    if not has_end or not is_searched_whole(question):
        return False
    return flop_bound_s(question, catalog) > _MOST_BUSY_FRAC * usual_deadline_s()


def _may_take_the_usual(question: Question) -> bool:
    """Whether a training job is to be cheap, and no deadline is stated."""
    is_cheap = question.goal.deadline_s is None and objective_name(question.goal) == "cost"
    return is_cheap and question.is_training


def _is_endless(search: Search) -> bool:
    """Whether the cheapest takes longer than anybody trains, and no deadline is stated."""
    rows = np.flatnonzero(search.is_feasible)
    if not _may_take_the_usual(search.question) or not len(rows):
        return False
    cheapest = rows[np.argmin(search.objective[rows])]
    return bool(search.evaluation.time_s[cheapest] > usual_deadline_s())


def wide_enough(search: Search, catalog: Catalog) -> Search:
    """The search, or one over so many devices that a constraint of time may be kept.

    Only where the goal states no largest number, and nothing within the usual one keeps it.
    """
    while not search.is_feasible.any() and (lacking := _lacking_factor(search)) > 1.0:
        tried = search.goal.most_devices
        needed = 2 ** math.ceil(math.log2(tried * lacking * _LOSS_FACTOR))
        most = min(needed, _MOST_DEVICES)
        if most <= tried or not _is_open(search):
            return search
        goal = replace(search.goal, max_devices=most)
        wider = run_search(replace(search.question, goal=goal, is_widened=True), catalog)
        if not wider.is_ranked.any():
            return search
        search = wider
    return search


def _is_open(search: Search) -> bool:
    """Whether the user left the number of devices open, and machines work together."""
    question = search.question
    is_open = question.goal.max_devices is None or question.is_widened
    return is_open and question.is_training and not {"nodes", "strategy"} & set(question.goal.pins)


def _lacking_factor(search: Search) -> float:
    """How many times too slow the nearest candidate is that keeps all else; 0 if none does."""
    rest = [c.is_met for c in search.constraints if c.option not in _OF_TIME]
    rows = np.flatnonzero(np.logical_and.reduce([search.is_ranked, *rest]))
    of_time = [c for c in search.constraints if c.option in _OF_TIME]
    if not len(rows) or not of_time:
        return 0.0
    return float(np.max([c.value[rows] / c.limit for c in of_time], axis=0).min())


def widened_text(search: Search) -> str:
    """That more devices were tried than usual; empty where they were not."""
    if not search.question.is_widened:
        return ""
    return (
        f"up to {search.goal.most_devices:,} devices, as {USUAL_DEVICES} are too slow "
        "(limit them with --max-devices)"
    )


def usual_deadline_text(search: Search) -> str:
    """That a deadline was assumed; empty where none was."""
    if not search.question.has_usual_deadline:
        return ""
    usual_days, days = (
        round(limit / DAY_S) for limit in (usual_deadline_s(), search.goal.deadline_s or 0.0)
    )
    if days > usual_days:
        return (
            f"done within {days:,} days, near the fastest, as nothing is done within "
            f"{usual_days}, as long as people train (change with --deadline)"
        )
    return f"done within {days} days, as long as people train (change with --deadline)"
