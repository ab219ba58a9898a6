"""Run folders: one per watched command, which holds all that is known of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from paceline.errors import InvalidInputError, UnknownNameError
from paceline.values import dataclass
from paceline.writing import make_folder, user_folder, write_whole

#: Where runs are kept, where the user sets it.
FOLDER_VARIABLE = "PACELINE_RUNS"
_RUN_FILE = "run.json"
END_FILE = "end.json"
_BILLED_FILE = "billed.json"
_NUM_LETTERS = 4

State = Literal["running", "done", "failed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A command that was started under watch.

    Attributes:
        id: Name of its folder.
        folder: Where its events are.
        command: As typed.
        started_at: ISO 8601 in UTC.
        pid: Process of the command; None before it runs.
        process_started: When the kernel says that the process began, in its ticks: a process
            number alone may mean another one later. None where it is not known.
        status: Exit status; minus the signal that ended it; None while it runs, or where its
            watcher did not see its end.
        ended_at: ISO 8601 in UTC; None likewise.
        on: What runs it elsewhere, as ``--on`` says; empty for this machine.
        job: Its number there; empty before it is known.
    """

    id: str
    folder: Path
    command: tuple[str, ...]
    started_at: str
    directory: str = ""
    pid: int | None = None
    process_started: int | None = None
    status: int | None = None
    ended_at: str | None = None
    on: str = ""
    job: str = ""

    @property
    def is_alive(self) -> bool:
        """Whether its process runs on this machine, or its end elsewhere was not seen yet.

        One that is not handed over yet lives while the process does that hands it over.
        """
        if self.on and (self.job or self.pid is None):
            return self.status is None
        if self.pid is None or self.status is not None:
            return False
        return process_started(self.pid) == self.process_started is not None

    @property
    def state(self) -> State:
        """As a word; unknown where nobody saw how it ended."""
        if self.status is not None:
            return "done" if self.status == 0 else "failed"
        return "running" if self.is_alive else "unknown"


def runs_folder() -> Path:
    """Where runs are kept: ``PACELINE_RUNS``, else the user's data folder."""
    return user_folder("data", "runs", variable=FOLDER_VARIABLE)


def new_run(command: Sequence[str], *, folder: Path | None = None) -> Run:
    """A run with a folder of its own, not started yet.

    Args:
        command: Words of the command.
        folder: Of all runs; `runs_folder` if None.

    Raises:
        InvalidInputError: The folder cannot be written.
    """
    parent = folder or runs_folder()
    make_folder(parent)
    while True:
        name = secrets.token_hex(_NUM_LETTERS // 2)
        own = parent / name
        try:
            own.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise InvalidInputError(
                f"no run can be kept in `{parent}`: {error.strerror}",
                hint=f"make room there, or set {FOLDER_VARIABLE} to another folder",
            ) from None
        return Run(
            id=name,
            folder=own,
            command=tuple(command),
            started_at=now(),
            directory=str(Path.cwd()),
        )


def write_run(run: Run) -> None:
    """Keep how a run was started."""
    facts = {
        "command": run.command,
        "started_at": run.started_at,
        "directory": run.directory,
        "pid": run.pid,
        "process_started": run.process_started,
        "on": run.on,
        "job": run.job,
    }
    write_whole(run.folder / _RUN_FILE, json.dumps(facts, indent=1) + "\n")


def write_end(run: Run) -> None:
    """Keep how a run ended."""
    facts = {"status": run.status, "ended_at": run.ended_at}
    write_whole(run.folder / END_FILE, json.dumps(facts) + "\n")


def write_billed(run: Run, usd: float) -> None:
    """Keep what the invoice says of a run."""
    write_whole(run.folder / _BILLED_FILE, json.dumps({"usd": usd}) + "\n")


def billed_usd(run: Run) -> float | None:
    """What the invoice says of a run; None where nobody said it."""
    usd = _mapping(run.folder / _BILLED_FILE).get("usd")
    return float(usd) if isinstance(usd, (int, float)) else None


def read_run_file(folder: Path) -> Run | None:
    """The run of a folder; None if the folder holds none."""
    start, end = _mapping(folder / _RUN_FILE), _mapping(folder / END_FILE)
    command = start.get("command")
    if not isinstance(command, list):
        return None
    return Run(
        id=folder.name,
        folder=folder,
        command=tuple(map(str, command)),
        started_at=str(start.get("started_at", "")),
        directory=str(start.get("directory", "")),
        pid=_whole(start.get("pid")),
        process_started=_whole(start.get("process_started")),
        status=_whole(end.get("status")),
        ended_at=str(end["ended_at"]) if "ended_at" in end else None,
        on=str(start.get("on", "")),
        job=str(start.get("job", "")),
    )


def runs_in(folder: Path | None = None) -> tuple[Run, ...]:
    """All runs, the newest first."""
    parent = folder or runs_folder()
    found = [read_run_file(one) for one in parent.iterdir()] if parent.is_dir() else []
    return tuple(sorted(filter(None, found), key=lambda run: run.started_at, reverse=True))


def find_run(name: str | None = None, folder: Path | None = None) -> Run:
    """The run of that name, or of the only one that begins so; the newest without a name.

    Raises:
        UnknownNameError: None, or several.
        InvalidInputError: No run is kept at all.
    """
    runs = runs_in(folder)
    if not runs:
        raise InvalidInputError(
            f"no run is kept in `{folder or runs_folder()}`",
            hint="start one: `paceline run -- python train.py`",
        )
    if name is None:
        return runs[0]
    found = [run for run in runs if run.id == name] or [r for r in runs if r.id.startswith(name)]
    if len(found) != 1 or not name:
        raise UnknownNameError.from_name(
            "run", name, [run.id for run in runs], command="paceline runs list"
        )
    return found[0]


def now() -> str:
    """This moment, as ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def process_started(pid: int) -> int | None:
    """When the kernel says that a process began, in its ticks; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    words = text.rpartition(")")[2].split()
    # Field 3 is the state: a process that has ended and was not waited for runs no more.
    return None if words[0] in "ZX" else int(words[19])


def _mapping(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
