"""Live bytes over a pass: the course to the peak and back, and where the peak is."""

from __future__ import annotations

import numpy as np

from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.graph import FloatArray, Graph, Owner, Phase
from paceline.model.lowering import Lifetimes, lifetimes
from paceline.values import dataclass

_NUM_MOMENTS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCourse:
    """Live bytes from the first op of a pass to its last, before allocator rounding.

    Attributes:
        peak_bytes: Most that is alive at once.
        peak_op: Op during which it is, counted from one.
        peak_phase: Word of that op's ``Phase``.
        moments_bytes: The most in each of equal parts of the pass, in order of execution.
        phases: Word of the phase that each of those parts begins in.
        starts: First op of each of those parts, counted from one.
        owners: Words of the owners that ever hold anything, as ``Owner`` numbers them.
        owned_bytes: Of each owner, its share of each of ``moments_bytes``.
    """

    num_ops: int
    peak_bytes: float
    peak_op: int
    peak_phase: str
    peak_module: str
    moments_bytes: tuple[float, ...]
    phases: tuple[str, ...]
    starts: tuple[int, ...]
    owners: tuple[str, ...]
    owned_bytes: tuple[tuple[float, ...], ...]


def memory_course(graph: Graph, lowered: LoweredPass, *, batch: int, seq: int) -> MemoryCourse:
    """The course of a pass, in at most `_NUM_MOMENTS` parts.

    Args:
        graph: What was lowered.
        lowered: Its lowering.
        batch: Items.
        seq: Sequence or past length.
    """
    costs, num_ops = lowered.costs, len(lowered.costs.order)
    lived = lifetimes(graph, lowered.configuration)
    by_owner = live_by_owner(lived, num_ops=num_ops, batch=batch, seq=seq)
    live = by_owner.sum(axis=1)
    peak = int(live.argmax())
    starts = np.unique(np.linspace(0, num_ops, _NUM_MOMENTS, endpoint=False).astype(np.int64))
    phase = costs.phase[costs.order]
    ends = np.append(starts[1:], num_ops)
    fullest = [a + int(live[a:b].argmax()) for a, b in zip(starts, ends, strict=True)]
    owned = by_owner[fullest]
    held = np.flatnonzero(owned.any(axis=0)).tolist()
    return MemoryCourse(
        num_ops=num_ops,
        peak_bytes=float(live[peak]),
        peak_op=peak + 1,
        peak_phase=_word(int(phase[peak])),
        peak_module=costs.modules[int(costs.module[peak])],
        moments_bytes=tuple(live[fullest].tolist()),
        phases=tuple(_word(code) for code in phase[starts].tolist()),
        starts=tuple((starts + 1).tolist()),
        owners=tuple(Owner(code).name.lower().replace("_", " ") for code in held),
        owned_bytes=tuple(tuple(owned[:, code].tolist()) for code in held),
    )


def live_by_owner(lived: Lifetimes, *, num_ops: int, batch: float, seq: float) -> FloatArray:
    """Bytes that are alive during each op, (num_ops, num_owners)."""
    sizes = lived.bytes_at(batch, seq)
    change = np.zeros((num_ops + 1, len(Owner)))
    birth = np.clip(lived.birth, 0, num_ops)
    end = np.clip(np.minimum(lived.death, num_ops - 1) + 1, 0, num_ops)
    np.add.at(change, (birth, lived.owner), sizes)
    np.add.at(change, (end, lived.owner), -sizes)
    live: FloatArray = change.cumsum(axis=0)[:num_ops]
    return live


def _word(phase: int) -> str:
    return Phase(phase).name.lower()
