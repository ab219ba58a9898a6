"""A worker and everything it started: its memory, its processor time, and how to end it.

Read from Linux's ``/proc``; elsewhere memory and time are not known and only the worker itself is
ended.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from paceline.values import dataclass

_PROC = Path("/proc")
#: Between asking a process to end and ending it.
_GRACE_S = 0.5
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeUsage:
    """What a process and its descendants use together.

    Attributes:
        resident_bytes: Main memory, pages shared with files not counted.
        cpu_s: Processor time since each of them started.
    """

    resident_bytes: float
    cpu_s: float


def descendants(pid: int) -> tuple[int, ...]:
    """``pid`` and every process below it, parents first."""
    found = [pid]
    for parent in found:
        found.extend(child for child in _children(parent) if child not in found)
    return tuple(found)


def tree_usage(pid: int) -> TreeUsage:
    """Memory and processor time of ``pid`` and its descendants; zero for those that ended."""
    pids = descendants(pid)
    return TreeUsage(
        resident_bytes=sum(_private_bytes(p) for p in pids),
        cpu_s=sum(_cpu_s(p) for p in pids),
    )


def end_tree(pid: int) -> None:
    """End ``pid`` and its descendants: ask first, then insist."""
    pids = descendants(pid)
    _signal_all(pids, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline and any(_is_running(p) for p in pids):
        time.sleep(0.02)
    _signal_all({*pids, *descendants(pid)}, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    # A process that ends while its threads are listed has no children either.
    with suppress(OSError):
        for path in (_PROC / str(pid) / "task").glob("*/children"):
            found.extend(int(word) for word in _read(path).split())
    return found


def _private_bytes(pid: int) -> float:
    fields = _read(_PROC / str(pid) / "statm").split()
    return (int(fields[1]) - int(fields[2])) * float(_PAGE_BYTES) if len(fields) > 2 else 0.0


def _cpu_s(pid: int) -> float:
    """User and system time; fields 14 and 15 of ``stat``, after the name in brackets."""
    fields = _read(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S if len(fields) > 12 else 0.0


def _is_running(pid: int) -> bool:
    state = _read(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    return bool(state) and state[0] not in ("Z", "X")


def _signal_all(pids: set[int] | tuple[int, ...], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
