"""Look at a run while it goes: read what was written, expect, and say what is to be said."""

from __future__ import annotations

import json
import platform
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from paceline.catalog.load import load_catalog
from paceline.errors import PacelineError
from paceline.execution.machine.probe import match_device, probe_host
from paceline.execution.machine.sensors import Reading, Sensors
from paceline.planfile import Interval
from paceline.watch.captured import CAPTURE_FILE, CapturedJob, read_capture
from paceline.watch.events import RankEvents, RunEvents
from paceline.watch.expected import Expectation
from paceline.watch.folder import Run, billed_usd, process_started
from paceline.watch.guards import Limits, Look, Notice, idle, notices
from paceline.watch.verdict import RunSummary, summarise
from paceline.writing import write_whole

_EXPECTATION_FILE = "expectation.json"
_NOTICES_FILE = "notices.jsonl"
#: What stands in its place where nothing is expected: why.
_WHY = "why_unpredicted"
#: Without a line of any process after so long, the observer is not there.
_UNSEEN_S = 60.0

#: Share of a core, and of a GPU, below which nothing is done.
_IDLE_FRAC = 0.02
#: Between two looks at what devices do.
_BETWEEN_READINGS_S = 1.0

#: From a job, the tracer's report and what the first rank said of its device to what it should do.
Expect = Callable[[CapturedJob, Mapping[str, Any], Mapping[str, Any]], Expectation]
Say = Callable[[str], None]


class IdleWatch:
    """How long the devices of a job have done nothing."""

    def __init__(self, sensors: Sensors, pid: int) -> None:
        self._sensors, self._pid = sensors, pid
        self._last: Reading | None = None
        self._busy_at_s = 0.0
        self.is_gpu = False

    def idle_s(self) -> float:
        """Seconds since something was last done."""
        now = time.monotonic()
        if self._last is not None and now - self._last.at_s < _BETWEEN_READINGS_S:
            return self._last.at_s - self._busy_at_s
        before, self._last = self._last, self._sensors.read(self._pid)
        self.is_gpu = bool(self._last.gpus)
        if before is None or is_busy(before, self._last):
            self._busy_at_s = self._last.at_s
        return self._last.at_s - self._busy_at_s


def is_busy(before: Reading, after: Reading) -> bool:
    """Whether a GPU ran something, or without GPUs the processes used a core."""
    if after.gpus:
        told = [one.utilization_frac for one in after.gpus]
        return any(one is None or one > _IDLE_FRAC for one in told)
    return after.cpu_s - before.cpu_s > _IDLE_FRAC * (after.at_s - before.at_s)


class Watcher:
    """What is seen and was said of one run.

    Args:
        run: Which.
        expect: Makes the expectation of a captured job; raises where there is none.
        say: Told each line.
        expectation: What is expected already, from a plan.
        limits: What is to be kept.
        idle_watch: Says how long devices have done nothing; None where nobody asks.

    Attributes:
        is_to_end: Whether the job is to be ended, because it does nothing.
    """

    def __init__(
        self,
        run: Run,
        *,
        expect: Expect,
        say: Say,
        expectation: Expectation | None = None,
        limits: Limits | None = None,
        idle_watch: IdleWatch | None = None,
    ) -> None:
        self.run = run
        self.is_to_end = False
        self._idle_watch = idle_watch
        self._step_seen: tuple[int, float] = (0, time.monotonic())
        self.events = RunEvents(run.folder)
        self.expectation = expectation
        self.why_unpredicted = ""
        self.job: CapturedJob | None = None
        self._expect = expect
        self._say = say
        self._limits = limits or Limits()
        self._has_job = False
        self._signal = ""
        self._said: set[str] = set()
        self._began_s = time.monotonic()
        #: Of each file, how far it was read when it last grew, and when that was.
        self._heard: dict[Path, tuple[int, float]] = {}
        if expectation is not None:
            self._keep_expectation()

    def hear_signal(self, number: int) -> None:
        """A signal came and was passed on to the command; it is told at the next look."""
        self._signal = self._signal or signal.Signals(number).name

    def look(self) -> None:
        """Read on, and say what is new."""
        self.events.read_more()
        self._hear()
        self._take_job()
        moment = Look(
            ranks=self.events.ranks,
            elapsed_s=time.monotonic() - self._began_s,
            silent_s=[self._silent_s(one) for one in self.events.ranks],
            job=self.job,
            expectation=self.expectation,
            limits=self._limits,
            signal=self._signal,
            gone=[self._is_gone(one) for one in self.events.ranks],
        )
        for notice in notices(moment):
            self._tell(notice)
        self._look_for_idleness()
        if not self.events.ranks and moment.elapsed_s > _UNSEEN_S and "unseen" not in self._said:
            self._said.add("unseen")
            self._say(
                f"no loop of PyTorch or Keras was seen in {_UNSEEN_S:.0f} s: is it inside a "
                "container, or started by `python -I`?"
            )

    def _look_for_idleness(self) -> None:
        limit_s = self._limits.idle_s
        if self._idle_watch is None or limit_s is None or self.is_to_end:
            return
        num_steps = sum(len(one.steps) for one in self.events.ranks)
        if num_steps != self._step_seen[0]:
            self._step_seen = (num_steps, time.monotonic())
        idle_s = min(self._idle_watch.idle_s(), time.monotonic() - self._step_seen[1])
        if idle_s >= limit_s:
            self.is_to_end = True
            self._tell(idle(idle_s, num_steps, is_gpu=self._idle_watch.is_gpu))

    def summary(self, run: Run) -> RunSummary:
        """The verdict on the run as it is now."""
        return summarise(
            run,
            self.events,
            expectation=self.expectation,
            why_unpredicted=self.why_unpredicted,
            job=None if self.job is None else self.job.words,
        )

    def _hear(self) -> None:
        """Note when each process was last heard of; a line about its stack says it stands."""
        for one in self.events.ranks:
            if self._heard.get(one.path, (-1, 0.0))[0] != one.offset:
                self._heard[one.path] = (one.offset, time.monotonic())

    def _silent_s(self, rank: RankEvents) -> float:
        return time.monotonic() - self._heard[rank.path][1]

    def _is_gone(self, rank: RankEvents) -> bool:
        """Whether a rank of this machine has no process any more."""
        pid, host = rank.begin.get("pid"), rank.begin.get("host")
        if type(pid) is not int or host != platform.node() or self.run.on:
            return False
        return process_started(pid) is None

    def _take_job(self) -> None:
        if self._has_job or not (self.run.folder / CAPTURE_FILE).exists():
            return
        device = next((d for one in self.events.ranks if (d := one.last("device"))), None)
        if device is None:
            return
        self._has_job = True
        self.job, report = read_capture(self.run.folder)
        if self.job is None:
            self.why_unpredicted = "its model was not found in its first steps"
            return
        if self.expectation is None:
            try:
                self.expectation = self._expect(self.job, report, device)
            except PacelineError as error:
                self.why_unpredicted = str(error)
            self._keep_expectation()
        self._say(self._first_line(device))
        if self.expectation is None:
            self._say(f"  not predicted: {self.why_unpredicted}")

    def _first_line(self, device: Mapping[str, Any]) -> str:
        assert self.job is not None
        from paceline.units import format_bytes, format_duration

        read = " · ".join(f"{name} {value}".strip() for name, value in self.job.words.items())
        expected = self.expectation
        if expected is None:
            return read
        where = _device_name(device) if expected.planned else ""
        unplanned = expected.unplanned(self.job, where)
        words = [read, *([f"not as planned: {unplanned}"] if unplanned else [])]
        if (step := expected.step_s) is not None:
            words.append(
                f"predicted {format_duration(step.mid)} a step "
                f"({format_duration(step.low)} to {format_duration(step.high)})"
            )
        if expected.memory_bytes is not None:
            words.append(f"{format_bytes(expected.memory_bytes.mid)}")
        return " · ".join(words)

    def _tell(self, notice: Notice) -> None:
        if notice.kind in self._said:
            return
        self._said.add(notice.kind)
        with (self.run.folder / _NOTICES_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(notice), ensure_ascii=False) + "\n")
        at = "" if notice.step is None else f"step {notice.step:,}: "
        self._say(f"{at}{notice.text}")
        self._say(f"  {notice.evidence}")
        self._say(f"  {notice.remedy}")

    def _keep_expectation(self) -> None:
        kept = asdict(self.expectation) if self.expectation else {_WHY: self.why_unpredicted}
        write_whole(self.run.folder / _EXPECTATION_FILE, json.dumps(kept) + "\n")


def _device_name(device: Mapping[str, Any]) -> str:
    """Where a rank runs, as the catalogue calls it; empty for a device that it does not have."""
    devices = load_catalog().devices
    if device.get("kind") != "cpu":
        found = match_device(str(device.get("name")), device.get("memory_bytes"), devices)
        return found.name if found else ""
    cpu = probe_host().cpu_name
    return found.name if (found := match_device(cpu, None, devices)) else cpu


def read_expectation(folder: Path) -> Expectation | None:
    """What was expected of a run; None where nothing was, or nothing can be read."""
    try:
        found = json.loads((folder / _EXPECTATION_FILE).read_text(encoding="utf-8"))
        known = {one.name for one in fields(Expectation)}
        values = {
            key: value if key == "planned" else _interval(value)
            for key, value in found.items()
            if key in known
        }
        return Expectation(**values)
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _why_unpredicted(folder: Path) -> str:
    """Why nothing was expected of a run, as it was kept."""
    try:
        found = json.loads((folder / _EXPECTATION_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = None
    why = found.get(_WHY) if isinstance(found, dict) else None
    return why if isinstance(why, str) else "nothing was expected of it"


def _interval(value: Any) -> Any:
    return Interval(**value) if isinstance(value, dict) else value


def read_notices(folder: Path) -> Sequence[Notice]:
    """What was said of a run; lines that cannot be read are left out."""
    try:
        data = (folder / _NOTICES_FILE).read_bytes()
    except OSError:
        return ()
    found = []
    for line in data.split(b"\n"):
        try:
            found.append(Notice(**json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            continue
    return tuple(found)


def summary_of(run: Run) -> RunSummary:
    """What is known of a run, from its folder alone."""
    events = RunEvents(run.folder)
    events.read_more()
    job, _ = read_capture(run.folder)
    return summarise(
        run,
        events,
        expectation=read_expectation(run.folder),
        why_unpredicted=_why_unpredicted(run.folder),
        job=None if job is None else job.words,
        billed_usd=billed_usd(run),
        notices=[f"{one.text}; {one.remedy}" for one in read_notices(run.folder)],
    )
