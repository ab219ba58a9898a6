"""What the observer wrote: the lines of a run folder, by process; damaged ones are counted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

#: Of the lines that the observer writes.
VERSION = 1
_NUM_FIELDS = 10


class StepRow(NamedTuple):
    """One step of one optimizer in one process; times of its own clock.

    Attributes:
        optimizer: Number of the optimizer in its process.
        ended_ns: When its update was done.
        wait_ns: Since the step before, in waiting for batches.
        forward_ns: From the last batch to the backward pass.
        backward_ns: In backward passes, up to the update or the next batch.
        update_ns: In the update; 0 where it holds all the rest and has no beginning of its own.
        num_batches: Taken from a loader.
        num_backwards: Calls of ``backward``.
        losses: What they began with; NaN where a value is none, infinite where it overflowed.
    """

    optimizer: int
    ended_ns: int
    wait_ns: int
    forward_ns: int
    backward_ns: int
    update_ns: int
    num_batches: int
    num_backwards: int
    losses: tuple[float, ...]


@dataclass(slots=True, kw_only=True)
class RankEvents:
    """What one process wrote so far; it grows while the run does.

    Attributes:
        path: Its file.
        begin: Its first line.
        steps: One row per optimizer step.
        events: All other lines, by kind, in their order.
        num_damaged: Lines that could not be read.
        offset: Bytes read so far.
    """

    path: Path
    begin: Mapping[str, Any] = field(default_factory=dict)
    steps: list[StepRow] = field(default_factory=list)
    events: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    num_damaged: int = 0
    offset: int = 0

    @property
    def rank(self) -> int:
        """Of the process in its group."""
        return self._last("rank", "rank", 0)

    @property
    def world_size(self) -> int:
        """Of its group."""
        return self._last("rank", "world_size", 1)

    @property
    def crowded_frac(self) -> float | None:
        """Share of its time that the training thread stood in line for a core; None if unknown."""
        seen = [one for one in self.events.get("cores", []) if _is_count(one)]
        if len(seen) < 2:
            return None
        ran = seen[-1]["ran_ns"] - seen[0]["ran_ns"]
        stood = seen[-1]["stood_ns"] - seen[0]["stood_ns"]
        return stood / (ran + stood) if ran + stood > 0 else None

    @property
    def has_ended(self) -> bool:
        """Whether it said that it ends."""
        return "end" in self.events

    def last(self, kind: str) -> Mapping[str, Any]:
        """The newest event of a kind; empty if there is none."""
        return self.events.get(kind, [{}])[-1]

    def _last(self, kind: str, key: str, otherwise: int) -> int:
        value = self.last(kind).get(key, self.begin.get(key, otherwise))
        return value if isinstance(value, int) else otherwise

    def read_more(self) -> bool:
        """Read what was written since; whether there was anything.

        A last line without an end is left for the next time.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        self.take(whole.split(b"\n")[:-1])
        return bool(whole)

    def take(self, lines: Iterable[bytes]) -> None:
        """Take lines in."""
        for line in lines:
            value = _value(line)
            if (step := _step(value)) is not None:
                self.steps.append(step)
            elif isinstance(value, dict) and isinstance(value.get("event"), str):
                self._take_event(value)
            else:
                self.num_damaged += 1

    def _take_event(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "begin":
            self.begin = event
        self.events.setdefault(str(event["event"]), []).append(event)


class RunEvents:
    """All processes of a run folder, read as they grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._by_path: dict[Path, RankEvents] = {}

    def read_more(self) -> bool:
        """Read what was written since; whether there was anything."""
        for path in sorted(self.folder.glob("rank-*.jsonl")):
            self._by_path.setdefault(path, RankEvents(path=path))
        return sum(one.read_more() for one in self._by_path.values()) > 0

    @property
    def ranks(self) -> tuple[RankEvents, ...]:
        """By rank, then by what they wrote first."""
        found = self._by_path.values()
        return tuple(sorted(found, key=lambda one: (one.rank, _time(one.begin))))

    @property
    def training(self) -> tuple[RankEvents, ...]:
        """Those that train."""
        return tuple(one for one in self.ranks if one.steps)

    def failures(self) -> tuple[str, ...]:
        """What ended observers, as they said it."""
        paths = sorted(self.folder.glob("observer-*.txt"))
        return tuple(p.read_text(encoding="utf-8", errors="replace").strip() for p in paths)


def read_run(folder: Path) -> RunEvents:
    """All that was written into a run folder so far."""
    events = RunEvents(folder)
    events.read_more()
    return events


def rank_names(ranks: Sequence[RankEvents]) -> tuple[str, ...]:
    """Ranks as printed, with their machines where they run on several."""
    hosts = [one.begin.get("host") for one in ranks]
    are_apart = len(set(hosts)) > 1
    return tuple(
        f"rank {one.rank}" + (f" on {host}" if are_apart else "")
        for one, host in zip(ranks, hosts, strict=True)
    )


def _is_count(event: Mapping[str, Any]) -> bool:
    return all(type(event.get(name)) is int for name in ("ran_ns", "stood_ns"))


def _time(begin: Mapping[str, Any]) -> float:
    value = begin.get("time_ns")
    return float(value) if isinstance(value, int) else math.inf


def _value(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _step(value: Any) -> StepRow | None:
    """The row that a line holds; None if it holds none."""
    if not isinstance(value, list) or len(value) != _NUM_FIELDS or value[0] != "step":
        return None
    *numbers, written = value[1:]
    if not all(type(one) is int for one in numbers) or not isinstance(written, list):
        return None
    read = tuple(_loss(one) for one in written)
    if None in read:
        return None
    losses = tuple(one for one in read if one is not None)
    return StepRow._make([*numbers, losses])


def _loss(value: Any) -> float | None:
    if value in ("nan", "inf"):
        return float(value)
    return float(value) if isinstance(value, (int, float)) else None
