"""Run calls in this process, in a folder of their own, one after the other."""

from __future__ import annotations

import contextlib
import csv
import gc
import io
import json
import os
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from calls.answers import FILE_NAME, Answer, to_line
from calls.listed import HERE

#: A bug of the package, not a mistake of the user: the traceback is the message.
RAISED = -1
Main = Callable[[Sequence[str]], int]


def run_calls(calls: Sequence[str], *, source: Path, folder: Path) -> int:
    """Write the answer of each call into the folder; 1 where one raised.

    Args:
        calls: As typed behind ``paceline``.
        source: Folder that holds the package `paceline`.
        folder: Where the answers go.
    """
    main = _main_of(source)
    folder.mkdir(parents=True, exist_ok=True)
    raised = []
    with (folder / FILE_NAME).open("w", encoding="utf-8") as file, _work_folder() as work:
        for call in calls:
            answer = _answer(main, call, work)
            file.write(to_line(answer))
            raised += [answer] if answer.status == RAISED else []
    for answer in raised:
        print(f"{answer.call}\n   {answer.message[-1]}")
    print(
        f"{len(calls)} calls, {len(raised)} raised, {time.process_time():.0f} s of processor time"
    )
    return 1 if raised else 0


def _main_of(source: Path) -> Main:
    sys.path.insert(0, str(source))
    cli = import_module("paceline.app.main")
    if source not in Path(str(cli.__file__)).parents:
        raise SystemExit(f"another paceline was imported before: {cli.__file__}")
    main: Main = cli.main
    return main


@contextlib.contextmanager
def _work_folder() -> Iterator[Path]:
    """A folder with the inputs in it; caches of the user stay as they are."""
    with tempfile.TemporaryDirectory() as name:
        work, before = Path(name), Path.cwd()
        (work / "files").symlink_to(HERE / "files")
        (work / "examples").symlink_to(HERE.parents[1] / "examples")
        os.environ["XDG_CACHE_HOME"] = str(work / "cache")
        os.environ.pop("COLUMNS", None)
        os.chdir(work)
        try:
            yield work
        finally:
            os.chdir(before)


def _answer(main: Main, call: str, work: Path) -> Answer:
    words = shlex.split(call)
    out, err = io.StringIO(), io.StringIO()
    start_s = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = _status(main, words if _is_text(words) else [*words, "--json"])
    cpu_s = time.process_time() - start_s
    gc.collect()
    message = [line for line in err.getvalue().splitlines() if line.strip()]
    text = _lasting(out.getvalue().replace(str(work), ""))
    return Answer(
        call=call,
        status=status,
        output=_parsed(text),
        message=message[-2:] if status else [],
        files={name: content for name in words for content in _written(work / name)},
        cpu_s=round(cpu_s, 3),
    )


def _is_text(words: Sequence[str]) -> bool:
    return "--format" in words


def _status(main: Main, words: list[str]) -> int:
    try:
        return main(words)
    except SystemExit as end:
        return int(end.code or 0)
    except Exception:  # noqa: BLE001 a call that raises is a finding, and the others go on
        traceback.print_exc()
        return RAISED


def _lasting(text: str) -> str:
    """The text without the day of the run."""
    return text.replace(date.today().isoformat(), "TODAY")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()


def _arrays(content: bytes) -> dict[str, Any]:
    """Shape of each array, and its sum where it holds numbers."""
    with np.load(io.BytesIO(content)) as members:
        named = ((name, members[name]) for name in members.files)
        arrays = {name: one for name, one in named if isinstance(one, np.ndarray)}
    return {name: [*one.shape, _sum(one)] for name, one in arrays.items()}


def _sum(array: npt.NDArray[Any]) -> float | None:
    return float(array.sum()) if array.dtype.kind in "biuf" else None


def _written(path: Path) -> Iterator[Any]:
    """The content of a file that a call wrote, which is then removed."""
    if path.is_symlink() or not path.is_file() or path.resolve().is_relative_to(HERE.parents[1]):
        return
    content = path.read_bytes()
    path.unlink()
    if path.suffix == ".npz":
        yield _arrays(content)
        return
    text = _lasting(content.decode())
    if path.suffix == ".csv":
        yield list(csv.DictReader(io.StringIO(text)))
    else:
        yield yaml.safe_load(text) if path.suffix == ".yaml" else _parsed(text)
