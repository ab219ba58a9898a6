"""Options that say how a job runs: refused where the job would run the same without them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from paceline.catalog.entities import Catalog
from paceline.errors import InvalidInputError
from paceline.model.graph.workload import Workload
from paceline.parallelism.steps import Steps
from paceline.planning.forecast.grid_jobs import (
    UNSTATED_SHARDINGS,
    GridAxes,
    GridCases,
    grid_cases,
)
from paceline.planning.goal.goal import Goal, Work
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.simulation.simulator import simulate

if TYPE_CHECKING:
    from paceline.planning.search.all_candidates import Search


def check_effects(asked: GridCases, steps: Steps, calibration: Calibration) -> None:
    """Pass if every setting of how the jobs run changes a figure of one of them.

    Each is taken away in turn, and the same jobs are simulated without it: so no list of what
    concerns which model has to be kept.

    Raises:
        InvalidInputError: A setting changes nothing.
    """
    if not np.isfinite(steps.step_s).any():
        return
    option = _idle_option(asked, steps, calibration)
    if option is not None:
        raise InvalidInputError(
            f"`{option}` changes nothing for {asked.workload.title} here", hint="leave it out"
        )


def _idle_option(asked: GridCases, steps: Steps, calibration: Calibration) -> str | None:
    """The first option without which every figure is the same; None if each changes one."""
    for option, axes in _without(asked.axes):
        if _are_same(steps, simulate(asked.along(axes).cases, calibration=calibration)):
            return option
    return None


def check_rewrite_acts(
    workload: Workload,
    goal: Goal,
    work: Work,
    catalog: Catalog,
    axes: GridAxes,
    calibration: Calibration | None = None,
) -> None:
    """Pass if every setting of a rewrite changes one item of the job on one of the devices.

    The first device tells of nearly all; the others are asked where it does not.

    Raises:
        InvalidInputError: A setting changes nothing.
    """
    if not axes.rewrite:
        return
    calibration = calibration or builtin_calibration()
    for devices in (axes.devices[:1], axes.devices):
        asked = grid_cases(workload, goal, work, catalog, replace(axes, devices=devices))
        steps = simulate(asked.cases, calibration=calibration)
        known = bool(np.isfinite(steps.step_s).any())
        if known and not _idle_option(asked, steps, calibration):
            return
    check_effects(asked, steps, calibration)


def check_search_acts(search: Search, catalog: Catalog) -> None:
    """Pass if what the goal says of the job and of own machines concerns one of the places.

    Raises:
        InvalidInputError: A setting changes nothing, or heat is limited in a room without machines.
    """
    question = search.question
    goal, places = question.goal, search.found.places
    if goal.cooling_limit_w is not None and places and not any(one.is_owned for one in places):
        raise InvalidInputError(
            "`--cooling-limit` is of your own room, and none of your machines takes part",
            hint="state them with --facts, or limit rated power with --power-limit",
        )
    check_rewrite_acts(
        question.workload,
        goal,
        question.work,
        catalog,
        GridAxes(devices=search.devices, seq=question.seq, rewrite=goal.rewrite),
        question.calibration,
    )


def _without(axes: GridAxes) -> Iterator[tuple[str, GridAxes]]:
    """Each option that the axes state, and the axes without it."""
    if axes.checkpointing != "none":
        yield f"--checkpointing {axes.checkpointing}", replace(axes, checkpointing="none")
    if axes.sharding not in UNSTATED_SHARDINGS:
        yield f"--sharding {axes.sharding}", replace(axes, sharding="none")
    settings = [pair for pair in axes.rewrite.split(",") if pair.strip()]
    for setting in settings:
        others = ",".join(one for one in settings if one != setting)
        yield f"--rewrite {setting.strip()}", replace(axes, rewrite=others)


def _are_same(first: Steps, second: Steps) -> bool:
    """Whether no row differs in any figure."""
    return len(first) == len(second) and all(
        np.array_equal(getattr(first, field.name), getattr(second, field.name), equal_nan=True)
        for field in fields(Steps)
        if field.name != "reasons"
    )
