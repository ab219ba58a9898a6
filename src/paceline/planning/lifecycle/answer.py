"""The answer for a whole life of a model: places, costs with their ranges, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from paceline.planfile import Interval, PlannedChoice
from paceline.planning.goal.chance import Z_80
from paceline.planning.lifecycle.lifecycle import PhaseName, SearchedPhase, Ways, busy_frac
from paceline.planning.lifecycle.words import assumptions, reason, whys
from paceline.planning.places.relocation import Dataset
from paceline.planning.search.choices import planned_choice
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPhase:
    """One phase at its place.

    Attributes:
        choice: The complete plan; of developing, its time and cost are those of one run.
        held_s: Paid time of each machine.
        busy_frac: Share of what the machines could do that is asked of them; None of developing,
            where it depends on the developer.
        moving_usd: Of bringing data or weights there.
        reason: Why there, one sentence.
    """

    phase: PhaseName
    choice: PlannedChoice
    held_s: float
    busy_frac: float | None
    machines_usd: Interval
    moving_usd: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLife:
    """Every phase at its place.

    Attributes:
        phases: In their order.
        total_usd: Machines and moves of all; its ends are the sums of their ends, as if all erred
            together.
    """

    phases: tuple[PlacedPhase, ...]
    total_usd: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """Where a model is best developed, trained and served.

    Attributes:
        title: What it is about.
        model: As named.
        assumptions: Printed first, one sentence each.
        split: The cheapest places, which may all be one.
        one_place: The cheapest single place for every phase; None if there is none.
        why: What one place would cost instead, and what idling does, one sentence each.
    """

    title: str
    model: str
    assumptions: tuple[str, ...]
    split: PlacedLife
    one_place: PlacedLife | None
    why: tuple[str, ...]


def answer_lifecycle(ways: Ways, dataset: Dataset | None, *, title: str) -> Lifecycle:
    """The cheapest way through all phases beside the cheapest single place.

    Args:
        ways: Every place of every phase.
        dataset: What is brought along, for the assumptions.
        title: What it is about; the model's own if empty.
    """
    split, one_place = ways.split(), ways.one_place()
    workload = ways.phases[0].asked.workload
    return Lifecycle(
        title=title or workload.title,
        model=workload.name,
        assumptions=tuple(assumptions(ways, split, dataset)),
        split=_placed(ways, split),
        one_place=None if one_place is None else _placed(ways, one_place),
        why=tuple(whys(ways, split, one_place)),
    )


def _placed(ways: Ways, way: Sequence[int]) -> PlacedLife:
    moving = ways.moving_usd(way)
    phases = tuple(
        _placed_phase(phase, at, moving_usd)
        for phase, at, moving_usd in zip(ways.phases, way, moving, strict=True)
    )
    ends = [
        sum(getattr(one.machines_usd, end) for one in phases) + sum(moving)
        for end in ("low", "mid", "high")
    ]
    return PlacedLife(phases=phases, total_usd=Interval(low=ends[0], mid=ends[1], high=ends[2]))


def _placed_phase(phase: SearchedPhase, at: int, moving_usd: float) -> PlacedPhase:
    row = phase.stops.rows[at]
    why = reason(phase, at)
    choice = replace(planned_choice(phase.search, row), reason=why)
    return PlacedPhase(
        phase=phase.asked.name,
        choice=choice,
        held_s=float(phase.held_s[row]),
        busy_frac=busy_frac(phase, row),
        machines_usd=_machines_usd(phase, row, choice),
        moving_usd=moving_usd,
        reason=why,
    )


def _machines_usd(phase: SearchedPhase, row: int, choice: PlannedChoice) -> Interval:
    """Of a job as its plan says; of a stay, whose time is stated, as sure as the price is."""
    if phase.asked.stay is None and choice.cost_usd is not None:
        return choice.cost_usd
    place, mid = phase.search.candidates.place[row], float(phase.usd[row])
    factor = math.exp(Z_80 * float(phase.search.places.price_log_sigma[place]))
    return Interval(low=mid / factor, mid=mid, high=mid * factor)
