"""Hand a run to another machine, look at it there, fetch what it wrote, and stop it.

All that is known of the run stands in its folder, here and there: whoever submitted it may die,
sleep or move, and the next one who looks goes on from the folder.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.watch.elsewhere.engines import Engine, Word, find_engine
from paceline.watch.elsewhere.start_script import JOB_FILE, OUTPUT_FILE, START
from paceline.watch.folder import Run, now, process_started, read_run_file, write_end, write_run

#: For one word with another machine; an archive takes longer than a question.
_ASK_S, _MOVE_S = 60.0, 600.0
_ASK_EVERY_S = 2.0
_NUM_LAST_LINES = 5
#: In a run's folder once that was sent to a machine which came later than the job.
_SENT_FILE = "sent"
_MAX_FETCHED_BYTES = 2**30
#: Exit status of a job that an engine calls failed and that left none itself.
_FAILED = 1

#: From words, input and seconds to output; raises InvalidInputError.
Program = Callable[[Sequence[str], bytes, float], bytes]


def run_program(words: Sequence[str], given: bytes, timeout_s: float) -> bytes:
    """What a program prints.

    Raises:
        InvalidInputError: It is not here, takes too long, or says no.
    """
    try:
        ended = subprocess.run(
            list(words), input=given, capture_output=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError:
        raise InvalidInputError(
            f"`{words[0]}` is not installed here", hint="run this where the cluster is reached from"
        ) from None
    except subprocess.TimeoutExpired:
        raise InvalidInputError(
            f"`{words[0]}` gave no answer in {timeout_s:.0f} s",
            hint="the job goes on; `paceline runs show` asks again",
        ) from None
    if ended.returncode:
        lines = ended.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise InvalidInputError(
            f"`{words[0]}` ended with status {ended.returncode}: {lines[-1][:200]}",
            hint="try the same command by hand",
        )
    return ended.stdout


def submit(run: Run, *, program: Program = run_program) -> Run:
    """Hand over a run whose folder holds ``start.sh``.

    Raises:
        InvalidInputError: The engine does not take it.
    """
    write_run(replace(run, pid=os.getpid(), process_started=process_started(os.getpid())))
    try:
        submitted = replace(run, job=_submitted(run, find_engine(run.on), program))
    except InvalidInputError:
        write_end(replace(run, status=_FAILED, ended_at=now()))
        raise
    write_run(submitted)
    return submitted


def _submitted(run: Run, engine: Engine, program: Program) -> str:
    there = folder_there(run, engine)
    if not engine.shares_folder and not engine.document:
        program(engine.words(engine.send, folder=there), _packed(run.folder), _MOVE_S)
    values = {"folder": there, "script": f"{there}/{START}", "name": job_name(run)}
    values["document"] = str(run.folder / engine.document)
    said = program(engine.words(engine.submit, **values), b"", engine.submit_s)
    return _job_in(said.decode("utf-8", "replace"), engine)


def look_at(run: Run, *, program: Program = run_program) -> Run:
    """The run as it is there now, with what it wrote fetched; one that ended is kept so.

    Raises:
        InvalidInputError: The engine cannot be asked.
    """
    if not run.on or run.status is not None:
        return run
    engine = find_engine(run.on)
    found = _fetched(run, engine, program)
    if found.status is not None or not found.job:
        return found
    state, word = _state(found, engine, program)
    if state not in ("done", "failed"):
        return found
    last = _fetched(found, engine, program)
    if last.status is not None:
        return last
    ended = replace(last, status=0 if state == "done" else _FAILED, ended_at=now())
    write_end(ended)
    (run.folder / "said.txt").write_text(f"{word}\n", encoding="utf-8")
    return ended


def follow(run: Run, look: Callable[[Run], object], say: Callable[[str], None]) -> Run:
    """Look at a run elsewhere until it ends, and once more then.

    Args:
        run: As it was submitted or found.
        look: Called with the run whenever it was looked at.
        say: Called where it cannot be asked, once each time.
    """
    found, is_reached = run, True
    while found.status is None:
        time.sleep(_ASK_EVERY_S)
        try:
            found, is_reached = look_at(found), True
        except InvalidInputError as error:
            if is_reached:
                say(f"{error}; it is asked again")
            is_reached = False
        look(found)
    return found


def stop(run: Run, *, program: Program = run_program) -> None:
    """End a run as its scheduler would.

    Raises:
        InvalidInputError: It has no number yet, or the engine refuses.
    """
    engine = find_engine(run.on)
    found = _fetched(run, engine, program)
    if not found.job:
        raise InvalidInputError(
            f"run {run.id} has no number at {run.on} yet", hint="try again in a moment"
        )
    for number, template in enumerate(engine.cancel):
        try:
            program(engine.words(template, job=found.job, name=job_name(found)), b"", _ASK_S)
        except InvalidInputError:
            if number == len(engine.cancel) - 1:
                raise


def last_lines(run: Run) -> Sequence[str]:
    """The last lines that a failed run printed there; none of one that did not fail."""
    return printed_lines(run)[-_NUM_LAST_LINES:] if run.state == "failed" else ()


def printed_lines(run: Run) -> list[str]:
    """Whole lines that a run printed there, without what a terminal would act on."""
    try:
        text = (run.folder / OUTPUT_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    lines = ("".join(c for c in line if c.isprintable())[:200] for line in text.splitlines())
    return [line for line in lines if line.strip()]


def check_program(on: str) -> Engine:
    """The engine of ``--on``, whose program is installed here.

    Raises:
        InvalidInputError: It is not.
    """
    engine = find_engine(on)
    if shutil.which(engine.program) is None:
        raise InvalidInputError(
            f"`{engine.program}` is not installed here",
            hint="run this where the cluster is reached from",
        )
    return engine


def job_name(run: Run) -> str:
    """What the engine calls the run."""
    return f"paceline-{run.id}"


def folder_there(run: Run, engine: Engine) -> str:
    """The run's folder where the job runs."""
    return str(run.folder) if engine.shares_folder else engine.home.replace("{run}", run.id)


def _job_in(said: str, engine: Engine) -> str:
    found = re.search(engine.job, said, re.MULTILINE)
    if found is None:
        raise InvalidInputError(
            f"{engine.name} did not say the number of the job: {said.strip()[:200]!r}",
            hint="it may run all the same: `paceline runs show` finds it by its folder",
        )
    return next(group for group in found.groups() if group)


def _fetched(run: Run, engine: Engine, program: Program) -> Run:
    """The run as its folder says, after what is newer there was brought here."""
    if not engine.shares_folder:
        try:
            _moved(run, engine, program)
        except InvalidInputError:
            # Its machine may not be there yet, or no more: then its scheduler knows.
            if not engine.document:
                raise
    found = read_run_file(run.folder) or run
    return found if found.job else replace(found, job=_own_number(run, engine))


def _moved(run: Run, engine: Engine, program: Program) -> None:
    values = {"folder": folder_there(run, engine), "name": job_name(run), "job": run.job}
    sent = run.folder / _SENT_FILE
    if engine.document and engine.send and not sent.exists():
        program(engine.words(engine.send, **values), _packed(run.folder), _MOVE_S)
        sent.touch()
    _unpack(program(engine.words(engine.fetch, **values), b"", _MOVE_S), run.folder)
    found = read_run_file(run.folder)
    if engine.release and found is not None and found.status is not None:
        program(engine.words(engine.release, **values), b"", _ASK_S)


def _own_number(run: Run, engine: Engine) -> str:
    """The number of a job that began, where whoever submitted it died before that was kept."""
    try:
        told = (run.folder / JOB_FILE).read_text(encoding="utf-8").strip()[:80]
    except (OSError, UnicodeDecodeError):
        return ""
    return engine.words([engine.number], name=job_name(run))[0] or told


def _state(run: Run, engine: Engine, program: Program) -> tuple[Word, str]:
    refused: InvalidInputError | None = None
    for question in engine.states:
        try:
            said = program(engine.words(question.ask, job=run.job, name=job_name(run)), b"", _ASK_S)
        except InvalidInputError as error:
            refused = error
            continue
        if found := re.search(question.pattern, said.decode("utf-8", "replace"), re.MULTILINE):
            return engine.state_of(found[1]), found[1]
    raise InvalidInputError(
        f"{engine.name} knows nothing of job {run.job}" + (f": {refused}" if refused else ""),
        hint="it keeps jobs for a while only",
    )


def _packed(folder: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, arcname=".")
    return packed.getvalue()


def _write_member(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """A plain file below ``folder``. Filters of `tarfile` do the same, from Python 3.11.4 on."""
    path, packed = folder / member.name, archive.extractfile(member)
    if not path.resolve().is_relative_to(folder.resolve()) or packed is None:
        raise InvalidInputError(
            f"what came back names a file outside its folder: {member.name}",
            hint="look at what wrote it",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed.read())
    os.utime(path, (member.mtime, member.mtime))


def _unpack(raw: bytes, folder: Path) -> None:
    """Plain files of an archive, written beside what only this side knows.

    Raises:
        InvalidInputError: No archive, one that is too large, or one that names a file elsewhere.
    """
    own = {"run.json", "expectation.json", "notices.jsonl", "billed.json", START}
    try:
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            members = [m for m in archive if m.isfile() and Path(m.name).name not in own]
            if sum(member.size for member in members) > _MAX_FETCHED_BYTES:
                raise InvalidInputError(
                    f"the run wrote more than {_MAX_FETCHED_BYTES // 2**30} GiB into its folder",
                    hint="fetch it by hand",
                )
            for member in members:
                _write_member(archive, member, folder)
    except (tarfile.TarError, EOFError) as error:
        raise InvalidInputError(
            f"what came back is no archive: {error}", hint="`paceline runs show` tries again"
        ) from None
