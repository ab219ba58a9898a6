"""Which figure of memory is meant: live blocks, the allocator's segments, or the whole process."""

from __future__ import annotations

from typing import Literal

from paceline.model.graph.costs import Platform
from paceline.prediction.memory.peak import process_memory

MemoryKind = Literal["allocated", "reserved", "process"]


def memory_of_kind(process_bytes: float, kind: MemoryKind, *, platform: Platform) -> float:
    """What another tool shows of a process whose peak is ``process_bytes``.

    Args:
        process_bytes: Segments, workspaces and the driver's context, as ``nvidia-smi`` shows them.
        kind: ``allocated`` is ``torch.cuda.max_memory_allocated``, where libraries keep their
            workspaces too; ``reserved`` is ``max_memory_reserved``.
        platform: Whose allocator, libraries and driver.

    >>> whole = 20e9
    >>> kinds = ("allocated", "reserved", "process")
    >>> sizes = [memory_of_kind(whole, kind, platform="cuda") for kind in kinds]
    >>> sizes == sorted(sizes), memory_of_kind(0.0, "allocated", platform="cuda") >= 0.0
    (True, True)
    """
    if kind == "process":
        return process_bytes
    added = process_memory(platform)
    reserved = max(process_bytes - added.context_mid_bytes, 0.0)
    if kind == "reserved":
        return reserved
    blocks = max(reserved - added.workspace_bytes - added.slack_mid_bytes, 0.0)
    return min(blocks / (1.0 + added.fragmentation_mid_frac) + added.workspace_bytes, reserved)
