"""The short list of a service, whose requests were run through the queue of its engine.

Every candidate keeps the goal by a screen of sums. Those that are to be listed are simulated: what
requests see at the stated percentile, and what the service does at most, take the place of the
screen's figures, and the list is made again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from paceline.errors import NoOfferError, PacelineError
from paceline.planning.explain.wording import candidate_name
from paceline.planning.goal.chance import Z_80, normal_quantile
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.goal.service import service_of
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import place_of, strategy_of
from paceline.planning.search.evaluation import Constraint, constraints
from paceline.planning.search.finalists import select_replayed
from paceline.planning.search.selection import Selection
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.figures import (
    Replicas,
    ServiceFigures,
    seconds_at,
    service_figures,
)
from paceline.simulation.queue.load import Lengths, Load
from paceline.stack.engines import EngineProfile

_HOUR_S = 3600.0


def select_services(search: Search) -> tuple[Search, Selection]:
    """The short list, and the search with simulated figures of all that stands on it.

    A job without a rate, or that no engine serves, is listed as it is.

    Raises:
        NoOfferError: Nothing keeps the goal once it is simulated; says what comes nearest.
        DoesNotFitError: Nothing fits.
    """
    search, selection = select_replayed(search)
    if search.work.requests_per_s is None or _engine(search) is None:
        return search, selection
    while True:
        finalists = {*selection.listed, selection.runner_up, selection.next_offer}
        asked = sorted(
            row
            for row in finalists
            if row is not None and row not in search.services and _is_served(search, row)
        )
        if not asked:
            return search, selection
        search = _simulated(search, asked)
        if not search.is_feasible.any():
            raise _beyond_capacity(search)
        search, selection = select_replayed(search)


def load_of(work: Work) -> Load:
    """The requests of a service at its rate."""
    return Load(
        arrivals="poisson",
        prompt=Lengths(mean=work.prompt_length, spread=work.length_spread or 0.0),
        output=Lengths(mean=work.output_length, spread=work.length_spread or 0.0),
        rate_per_s=work.requests_per_s,
    )


def _simulated(search: Search, rows: list[int]) -> Search:
    """The search with the figures of some candidates, and what then keeps the goal."""
    found = service_figures(
        [_replicas(search, row) for row in rows],
        load_of(search.work.of(search.workload)),
        calibration=search.question.calibration,
    )
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


def _as_simulated(
    constraint: Constraint, services: Mapping[int, ServiceFigures | PacelineError], goal: Goal
) -> Constraint:
    """A constraint with the spread that the simulated figures have, which grows near saturation."""
    log_sigma = constraint.log_sigma.copy()
    for row, found in services.items():
        if isinstance(found, ServiceFigures):
            ratio = _slow_over_mid(found, constraint.option, goal.percentile)
            log_sigma[row] = log_sigma[row] if ratio is None else math.log(max(ratio, 1.0)) / Z_80
    z = normal_quantile(goal.confidence)
    value = constraint.fixed + constraint.median * np.exp(z * log_sigma)
    return replace(constraint, log_sigma=log_sigma, value=value)


def _slow_over_mid(found: ServiceFigures, option: str, percentile: int) -> float | None:
    """How much worse what an option limits is at the slow end; None of what is not simulated."""
    if option == "--rps":
        return found.capacity_per_s / found.capacity_low_per_s
    names: dict[str, Literal["per_token", "first_token"]] = {
        "--latency": "per_token", "--ttft": "first_token",
    }  # fmt: skip
    if option not in names:
        return None
    slow, mid = (
        seconds_at(getattr(one, names[option]), percentile) for one in (found.slow, found.mid)
    )
    return slow / mid


def _engine(search: Search) -> EngineProfile | None:
    """Who serves the requests; None where a plain loop runs them."""
    service = service_of(search.goal, search.workload)
    return None if service is None else service.engine


def _is_served(search: Search, row: int) -> bool:
    return bool(search.forecast.configurations[search.candidates.configuration[row]].is_served)


def _replicas(search: Search, row: int) -> Replicas:
    place, candidates = place_of(search, row), search.candidates
    configuration = search.forecast.configurations[candidates.configuration[row]]
    job = Job(
        workload=search.workload,
        configuration=configuration,
        strategy=strategy_of(search, row),
        profile=str(_engine(search)),
    )
    count = int(candidates.num_devices[row])
    machine = Machine.of(
        place.device,
        count,
        devices_per_node=max(count // int(candidates.num_nodes[row]), 1),
        device_link=place.links.device,
        node_link=place.links.node,
    )
    work = search.work.of(search.workload)
    return Replicas.of(job, machine, mean_tokens=work.prompt_length + work.output_length / 2.0)


def _columns(
    search: Search, figures: Mapping[int, ServiceFigures | PacelineError]
) -> dict[str, np.ndarray]:
    """Columns of the evaluation with what was simulated; what cannot run has none."""
    percentile, work = search.goal.percentile, search.work.of(search.workload)
    assert work.requests_per_s is not None
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
            tokens_per_s = work.requests_per_s * work.output_length
            values = (
                seconds_at(found.mid.per_token, percentile),
                seconds_at(found.mid.first_token, percentile),
                found.capacity_per_s * work.output_length,
                usd_per_s / tokens_per_s * 1e6,
            )
        for name, value in zip(names, values, strict=True):
            columns[name][row] = value
    return columns


def _beyond_capacity(search: Search) -> NoOfferError:
    """What comes nearest of all that was simulated."""
    known = {row: one for row, one in search.services.items() if isinstance(one, ServiceFigures)}
    asked = search.work.requests_per_s
    if not known:
        return NoOfferError(
            f"no plan serves {asked:g} requests/s", hint="loosen the goal, or raise --max-devices"
        )
    row = max(known, key=lambda one: known[one].capacity_low_per_s)
    best = known[row]
    percentile = search.goal.percentile
    return NoOfferError(
        f"no plan keeps the goal at {asked:g} requests/s: the most capable, "
        f"{candidate_name(search, row)}, completes {best.capacity_per_s:.3g} requests/s at most, "
        f"and at the rate asked for p{percentile} of its first tokens is "
        f"{seconds_at(best.mid.first_token, percentile):.3g} s, of its time per token "
        f"{seconds_at(best.mid.per_token, percentile) * 1e3:.3g} ms",
        hint=f"ask for at most --rps {best.capacity_low_per_s:.2g}, raise --max-devices (now "
        f"{search.goal.max_devices}), or loosen --ttft and --tpot",
    )
