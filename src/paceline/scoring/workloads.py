"""Workloads by entry, traced once and kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

from paceline.errors import InvalidInputError, PacelineError
from paceline.model.graph.store import read_workload, save_workload
from paceline.model.graph.workload import Task, Workload
from paceline.model.items import StatedItem, as_items
from paceline.model.names.front_ends import FRONT_ENDS
from paceline.model.names.shipped_graphs import shipped_file
from paceline.model.reading.load import load_workload
from paceline.scoring.readings import Reading
from paceline.values import dataclass
from paceline.writing import user_folder, write_whole

#: Front ends whose releases change what is traced.
_TRACED_WITH = ("torch", "torchvision", "timm")
_FAILURE_LASTS_S = 3600.0
_READ_BY_WORKERS = (".py", ".json", ".csv", ".xz")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadKey:
    """What a traced workload depends on.

    Attributes:
        entry: Model as typed.
        task: Training or inference.
        image_size: Side of the input; None takes the model's default.
        optimizer: None takes the model's default.
    """

    entry: str
    task: Task
    image_size: int | None
    optimizer: str | None


def workload_key(reading: Reading) -> WorkloadKey:
    """The model that a row runs, as it is traced."""
    return WorkloadKey(
        entry=reading.entry,
        task=reading.task,
        image_size=reading.image_size,
        optimizer=reading.optimizer,
    )


@lru_cache(maxsize=32)
def with_item(workload: Workload, words: str) -> Workload:
    """A workload with what engines do for the requests of a row, in a job's words, if anything.

    Raises:
        PacelineError: Words that are none, or that say nothing of it.
    """
    if not words:
        return workload
    stated = StatedItem.taken_from(dict(word.partition("=")[::2] for word in words.split()))
    guesser = stated.speculation.model if stated.speculation is not None else ""
    draft = load_workload(guesser, task="infer") if guesser else None
    return as_items(workload, stated, draft=draft)


def default_cache_folder() -> Path:
    """``$XDG_CACHE_HOME/paceline/workloads``, or the same under ``~/.cache``."""
    return user_folder("cache", "workloads")


def cached_workload(
    key: WorkloadKey, *, cache_folder: Path | None = None, python: str | None = None
) -> Workload:
    """The workload of ``key``, from the cache if it is there.

    Files and code of the user's are read each time. A failure is kept for an hour, so that one bad
    model costs one worker and not one per row, and what was mended meanwhile is tried again.

    Raises:
        PacelineError: The model is unknown, or cannot be traced here.
    """
    if is_own(key.entry):
        return _loaded(key, python)
    folder = cache_folder or default_cache_folder()
    path = folder / f"{_digest(key)}.npz"
    failure = path.with_suffix(".failed")
    kept = _kept(path)
    if kept is not None:
        return kept
    if failure.exists() and time.time() - failure.stat().st_mtime < _FAILURE_LASTS_S:
        raise InvalidInputError(
            failure.read_text(encoding="utf-8"), hint=f"delete `{failure}` to try again"
        )
    try:
        workload = _loaded(key, python)
    except PacelineError as error:
        message = str(error)
        _keep(failure, lambda: write_whole(failure, message))
        raise
    _keep(path, lambda: save_workload(workload, path))
    return workload


def is_own(entry: str) -> bool:
    """Whether a model stands in a file or in code of the user's, which may change.

    >>> is_own("jobs.train:model"), is_own("model.pt2"), is_own("timm:resnet18")
    (True, True, False)
    """
    before, _, after = entry.partition(":")
    is_code = "." in before or Path(f"{before}.py").exists() or Path(before).is_dir()
    return is_code or entry.endswith((".npz", ".pt2", ".json")) or Path(after or entry).is_file()


def _loaded(key: WorkloadKey, python: str | None) -> Workload:
    return load_workload(
        key.entry,
        task=key.task,
        image_size=key.image_size,
        optimizer=key.optimizer,
        python=python,
    )


def is_cached(key: WorkloadKey, *, cache_folder: Path | None = None) -> bool:
    """Whether `cached_workload` would answer without a worker."""
    return ((cache_folder or default_cache_folder()) / f"{_digest(key)}.npz").exists()


def _kept(path: Path) -> Workload | None:
    """The workload in a file of the cache; None where there is none, or one that is damaged."""
    try:
        return read_workload(path)
    except InvalidInputError:
        return None


def _keep(path: Path, write: Callable[[], None]) -> None:
    """Fill the cache, or go on without where it cannot be written: the answer is at hand."""
    with suppress(OSError, InvalidInputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write()


def _digest(key: WorkloadKey) -> str:
    facts = [key.entry, key.task, str(key.image_size), str(key.optimizer)]
    facts += [f"{name}={_version(name)}" for name in ("paceline", *_TRACED_WITH)]
    facts += [_readers_digest(), _shipped_digest(key.entry, key.task)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24]


@cache
def _readers_digest() -> str:
    """What changes whenever the code that traces does: a kept trace is of the code that made it."""
    files = sorted(path for path in FRONT_ENDS.rglob("*") if path.suffix in _READ_BY_WORKERS)
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@cache
def _shipped_digest(entry: str, task: Task) -> str:
    """What changes with the graph that is shipped of a model; empty where none is."""
    try:
        path = shipped_file(entry, task)
    except InvalidInputError:
        return ""
    return "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"
