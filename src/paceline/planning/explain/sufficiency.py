"""Whether a CPU, or the machine one owns, is enough: where the answer of a plan would turn."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.planning.explain.crossover import (
    JobPlace,
    ServingPlace,
    job_crossover_samples,
    serving_crossover_requests_per_s,
    serving_usd_per_month,
)
from paceline.planning.explain.wording import candidate_name
from paceline.planning.queues import is_simulated, sustained_rates
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import place_of
from paceline.prediction.uncertainty.normal import normal_quantile
from paceline.units import format_count, format_significant, format_usd

#: Machines of the first kind whose rates are simulated: those that the screen has last longest.
_NUM_SIMULATED = 3
_THROUGHPUT_OPTIONS = ("--rps", "--throughput")


def enough_sentences(search: Search, best: int) -> tuple[str, ...]:
    """Up to which rate or amount of work the cheap or near place is enough.

    For a service: the rate at which a dearer machine becomes the cheaper way, and the one up to
    which a CPU would do. For a job on an owned machine: the work up to which it is done there
    sooner than on anything rented.
    """
    if search.job.amount.samples_per_s is not None:
        return _serving_sentences(search, best)
    if place_of(search, best).is_owned and search.evaluation.num_steps[best]:
        return _near_sentence(search, best)
    return ()


def _serving_sentences(search: Search, best: int) -> tuple[str, ...]:
    places = {row: _serving_place(search, row) for row in _machines(search)}
    is_cpu = {row: place_of(search, row).device.kind == "cpu" for row in places}
    cpus = {row: place for row, place in places.items() if is_cpu[row]}
    others = {row: place for row, place in places.items() if not is_cpu[row]}
    if place_of(search, best).device.kind == "cpu":
        return _turning(search, cpus, others, "a CPU is enough")
    first = {best: _serving_place(search, best)}
    name = first[best].name
    rivals = {row: place for row, place in others.items() if place.name != name}
    turning = _turning(search, first, rivals, f"{name} stays cheapest")
    return (*_turning(search, cpus, first, "a CPU would be enough"), *turning)


def _turning(
    search: Search, firsts: Mapping[int, ServingPlace], others: Mapping[int, ServingPlace],
    words: str,
) -> tuple[str, ...]:  # fmt: skip
    """The rate above which one of ``others`` costs less than all of ``firsts``, as a sentence.

    Who is concerned is found by the screen; of a service that is simulated their rates are too.
    """
    found = _turn(firsts.values(), others.values())
    if found is None:
        return ()
    rival = found[1]
    row = next(row for row, place in others.items() if place is rival)
    likely = sorted(firsts, key=lambda one: -_enough_up_to(firsts[one], rival))[:_NUM_SIMULATED]
    sure = _sustained(search, {one: firsts[one] for one in likely} | {row: rival})
    firsts = {one: sure[one] for one in likely}
    found = _turn(firsts.values(), [sure[row]])
    if found is None:
        return ()
    return (_turning_words(firsts, *found, words),)


def _turn(
    firsts: Collection[ServingPlace], others: Collection[ServingPlace]
) -> tuple[float, ServingPlace] | None:
    """The least rate above which another costs less than all of the first, and which does."""
    found = [
        (max((_enough_up_to(first, other) for first in firsts), default=0.0), other)
        for other in others
    ]
    turning = [(rate, other) for rate, other in found if 0 < rate < math.inf]
    return min(turning, key=lambda pair: (pair[0], pair[1].usd_per_hour)) if turning else None


def _sustained(search: Search, places: Mapping[int, ServingPlace]) -> dict[int, ServingPlace]:
    """The places with rates that keep the goal in the queue; as they are where nobody waits."""
    queued = [row for row in places if search.services and is_simulated(search, row)]
    rates = zip(queued, sustained_rates(search, queued), strict=True)
    num_nodes = search.candidates.num_nodes
    return dict(places) | {
        row: replace(places[row], requests_per_s=rate / int(num_nodes[row]))
        for row, rate in rates
        if rate
    }


def _turning_words(
    firsts: Mapping[int, ServingPlace], rate: float, other: ServingPlace, words: str
) -> str:
    """The sentence of a rate."""
    costs = [serving_usd_per_month(first, rate) for first in firsts.values()]
    return (
        f"{words} up to {format_significant(rate)} requests/s, at {format_usd(min(costs))} USD a "
        f"month; above, {other.name} costs less"
    )


def _enough_up_to(first: ServingPlace, other: ServingPlace) -> float:
    return serving_crossover_requests_per_s(first, other) or 0.0


def _machines(search: Search) -> list[int]:
    """Per device, the candidate of one machine with the least cost per sample, rate aside."""
    candidates = search.candidates
    accepted: npt.NDArray[np.bool_] = search.is_ranked & (candidates.num_nodes == 1)
    for constraint in search.constraints:
        if constraint.option not in _THROUGHPUT_OPTIONS:
            accepted = accepted & constraint.is_met
    per_sample = search.evaluation.usd_per_hour / search.evaluation.samples_per_s
    device = search.places.device[candidates.place]
    cheapest: dict[tuple[int, bool], int] = {}
    for key in ("usd_per_hour", "per_sample"):
        value = search.evaluation.usd_per_hour if key == "usd_per_hour" else per_sample
        for row in np.flatnonzero(accepted)[np.argsort(value[accepted], kind="stable")]:
            cheapest.setdefault((int(device[row]), key == "per_sample"), int(row))
    return sorted(set(cheapest.values()))


def _serving_place(search: Search, row: int) -> ServingPlace:
    """One machine of a candidate, with the rate it keeps at the stated chance."""
    evaluation, num_nodes = search.evaluation, int(search.candidates.num_nodes[row])
    per_request = search.job.amount.samples_per_item
    margin = math.exp(
        normal_quantile(search.goal.confidence) * float(evaluation.steps.log_sigma[row])
    )
    return ServingPlace(
        name=candidate_name(search, row).partition(" in ")[0],
        requests_per_s=float(evaluation.samples_per_s[row]) / per_request / num_nodes / margin,
        usd_per_hour=float(evaluation.usd_per_hour[row]) / num_nodes,
    )


def _near_sentence(search: Search, best: int) -> tuple[str, ...]:
    """Work up to which nothing rented is done sooner, set-up included."""
    is_rented = np.array([not place.is_owned for place in search.found.places], dtype=bool)
    rows = np.flatnonzero(search.is_feasible & is_rented[search.candidates.place])
    if not len(rows):
        return ()
    fastest = int(rows[np.argmin(search.evaluation.time_s[rows])])
    near, far = _job_place(search, best), _job_place(search, fastest)
    samples = job_crossover_samples(near, far)
    if samples is None:
        return (f"{near.name} is done sooner than anything rented, however much there is to do",)
    if samples == 0:
        return ()
    unit = search.workload.sample_unit
    return (
        f"{near.name} is enough up to {format_count(samples)} {unit}: "
        f"above, {far.name} is done sooner, set-up included",
    )


def _job_place(search: Search, row: int) -> JobPlace:
    evaluation, amount = search.evaluation, search.job.amount
    num_samples = (amount.items_per_epoch or 0) * amount.num_epochs * amount.samples_per_item
    return JobPlace(
        name=candidate_name(search, row),
        s_per_sample=float(evaluation.run_s[row]) / num_samples,
        setup_s=float(evaluation.time_s[row] - evaluation.run_s[row]),
    )
