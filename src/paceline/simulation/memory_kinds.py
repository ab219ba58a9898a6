"""Which figure of memory is meant: live blocks, the allocator's segments, or the whole process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from paceline.model.graph.costs import Configuration
from paceline.prediction.memory.peak import Allocator, allocator_of, process_memory

MemoryKind = Literal["allocated", "reserved", "process"]

#: Live blocks of real ranks are within so much of those predicted (tests/unit/loop/
#: test_mesh_bytes.py); nothing that an allocator or a driver adds is in doubt about them.
LIVE_FRAC = 0.02


def memory_of_kind(
    process_bytes: float, kind: MemoryKind, *, platform: Allocator, joined_bytes: float = 0.0
) -> float:
    """What another tool shows of a process whose peak is ``process_bytes``.

    Args:
        process_bytes: Segments, workspaces and the driver's context, as ``nvidia-smi`` shows them.
        kind: ``allocated`` is ``torch.cuda.max_memory_allocated``, where libraries keep their
            workspaces too; ``reserved`` is ``max_memory_reserved``.
        platform: Whose allocator, libraries and driver.
        joined_bytes: Of the process, what communicators of its ranks hold; no allocator does.

    >>> whole = 20e9
    >>> kinds = ("allocated", "reserved", "process")
    >>> sizes = [memory_of_kind(whole, kind, platform="cuda") for kind in kinds]
    >>> sizes == sorted(sizes), memory_of_kind(0.0, "allocated", platform="cuda") >= 0.0
    (True, True)
    """
    if kind == "process":
        return process_bytes
    added = process_memory(platform)
    reserved = max(process_bytes - joined_bytes - added.context_mid_bytes, 0.0)
    if kind == "reserved":
        return reserved
    blocks = max(reserved - added.workspace_bytes - added.slack_mid_bytes, 0.0)
    return min(blocks / (1.0 + added.fragmentation_mid_frac) + added.workspace_bytes, reserved)


def live_bytes(
    process_bytes: float, configuration: Configuration, *, joined_bytes: float = 0.0
) -> float:
    """What live tensors hold of a process that runs so; arguments are those of `memory_of_kind`."""
    platform = allocator_of(configuration)
    return memory_of_kind(process_bytes, "allocated", platform=platform, joined_bytes=joined_bytes)


def interval_of_kind(
    process_bytes: Sequence[float], kind: MemoryKind, *, platform: Allocator,
    joined_bytes: float = 0.0,
) -> tuple[float, float, float]:  # fmt: skip
    """Lower end, median and bound of a figure, with the doubts that are its own.

    What the driver's context takes is in doubt in the process's figure alone, what fragments in
    that of segments too.

    Args:
        process_bytes: Lower end, median and bound of the process.
        kind: As in `memory_of_kind`.
        platform: Whose allocator, libraries and driver.
        joined_bytes: As in `memory_of_kind`.

    >>> low, mid, high = interval_of_kind((9e9, 10e9, 12e9), "allocated", platform="cuda")
    >>> high / mid < 1.05 < 12 / 10
    True
    """
    low, mid, high = process_bytes
    shown = memory_of_kind(mid, kind, platform=platform, joined_bytes=joined_bytes)
    if kind == "process":
        return low, mid, high
    if kind == "allocated":
        return shown / (1.0 + LIVE_FRAC), shown, shown * (1.0 + LIVE_FRAC)
    added = process_memory(platform)
    least = low - joined_bytes - added.context_low_bytes
    most = high - joined_bytes - added.context_high_bytes
    return min(max(least, 0.0), shown), shown, max(most, shown)
