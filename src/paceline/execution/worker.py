"""Run one worker to its end: its events, its result, its memory, its time-out, its death.

Whatever a worker does (raise, run out of memory, crash, hang, print garbage) becomes a
`WorkerResult`; nothing of it reaches the caller as an exception.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from paceline.execution.machine.sensors import Reading, Sensors
from paceline.execution.processes import end_tree
from paceline.values import dataclass

PROTOCOL = 1
WORKERS = Path(__file__).parent / "engines"

Ending = Literal["ok", "out-of-memory", "unsupported", "raised", "died", "timeout"]
Progress = Callable[[Mapping[str, Any]], None]

_POLL_S = 0.05
_MAX_RESULT_BYTES = 64_000_000
_MAX_MESSAGE_BYTES = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerResult:
    """How a worker ended.

    Attributes:
        ending: In one word.
        reason: One sentence; empty if it ended well.
        details: Its own last lines.
        answer: The result it wrote; empty unless it ended well.
        readings: Of the sensors while it was measuring.
    """

    ending: Ending
    reason: str = ""
    details: str = ""
    answer: Mapping[str, Any]
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a worker may use.

    Attributes:
        timeout_s: Wall time.
        memory_bytes: Main memory of all its processes; None for no cap.
    """

    timeout_s: float
    memory_bytes: float | None = None


def run_worker(
    command: Sequence[str],
    request: Mapping[str, Any],
    *,
    limits: Limits,
    sensors: Sensors | None = None,
    environment: Mapping[str, str] | None = None,
    on_progress: Progress = lambda event: None,
) -> WorkerResult:
    """Start ``command`` on ``request`` and stay with it until it has ended.

    Args:
        command: Program and arguments; the path of the request file is appended.
        request: Sent as JSON; ``output`` is filled in.
        limits: Its time and memory.
        sensors: Read while it measures.
        environment: Added to this process's own.
        on_progress: Correction each progress event.

    Raises:
        KeyboardInterrupt: Passed on after the worker has been ended.
    """
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        request_path, output_path = Path(folder, "request.json"), Path(folder, "result.json")
        request_path.write_text(json.dumps({**request, "output": str(output_path)}))
        with Path(folder, "stderr").open("w+b") as errors:
            process = _start([*command, str(request_path)], errors, environment)
            watch = _Watch(process, limits, sensors, on_progress)
            try:
                watch.until_end()
            finally:
                end_tree(process.pid)
                process.wait()
                watch.close()
            return _result(watch, process.returncode, output_path, _last_lines(errors))


def _start(
    command: Sequence[str], errors: IO[bytes], environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )


class _Watch:
    """The loop beside a running worker."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        limits: Limits,
        sensors: Sensors | None,
        on_progress: Progress,
    ) -> None:
        self.process = process
        self.limits = limits
        self.sensors = sensors or Sensors(None)
        self.on_progress = on_progress
        self.started_s = time.monotonic()
        self.readings: list[Reading] = []
        self.peak_resident_bytes = 0.0
        self.error: Mapping[str, Any] | None = None
        self.verdict: tuple[Ending, str] | None = None
        self._is_measuring = False
        self._events: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_events, daemon=True)
        self._reader.start()

    @property
    def wall_s(self) -> float:
        """Since the worker was started."""
        return time.monotonic() - self.started_s

    def until_end(self) -> None:
        """Return when the worker has ended, or must be ended."""
        while self.verdict is None:
            try:
                event = self._events.get(timeout=_POLL_S)
            except queue.Empty:
                if self.process.poll() is not None and not self._reader.is_alive():
                    return
                self._look()
                continue
            if event is None:
                self._wait_for_exit()
                return
            self._take(event)

    def close(self) -> None:
        """Release the pipe once nobody writes to it any more."""
        self._reader.join(timeout=2.0)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def _take(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == "error" and self.error is None:
            self.error = event
        elif event.get("event") == "progress":
            if event.get("stage") == "measuring":
                self._is_measuring = True
                self.readings.append(self.sensors.read(self.process.pid))
            self.on_progress(event)
        elif event.get("event") == "done":
            self._is_measuring = False

    def _look(self) -> None:
        reading = self.sensors.read(self.process.pid)
        self.peak_resident_bytes = max(self.peak_resident_bytes, reading.resident_bytes)
        if self._is_measuring:
            self.readings.append(reading)
        limit_bytes = self.limits.memory_bytes
        if limit_bytes is not None and reading.resident_bytes > limit_bytes:
            used, cap = reading.resident_bytes / 1e9, limit_bytes / 1e9
            text = f"its processes held {used:.1f} GB of main memory, above the cap of {cap:.1f} GB"
            self.verdict = ("out-of-memory", text)
        elif self.wall_s > self.limits.timeout_s:
            self.verdict = ("timeout", f"no end after {self.limits.timeout_s:.0f} s")

    def _wait_for_exit(self) -> None:
        """The worker closed its output: it has until its time-out to end."""
        while self.verdict is None and self.process.poll() is None:
            time.sleep(_POLL_S / 5)
            self._look()

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = _parse_event(line)
            if event is not None:
                self._events.put(event)
        self._events.put(None)


def _parse_event(line: bytes) -> Mapping[str, Any] | None:
    """An event, or None for whatever else was printed."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _result(watch: _Watch, status: int, output: Path, stderr: str) -> WorkerResult:
    ending, reason, details = _ending(watch, status, output, stderr)
    answer = _answer(output) if ending == "ok" else {}
    if ending == "ok" and not answer:
        ending, reason = "died", "it ended without a readable result"
    return WorkerResult(
        ending=ending,
        reason=reason,
        details=details or stderr,
        answer=answer,
        readings=tuple(watch.readings),
    )


def _ending(watch: _Watch, status: int, output: Path, stderr: str) -> tuple[Ending, str, str]:
    if watch.verdict is not None:
        return (*watch.verdict, "")
    if watch.error is not None:
        return _told_error(watch.error)
    if status == 0 and output.exists():
        return "ok", "", ""
    if _is_oom_death(watch, status, stderr):
        return "out-of-memory", f"{_death(status)}: {_last_line(stderr)}", ""
    return "died", f"{_death(status)}: {_last_line(stderr) or 'it said nothing'}", ""


def _told_error(error: Mapping[str, Any]) -> tuple[Ending, str, str]:
    kind, message = error.get("kind"), str(error.get("message", ""))
    endings: dict[object, Ending] = {
        "oom": "out-of-memory",
        "unsupported": "unsupported",
        "no-framework": "unsupported",
    }
    return endings.get(kind, "raised"), message, str(error.get("details", ""))


def _is_oom_death(watch: _Watch, status: int, stderr: str) -> bool:
    """Killed while it held most of its cap, or aborted by a library that could not allocate."""
    cap_bytes = watch.limits.memory_bytes or float("inf")
    was_large = watch.peak_resident_bytes > 0.7 * cap_bytes
    signs = ("bad_alloc", "out of memory", "annot allocate memory", "MemoryError")
    return (status == -signal.SIGKILL and was_large) or any(sign in stderr for sign in signs)


def _death(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _answer(output: Path) -> Mapping[str, Any]:
    try:
        if output.stat().st_size > _MAX_RESULT_BYTES:
            return {}
        answer = json.loads(output.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) and answer else {}


def _last_lines(file: IO[bytes]) -> str:
    file.seek(0, os.SEEK_END)
    file.seek(max(0, file.tell() - _MAX_MESSAGE_BYTES))
    return file.read().decode(errors="replace").strip()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
