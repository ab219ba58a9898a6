"""Two ways to run the same pass, figure by figure."""

from __future__ import annotations

from typing import Literal

from paceline.prediction.step.breakdown import PassBreakdown
from paceline.values import dataclass

Unit = Literal["flop", "bytes", "count", "s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigure:
    """One figure of both.

    Attributes:
        name: What it is.
        unit: In which it is given.
        base: Of the first.
        other: Of the second.
    """

    name: str
    unit: Unit
    base: float
    other: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassComparison:
    """A pass run in two ways.

    Attributes:
        name: Of the pass.
        figures: Whole figures, then FLOP by phase, then memory at the peak by owner.
    """

    name: str
    figures: tuple[ComparedFigure, ...]


def compare_passes(base: PassBreakdown, other: PassBreakdown) -> PassComparison:
    """Figures of two breakdowns of one pass."""
    found = [
        _figure("FLOP", "flop", base.flop, other.flop),
        _figure("bytes moved", "bytes", base.moved_bytes, other.moved_bytes),
        _figure("ops", "count", base.num_ops, other.num_ops),
        _figure("kernels", "count", base.num_kernels, other.num_kernels),
    ]
    if base.device_s is not None and other.device_s is not None:
        found.append(_figure("busy time", "s", base.device_s, other.device_s))
    for phase in dict.fromkeys((*base.flop_by_phase, *other.flop_by_phase)):
        pair = (one.flop_by_phase.get(phase, 0.0) for one in (base, other))
        found.append(_figure(f"FLOP, {phase}", "flop", *pair))
    held = [{owner.owner: owner.live_bytes for owner in one.memory} for one in (base, other)]
    found.append(_figure("peak memory", "bytes", *(sum(one.values()) for one in held)))
    for owner in dict.fromkeys((*held[0], *held[1])):
        pair = (one.get(owner, 0.0) for one in held)
        found.append(_figure(f"at the peak, {owner}", "bytes", *pair))
    return PassComparison(name=base.name, figures=tuple(found))


def _figure(name: str, unit: Unit, base: float, other: float) -> ComparedFigure:
    return ComparedFigure(name=name, unit=unit, base=float(base), other=float(other))
