"""The short list of a service, whose requests were run through the queue of its engine.

Every candidate keeps the goal by a screen of sums. Those that are to be listed are simulated: what
requests see at the stated percentile, and what the service does at most, take the place of the
screen's figures, and the list is made again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from paceline.errors import PacelineError
from paceline.planning.explain.impossible import nearest_rows, no_goal_kept
from paceline.planning.goal.goal import Goal
from paceline.planning.queues import (
    BOUNDED,
    is_queued,
    is_simulated,
    load_of,
    replicas_of,
)
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.evaluation import Constraint, constraints
from paceline.planning.search.finalists import select_replayed
from paceline.planning.search.selection import Selection
from paceline.prediction.uncertainty.normal import normal_quantile
from paceline.simulation.queue.figures import ServiceFigures, service_figures

_HOUR_S = 3600.0
#: Standard deviations above the median at which a goal at even chances is simulated too.
_LEAST_Z = 0.25
#: Services that are simulated where none keeps the goal by itself.
_NUM_NEAREST = 8


def with_nearest_simulated(search: Search) -> Search:
    """Where nothing keeps a goal at its rate: what comes nearest, as its requests see it."""
    is_open = search.is_feasible.any() or not search.is_ranked.any()
    if is_open or search.work.requests_per_s is None or not is_queued(search):
        return search
    nearest = [row for row in nearest_rows(search).tolist() if is_simulated(search, row)]
    table = search.candidates
    services = {
        (table.place[row], table.num_nodes[row], table.configuration[row]): row
        for row in reversed(nearest)
    }
    rows = sorted(services.values(), key=nearest.index)[:_NUM_NEAREST]
    return _simulated(search, rows) if rows else search


def select_services(search: Search) -> tuple[Search, Selection]:
    """The short list, and the search with simulated figures of all that stands on it.

    A job without a rate, or a plain loop that writes token by token, is listed as it is.

    Raises:
        NoOfferError: Nothing keeps the goal once it is simulated; says what comes nearest.
        DoesNotFitError: Nothing fits.
    """
    search, selection = select_replayed(search)
    if search.work.requests_per_s is None or not is_queued(search):
        return search, selection
    while True:
        finalists = {*selection.listed, selection.runner_up, selection.next_offer}
        asked = sorted(
            row
            for row in finalists
            if row is not None and row not in search.services and is_simulated(search, row)
        )
        if not asked:
            return search, selection
        search = _simulated(search, asked)
        if not search.is_feasible.any():
            raise no_goal_kept(search)
        search, selection = select_replayed(search)


def _simulated(search: Search, rows: list[int]) -> Search:
    """The search with the figures of some candidates, and what then keeps the goal."""
    found = service_figures(
        [replicas_of(search, row) for row in rows],
        load_of(search),
        calibration=search.question.calibration,
        sure_z=max(normal_quantile(search.goal.confidence), _LEAST_Z),
        known=[one for one in search.services.values() if isinstance(one, ServiceFigures)],
    )
    is_ranked = search.is_ranked.copy()
    is_ranked[_alike(search, rows)] = False
    search = replace(search, is_ranked=is_ranked)
    figures = dict(zip(rows, found, strict=True))
    services = {**search.services, **figures}
    columns = _columns(search, figures)
    steps = replace(
        search.evaluation.steps,
        per_token_s=columns.pop("per_token_s"),
        first_token_s=columns.pop("first_token_s"),
    )
    evaluation = replace(search.evaluation, steps=steps, **columns)
    stated = tuple(
        _as_simulated(one, services, search.goal)
        for one in constraints(evaluation, search.goal, search.job.amount)
    )
    is_met = np.logical_and.reduce([search.is_ranked, *(one.is_met for one in stated)])
    is_feasible = search.is_feasible.copy()
    is_feasible[rows] = is_met[rows] & [not isinstance(one, PacelineError) for one in found]
    return replace(
        search,
        evaluation=evaluation,
        constraints=stated,
        is_feasible=is_feasible,
        services=services,
    )


def _alike(search: Search, rows: list[int]) -> list[int]:
    """Candidates of the same service as one of these: an engine chooses its batch by itself."""
    table = search.candidates
    kinds = (table.place, table.num_nodes, table.configuration)
    key = np.ravel_multi_index(kinds, [int(kind.max()) + 1 for kind in kinds])
    same = np.flatnonzero(np.isin(key, key[rows]))
    return sorted({int(row) for row in same if search.whole_row(int(row)) is None} - set(rows))


def _as_simulated(
    constraint: Constraint, services: Mapping[int, ServiceFigures | PacelineError], goal: Goal
) -> Constraint:
    """A constraint with the spread that the simulated figures have, which grows near saturation."""
    log_sigma = constraint.log_sigma.copy()
    for row, found in services.items():
        if isinstance(found, ServiceFigures):
            ratio = _sure_over_mid(found, constraint.option, goal.percentile)
            if ratio is not None:
                log_sigma[row] = math.log(max(ratio, 1.0)) / found.sure_z
    z = normal_quantile(goal.confidence)
    value = constraint.fixed + constraint.median * np.exp(z * log_sigma)
    return replace(constraint, log_sigma=log_sigma, value=value)


def _sure_over_mid(found: ServiceFigures, option: str, percentile: int) -> float | None:
    """How much worse what an option limits is at the asked chance; None of other options."""
    if option == "--rps":
        return found.capacity_per_s / found.capacity_sure_per_s
    if option not in BOUNDED:
        return None
    sure, mid = (
        found.seconds_of(one, BOUNDED[option], percentile) for one in (found.sure, found.mid)
    )
    return sure / mid


def _columns(
    search: Search, figures: Mapping[int, ServiceFigures | PacelineError]
) -> dict[str, np.ndarray]:
    """Columns of the evaluation with what was simulated; what cannot run has none."""
    percentile, asked_per_s = search.goal.percentile, search.work.requests_per_s
    per_request = search.job.amount.samples_per_item
    assert asked_per_s is not None
    names = ("per_token_s", "first_token_s", "samples_per_s", "usd_per_million")
    evaluation = search.evaluation
    owners = (evaluation.steps, evaluation.steps, evaluation, evaluation)
    columns = {
        name: np.array(getattr(owner, name)) for name, owner in zip(names, owners, strict=True)
    }
    for row, found in figures.items():
        if isinstance(found, PacelineError):
            values = (np.nan, np.nan, np.nan, np.nan)
        else:
            usd_per_s = float(search.evaluation.usd_per_hour[row]) / _HOUR_S
            values = (
                found.seconds_of(found.mid, "per_token", percentile),
                found.seconds_of(found.mid, "first_token", percentile),
                found.capacity_per_s * per_request,
                usd_per_s / (asked_per_s * per_request) * 1e6,
            )
        for name, value in zip(names, values, strict=True):
            columns[name][row] = value
    return columns
