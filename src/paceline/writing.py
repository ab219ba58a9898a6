"""Files that are written whole or not at all, and folders to write them to."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from paceline.errors import InvalidInputError

#: Variable of the XDG base directory specification, and the folder below home without it.
_BASES = {"data": ("XDG_DATA_HOME", ".local/share"), "cache": ("XDG_CACHE_HOME", ".cache")}


def user_folder(kind: Literal["data", "cache"], name: str, *, variable: str = "") -> Path:
    """A folder of ours among the user's, or the one that an environment variable names."""
    if given := os.environ.get(variable):
        return Path(given)
    base, usual = _BASES[kind]
    return Path(os.environ.get(base) or Path.home() / usual) / "paceline" / name


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A draft to write in place of ``path``, which it replaces once it is complete.

    A full disk, an error or an interruption leaves what stood at ``path`` as it was. Pipes and
    devices are written directly; a link stays a link.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    is_direct, target = _target_of(path)
    draft = target if is_direct else target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield draft
        if not is_direct:
            _replace(draft, target)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write `{path}`: {error.strerror or error}",
            hint="choose another path, or make room there",
        ) from None
    finally:
        if not is_direct:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


def _target_of(path: Path) -> tuple[bool, Path]:
    """Whether a path is written directly, as a pipe is, and else the file that it leads to.

    Raises:
        InvalidInputError: No file can have that name, or links lead in a circle.
    """
    try:
        is_direct = path.exists() and not path.is_file()
        target = path if is_direct else path.resolve()
    except OSError as error:
        raise _unwritable(path, error.strerror) from None
    except RuntimeError:
        raise _unwritable(path, _CIRCLE) from None
    # From Python 3.13 on the end of links that have none is a link.
    if target.is_symlink():
        raise _unwritable(path, _CIRCLE)
    return is_direct, target


_CIRCLE = "its links lead in a circle"


def _unwritable(path: Path, why: str | None) -> InvalidInputError:
    return InvalidInputError(f"cannot write `{path}`: {why}", hint="choose another path")


def write_whole(path: Path, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def make_folder(path: Path) -> None:
    """Make a folder and those above it; one that is there stays as it is.

    Raises:
        InvalidInputError: It cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write to `{path}`: {error.strerror}", hint="choose another folder"
        ) from None


def _replace(draft: Path, target: Path) -> None:
    if target.exists():
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        shutil.copymode(target, draft)
    draft.replace(target)
