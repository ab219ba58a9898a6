"""Why each phase of a lifecycle goes where it goes, and what one place would cost, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from paceline.planning.explain.exclusions import fates
from paceline.planning.explain.wording import candidate_name, cloud_title
from paceline.planning.forecast.question import SearchOptions
from paceline.planning.lifecycle.lifecycle import (
    SearchedPhase,
    Stay,
    Ways,
    busy_frac,
    weights_bytes,
)
from paceline.planning.places.own_machines import OWN, electricity_text
from paceline.planning.places.price import traffic_out_usd_per_byte
from paceline.planning.places.relocation import Dataset
from paceline.planning.search.choices import place_of
from paceline.units import DAY_S, HOUR_S, format_bytes, format_duration, format_percent, format_usd


def reason(phase: SearchedPhase, at: int) -> str:
    """Why a phase goes to a stop, and what becomes of the user's own machines there."""
    row = phase.stops.rows[at]
    figure = _figure(phase, row)
    if phase.stops.clouds[at] == OWN:
        name = place_of(phase.search, row).offer.name
        return f"your own {name} is enough: {figure}{_cheapest_rented(phase)}"
    best = int(np.argmin(phase.stops.usd))
    rank = "cheapest that keeps the goal" if at == best else _dearer(phase, at, best)
    return f"{rank}: {figure}" + "".join(f"; {why}" for why in _why_not_own(phase))


def _dearer(phase: SearchedPhase, at: int, best: int) -> str:
    more = float(phase.stops.usd[at] - phase.stops.usd[best])
    name = candidate_name(phase.search, phase.stops.rows[best])
    return f"cheapest with moves ({name} alone costs {format_usd(more)} USD less)"


def _figure(phase: SearchedPhase, row: int) -> str:
    """What the phase is about, as its place does it."""
    evaluation, goal = phase.search.evaluation, phase.asked.goal
    if phase.asked.name == "develop":
        wanted = f" (at most {format_duration(goal.deadline_s)})" if goal.deadline_s else ""
        return f"a run takes {format_duration(float(evaluation.time_s[row]))}{wanted}"
    if phase.asked.name == "train":
        return f"done in {format_duration(float(evaluation.time_s[row]))}"
    latency = format_duration(float(evaluation.steps.per_token_s[row]))
    unit = "a token" if np.isfinite(evaluation.steps.first_token_s[row]) else "a batch"
    return f"{latency} {unit}, {format_percent(busy_frac(phase, row) or 0.0)} busy"


def _cheapest_rented(phase: SearchedPhase) -> str:
    rented = [at for at, cloud in enumerate(phase.stops.clouds) if cloud != OWN]
    if not rented:
        return "; nothing rented keeps the goal"
    at = min(rented, key=lambda one: float(phase.stops.usd[one]))
    name = candidate_name(phase.search, phase.stops.rows[at])
    return f"; the cheapest rented, {name}, costs {format_usd(float(phase.stops.usd[at]))} USD"


def _why_not_own(phase: SearchedPhase) -> Iterator[str]:
    """What each of the user's own machines does instead, or what keeps it out."""
    for name, cloud, usd in zip(
        phase.stops.names, phase.stops.clouds, phase.stops.usd.tolist(), strict=True
    ):
        if cloud == OWN:
            yield f"your own {name} would cost {format_usd(usd)} USD in electricity"
    able = set(phase.stops.names)
    own = {place.offer.name for place in phase.search.found.places if place.is_owned}
    own |= {r.offer.name for r in phase.search.found.rejections if r.offer.cloud == OWN}
    told: set[str] = set()
    for fate in fates(phase.search, None):
        if fate.name in own - able - told:
            told.add(fate.name)
            yield f"your own {fate.name}: {fate.reason}"


def whys(ways: Ways, split: Sequence[int], one_place: Sequence[int] | None) -> Iterator[str]:
    """What one place would cost instead, and what a machine costs that is never given back."""
    yield _one_place_sentence(ways, split, one_place)
    for phase, at in zip(ways.phases, split, strict=True):
        if phase.asked.name == "develop" and phase.asked.stay and phase.stops.clouds[at] != OWN:
            yield _night_sentence(phase, phase.asked.stay, at)


def _one_place_sentence(ways: Ways, split: Sequence[int], one_place: Sequence[int] | None) -> str:
    if one_place is None:
        counts = ", ".join(f"{len(p.stops.names)} {p.asked.name}" for p in ways.phases)
        return f"no one place keeps the goals of all phases (places that can: {counts})"
    name = _place_name(ways.phases[0], one_place[0])
    if tuple(split) == tuple(one_place) or ways.usd(one_place) <= ways.usd(split):
        return f"one place for all is the better answer: {name}{_saved_by_staying(ways, split)}"
    extra = ways.usd(one_place) - ways.usd(split)
    names = [p.stops.names[at] for p, at in zip(ways.phases, split, strict=True)]
    num_moves = sum(a != b for a, b in pairwise(names))
    each = "the move" if num_moves == 1 else f"each of the {num_moves} moves"
    return (
        f"one place for all, {name}, would cost {format_usd(ways.usd(one_place))} USD, "
        f"{format_usd(extra)} more ({_by_phase(ways, split, one_place)}); it is the better answer "
        f"where {each} costs you more than {format_usd(extra / num_moves)} USD of work"
    )


def _place_name(phase: SearchedPhase, at: int) -> str:
    """The offer and what is inside; how many of it depends on the phase."""
    place = place_of(phase.search, phase.stops.rows[at])
    return f"{phase.stops.names[at]} ({place.device.name})"


def _saved_by_staying(ways: Ways, split: Sequence[int]) -> str:
    """What the cheapest place of each phase alone would save, and cost in moves."""
    alone = [int(np.argmin(phase.stops.usd)) for phase in ways.phases]
    saved = sum(
        float(phase.stops.usd[at] - phase.stops.usd[one])
        for phase, at, one in zip(ways.phases, split, alone, strict=True)
    )
    if saved <= 0:
        return ", the cheapest for each phase"
    moving = sum(ways.moving_usd(alone)) - sum(ways.moving_usd(split))
    return (
        f"; the cheapest of each phase would save {format_usd(saved)} USD and cost "
        f"{format_usd(moving)} USD in moves"
    )


def _by_phase(ways: Ways, split: Sequence[int], one_place: Sequence[int]) -> str:
    parts: list[tuple[str, float]] = [
        (phase.asked.name, float(phase.stops.usd[other] - phase.stops.usd[at]))
        for phase, at, other in zip(ways.phases, split, one_place, strict=True)
    ]
    parts.append(("moves", sum(ways.moving_usd(one_place)) - sum(ways.moving_usd(split))))
    return ", ".join(
        f"{name} {'−' if usd < 0 else '+'}{format_usd(abs(usd))}"
        for name, usd in parts
        if round(abs(usd), 2)
    )


def _night_sentence(phase: SearchedPhase, stay: Stay, at: int) -> str:
    hours = stay.num_times * DAY_S / HOUR_S
    usd = hours * float(phase.stops.usd_per_hour[at])
    return (
        f"left on between working hours, the machine to develop on would cost {format_usd(usd)} "
        f"USD and idle {format_percent(1.0 - stay.each_s / DAY_S)} of the time"
    )


def assumptions(ways: Ways, split: Sequence[int], dataset: Dataset | None) -> Iterator[str]:
    """What was taken for granted, one sentence each."""
    for phase in ways.phases:
        if phase.search.job.assumption:
            yield f"{phase.asked.name}: {phase.search.job.assumption}"
    yield (
        "phases follow one another; a rented machine is given back after each stay and "
        f"{format_duration(SearchOptions().setup_s)} to set it up are paid; storage not counted"
    )
    if any(OWN in phase.stops.clouds for phase in ways.phases):
        yield electricity_text()
    yield _dataset_text(dataset)
    yield from _unpriced_weights(ways, split)


def _dataset_text(dataset: Dataset | None) -> str:
    if dataset is None:
        return "bringing data to a place is not counted (say with `dataset` what there is to bring)"
    where = "on your own disks" if dataset.at == OWN else f"at {cloud_title(dataset.at)}"
    return (
        f"{format_bytes(dataset.size_bytes)} of data {where} are brought to where the model is "
        f"developed or trained, if that is elsewhere, at {format_bytes(dataset.bytes_per_s)}/s"
    )


def _unpriced_weights(ways: Ways, split: Sequence[int]) -> Iterator[str]:
    """Say where trained weights leave a cloud whose price of traffic is not known."""
    for index, (before, after) in enumerate(pairwise(ways.phases)):
        cloud = before.stops.clouds[split[index]]
        leaves = cloud != after.stops.clouds[split[index + 1]]
        if after.asked.name == "serve" and leaves and traffic_out_usd_per_byte(cloud) is None:
            size = format_bytes(float(weights_bytes(before)[split[index]]))
            yield f"what {cloud_title(cloud)} charges for {size} of weights out is not known"
