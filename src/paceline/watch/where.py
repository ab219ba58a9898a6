"""Where a rank stands when nothing moves: in which part of its step, and in which line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.values import dataclass
from paceline.watch.events import RankEvents

#: Parts of a step by files and functions of its stack, innermost first; the first that is found.
_PARTS: Sequence[tuple[str, str, str]] = (
    (r"torch/utils/data/|stateful_dataloader", "", "waiting for a batch"),
    (r"torch/serialization|distributed/checkpoint|safetensors", "", "saving or loading"),
    (r"torch/distributed/", "", "waiting for other ranks in a collective"),
    (r"torch/autograd/", r"backward|_engine", "in backward"),
    (r"torch/optim/", "", "in the optimizer"),
    (r"/(threading|queue)\.py$", r"acquire|wait|get|join|__enter__", "waiting for a lock"),
)
_WAITS_FOR_OTHERS = frozenset({"waiting for other ranks in a collective", "in backward"})
_REMEDIES: Mapping[str, str] = {
    "waiting for a batch": "look at what the line reads: storage, network, a worker that died",
    "saving or loading": "look at the storage that it writes to or reads from",
    "waiting for other ranks in a collective": "every rank must make the same calls: look at what "
    "the other ranks do",
    "in backward": "look at the rank that is not there; `NCCL_DEBUG=INFO` names links",
    "waiting for a lock": "look at what holds it",
}
_LIBRARY = re.compile(r"/(site-packages|dist-packages|lib/python3[^/]*)/|^<frozen|/watch/observer/")
_FROZEN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one rank is.

    Attributes:
        num_steps: That it has done.
        quiet_s: Since it last moved.
        part: Of the step, in words.
        line: Innermost line of the user's own code, or the one that ended the process; empty
            where none is seen.
        has_ended: Whether its process is gone.
    """

    rank: int
    num_steps: int
    quiet_s: float
    part: str
    line: str
    has_ended: bool

    @property
    def is_waiting_for_others(self) -> bool:
        """Whether what it does ends when others come."""
        return self.part in _WAITS_FOR_OTHERS

    @property
    def place(self) -> str:
        """The part, as others' is said."""
        return self.part if self.part.startswith("in ") else f"({self.part})"

    @property
    def text(self) -> str:
        """As printed."""
        where = f" ({self.line})" if self.line else ""
        if self.has_ended:
            return f"rank {self.rank} has ended after step {self.num_steps}{where}"
        return f"rank {self.rank} is {self.part}{where}"

    @property
    def remedy(self) -> str:
        """What to look at."""
        if self.has_ended:
            return "look at the last lines of that rank; then `paceline runs stop`"
        return _REMEDIES.get(self.part, "look at the line; `paceline runs stop` ends the run")

    def is_early(self, others: Sequence[Standing]) -> bool:
        """Whether it ended before others that still run."""
        return any(not one.has_ended for one in others)


def standing(rank: RankEvents, silent_s: float) -> Standing:
    """Where a rank is.

    Args:
        rank: What it wrote.
        silent_s: Since its last line, by the watcher's clock; its own stack says more where its
            interpreter still runs.
    """
    stack = rank.last("stack")
    quiet_s, frames = _float(stack.get("quiet_s")), stack.get("frames")
    is_fresh = _float(stack.get("t")) - 1e9 * quiet_s >= _moved_ns(rank) - 1e6
    part, line = "in its own code", ""
    if is_fresh and isinstance(frames, list):
        part, line = part_and_line(frames)
        quiet_s += silent_s
    else:
        quiet_s = silent_s
        if silent_s > _FROZEN_S:
            part = "inside a call that holds the interpreter"
    if rank.has_ended:
        line = line_of_exit(rank)
    return Standing(
        rank=rank.rank,
        num_steps=len(rank.steps),
        quiet_s=quiet_s,
        part=part,
        line=line,
        has_ended=rank.has_ended or "failure" in rank.events,
    )


def line_of_exit(rank: RankEvents) -> str:
    """The line by which a rank ended itself; empty where none is known.

    A script that catches the `SystemExit` of one goes on, and its later steps tell so.
    """
    left = rank.last("exit")
    frames = left.get("frames")
    if not isinstance(frames, list) or _float(left.get("t")) < _moved_ns(rank):
        return ""
    _, line = part_and_line(frames)
    return f"{line}, {left.get('call')}" if line else ""


def _moved_ns(rank: RankEvents) -> int:
    """When its last step ended, by its own clock."""
    return rank.steps[-1].ended_ns if rank.steps else 0


def part_and_line(frames: Sequence[Any]) -> tuple[str, str]:
    """Part of the step, and the innermost line of the user's own, of a stack.

    Args:
        frames: (file, line, function), innermost first.

    >>> part_and_line([["/x/lib/python3.11/site-packages/torch/autograd/graph.py", 9,
    ...                 "_engine_run_backward"], ["/home/me/train.py", 7, "<module>"]])
    ('in backward', 'train.py:7')
    """
    known = [one for one in frames if isinstance(one, list) and len(one) == 3]
    part = "in its own code"
    line = ""
    for file, number, function in known:
        if not line and not _LIBRARY.search(str(file)):
            line = f"{str(file).rpartition('/')[2]}:{number}"
            if function != "<module>":
                line += f", {function}"
        if part == "in its own code":
            part = next(
                (
                    words
                    for path, functions, words in _PARTS
                    if re.search(path, str(file))
                    and (not functions or re.search(functions, str(function)))
                ),
                part,
            )
    return part, line


def _float(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
