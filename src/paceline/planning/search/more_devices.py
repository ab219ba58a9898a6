"""More devices than are usually tried, where a deadline or a rate cannot be kept with those."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from paceline.catalog.entities import Catalog
from paceline.planning.goal.goal import USUAL_DEVICES
from paceline.planning.search.all_candidates import Search, run_search

#: Most devices that are tried without being asked for: as Llama 3 was trained on.
_MOST_DEVICES = 16_384
#: Devices work less well the more they are.
_LOSS_FACTOR = 1.5
#: Constraints that more devices can keep.
_OF_TIME = ("--deadline", "--throughput")


def wide_enough(search: Search, catalog: Catalog) -> Search:
    """The search, or one over so many devices that a constraint of time may be kept.

    Only where the goal states no largest number, and nothing within the usual one keeps it.

    Args:
        search: Over the usual number of devices.
        catalog: Devices and offers.
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
