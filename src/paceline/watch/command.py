"""Start a command with the observer on its path, and end as it ends."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.planfile import PlannedChoice
from paceline.planning.places.ownership import HOURS_PER_MONTH
from paceline.values import dataclass
from paceline.watch.folder import Run, now, process_started, write_end, write_run

#: Folder that stands on the path of the command; the observer is above it.
HOOK = Path(__file__).parent / "observer" / "hook"
#: What the observer reads to know where to write.
FOLDER_VARIABLE = "PACELINE_RUN_FOLDER"
#: What `paceline.loop.parallelize` reads of the plan's choice, as JSON.
CHOICE_VARIABLE = "PACELINE_CHOICE"
#: What `paceline.loop.resume` reads: how often the place interrupts what it runs.
RATE_VARIABLE = "PACELINE_INTERRUPTIONS_PER_HOUR"
_ALMOST_SURE = 0.999
#: Fields of a choice that a training loop acts on.
_CHOSEN = (
    "strategy", "batch_per_device", "microbatches", "global_batch", "precision", "compiler",
    "checkpointing", "channels_last",
)  # fmt: skip
_POLL_S = 0.5
#: What a terminal or a scheduler sends to the watcher, and the command should have.
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: What a terminal sends to both: the command decides what it means.
_LEFT_TO_THE_COMMAND = (signal.SIGINT, signal.SIGQUIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A command that runs.

    Attributes:
        run: Where it is kept.
        came: Signals that were passed on to it and that nobody was told of yet.
    """

    run: Run
    process: subprocess.Popen[bytes]
    came: list[int] = field(default_factory=list)


def observed_environment(
    run: Run, environment: Mapping[str, str], more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """An environment in which every Python is observed."""
    before = environment.get("PYTHONPATH")
    path = os.pathsep.join(filter(None, (str(HOOK), before)))
    named = {"PYTHONPATH": path, FOLDER_VARIABLE: str(run.folder)}
    return {**environment, **named, **(more or {})}


def choice_setting(choice: PlannedChoice) -> dict[str, str]:
    """What a training loop in the command may read of the plan: how to run, no prices."""
    settings = {CHOICE_VARIABLE: json.dumps({name: getattr(choice, name) for name in _CHOSEN})}
    per_hour = _interruptions_per_hour(choice)
    return settings if per_hour is None else {**settings, RATE_VARIABLE: f"{per_hour:.3g}"}


def _interruptions_per_hour(choice: PlannedChoice) -> float | None:
    """How often one of the machines is taken back, at a constant rate; None where unknown."""
    band = choice.place.interruption_frac_per_month
    if band is None or sum(band) <= 0.0:
        return None
    middle_frac = min(sum(band) / 2, _ALMOST_SURE)
    return -math.log1p(-middle_frac) / HOURS_PER_MONTH * choice.place.num_nodes


@contextmanager
def running(run: Run, *, more: Mapping[str, str] | None = None) -> Iterator[Started]:
    """Start the command of a run: same terminal, same input and output, same process group.

    Inside, signals that reach the watcher go to the command; what it does about them is its own
    business. The handlers stand before the command does: one that comes earlier waits for it.

    Raises:
        InvalidInputError: There is no such program, or it cannot be run.
    """
    with _signals() as signals:
        process = _process(run, more)
        started = replace(run, pid=process.pid, process_started=process_started(process.pid))
        write_run(started)
        signals.pass_to(process)
        yield Started(run=started, process=process, came=signals.came)


def _process(run: Run, more: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            run.command, env=observed_environment(run, os.environ, more), close_fds=False
        )
    except OSError as error:
        run.folder.rmdir()
        raise InvalidInputError(
            f"`{run.command[0]}` cannot be started: {error.strerror}",
            hint="write the command after `--` as you type it in a shell: "
            "`paceline run -- python train.py`",
        ) from None


def wait(
    started: Started,
    look: Callable[[], object] = lambda: None,
    hear_signal: Callable[[int], object] = lambda _: None,
) -> Run:
    """Wait for the end of a command, look at it meanwhile, and keep how it ended.

    Args:
        started: What runs.
        look: Called twice a second, and once at the end.
        hear_signal: Called before a look with each signal that was passed on since the last.
    """
    status = None
    while status is None:
        with suppress(subprocess.TimeoutExpired):
            status = started.process.wait(_POLL_S)
        while started.came:
            hear_signal(started.came.pop(0))
        look()
    ended = replace(started.run, status=status, ended_at=now())
    write_end(ended)
    return ended


def end_like(status: int) -> int:
    """The exit status to end with; a signal that ended the command ends this process too."""
    if status >= 0:
        return status
    number = -status
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


class _Signals:
    """Signals that the watcher takes for its command, and keeps until there is one."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self._early: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    def take(self, number: int, _frame: object) -> None:
        """Pass a signal on, now or once the command is there."""
        if number not in _PASSED_ON:
            return
        self.came.append(number)
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)

    def pass_to(self, process: subprocess.Popen[bytes]) -> None:
        """The command that has them from now on, with those that came before it."""
        self._process = process
        for number in self._early:
            process.send_signal(number)


@contextmanager
def _signals() -> Iterator[_Signals]:
    """Inside, signals are taken; those that were ignored before stay so (``nohup``)."""
    signals = _Signals()
    is_main = threading.current_thread() is threading.main_thread()
    wanted = (*_PASSED_ON, *_LEFT_TO_THE_COMMAND) if is_main else ()
    heard = [one for one in wanted if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, signals.take) for one in heard}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def command_words(command: Sequence[str], *, verb: str = "run") -> tuple[str, ...]:
    """The words of a command.

    Args:
        command: As typed after ``--``.
        verb: Of paceline, that was to start it.

    Raises:
        InvalidInputError: There is none.
    """
    if not command:
        raise InvalidInputError(
            "there is no command to run",
            hint=f"write it after `--`: `paceline {verb} -- python train.py`",
        )
    return tuple(command)
