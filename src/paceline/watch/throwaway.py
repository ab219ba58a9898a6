"""A user's command run for what is seen in it: nobody reads what it prints, and it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from paceline.errors import InvalidInputError, WorkerError
from paceline.watch.command import observed_environment
from paceline.watch.folder import Run, process_started, write_run

_OUTPUT = "output.txt"
_POLL_S, _GRACE_S = 0.05, 5.0
_NUM_LAST_LINES = 12


def start_throwaway(
    run: Run, settings: Mapping[str, str], *, example: str = ""
) -> subprocess.Popen[bytes]:
    """Start the command of a run under the observer; what it writes goes to a file of its folder.

    ``example``: a call that works, for the hint.

    Raises:
        InvalidInputError: No such program.
    """
    try:
        with (run.folder / _OUTPUT).open("wb") as output:
            process = subprocess.Popen(
                run.command,
                env=observed_environment(run, os.environ, settings),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
    except OSError as error:
        shown = f": `{example}`" if example else ""
        raise InvalidInputError(
            f"`{run.command[0]}` cannot be started: {error.strerror}",
            hint=f"write the command after `--` as you type it in a shell{shown}",
        ) from None
    write_run(replace(run, pid=process.pid, process_started=process_started(process.pid)))
    return process


def end_throwaway(process: subprocess.Popen[bytes]) -> None:
    """End the command and whatever it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
            if number == signal.SIGTERM:
                time.sleep(_POLL_S)


def failed_before(run: Run, status: int, what: str) -> WorkerError:
    """That the command failed by itself, with its last lines; ``what`` had not happened yet."""
    lines = (run.folder / _OUTPUT).read_text(encoding="utf-8", errors="replace").splitlines()
    return WorkerError(
        f"the command ended with status {status} before {what}",
        hint="its last lines are above; run it alone to see why",
        details="\n".join(lines[-_NUM_LAST_LINES:]),
    )
