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
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.planfile import PlannedChoice
from paceline.planning.places.ownership import HOURS_PER_MONTH
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
        process: Its process.
    """

    run: Run
    process: subprocess.Popen[bytes]


def observed_environment(
    run: Run, environment: Mapping[str, str], more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """An environment in which every Python is observed.

    Args:
        run: Where it is written.
        environment: That of the command without.
        more: Further settings of the observer.
    """
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


def start(run: Run, *, more: Mapping[str, str] | None = None) -> Started:
    """Start the command of a run: same terminal, same input and output, same process group.

    Args:
        run: From `new_run`.
        more: Further settings of the observer.

    Raises:
        InvalidInputError: There is no such program, or it cannot be run.
    """
    try:
        process = subprocess.Popen(
            run.command, env=observed_environment(run, os.environ, more), close_fds=False
        )
    except OSError as error:
        run.folder.rmdir()
        raise InvalidInputError(
            f"`{run.command[0]}` cannot be started: {error.strerror}",
            hint="write the command after `--` as you type it in a shell: "
            "`paceline run -- python train.py`",
        ) from None
    started = replace(run, pid=process.pid, process_started=process_started(process.pid))
    write_run(started)
    return Started(run=started, process=process)


def wait(
    started: Started,
    look: Callable[[], object] = lambda: None,
    hear_signal: Callable[[int], object] = lambda _: None,
) -> Run:
    """Wait for the end of a command, look at it meanwhile, and keep how it ended.

    Signals that reach the watcher go to the command; what it does about them is its own business.

    Args:
        started: What runs.
        look: Called twice a second, and once at the end.
        hear_signal: Called with each signal that was passed on.
    """
    process = started.process
    with _signals_to(process, hear_signal):
        while True:
            try:
                status = process.wait(_POLL_S)
                break
            except subprocess.TimeoutExpired:
                look()
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


@contextmanager
def _signals_to(
    process: subprocess.Popen[bytes], hear_signal: Callable[[int], object]
) -> Iterator[None]:
    """Inside, the command has the signals; those that were ignored before stay so (``nohup``)."""

    def pass_on(number: int, _frame: object) -> None:
        if number in _PASSED_ON:
            process.send_signal(number)
            hear_signal(number)

    is_main = threading.current_thread() is threading.main_thread()
    wanted = (*_PASSED_ON, *_LEFT_TO_THE_COMMAND) if is_main else ()
    heard = [one for one in wanted if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, pass_on) for one in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def command_words(command: Sequence[str]) -> tuple[str, ...]:
    """The words of a command.

    Raises:
        InvalidInputError: There is none.
    """
    if not command:
        raise InvalidInputError(
            "there is no command to run",
            hint="write it after `--`: `paceline run -- python train.py`",
        )
    return tuple(command)
