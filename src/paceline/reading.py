"""Text files that a user names, read within limits of size and encoding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import InvalidInputError, PacelineError

#: Bytes of a document that a person writes.
MAX_DOCUMENT_BYTES = 4_000_000
#: Bytes of what a program writes: a log, a calibration.
MAX_LOG_BYTES = 200_000_000


def read_bytes(path: Path, *, what: str, most_bytes: int, hint: str) -> bytes:
    """The content of a user's file, which may be a pipe or never end.

    Raises:
        InvalidInputError: Missing, unreadable or too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise InvalidInputError(
            f"cannot read the {what} `{path}`: {error.strerror}", hint=hint
        ) from None
    if len(content) > most_bytes:
        raise InvalidInputError(
            f"the {what} `{path}` is larger than {most_bytes / 1e6:.3g} MB",
            hint="is this the right file?",
        )
    return content


def read_text(
    path: Path,
    *,
    what: str,
    most_bytes: int = MAX_DOCUMENT_BYTES,
    hint: str = "check the path",
) -> str:
    """The text of a user's file.

    Raises:
        InvalidInputError: Missing, unreadable, too large or not UTF-8.
    """
    content = read_bytes(path, what=what, most_bytes=most_bytes, hint=hint)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInputError(
            f"the {what} `{path}` is not UTF-8 text", hint="save it as UTF-8"
        ) from None


@contextmanager
def on_its_line(path: Path, word: str) -> Iterator[None]:
    """Name the file, and the first line with ``word``, where what is done within fails.

    Raises:
        PacelineError: That failure.
    """
    try:
        yield
    except PacelineError as error:
        lines = enumerate(read_text(path, what="file").splitlines(), start=1)
        line = next((f", line {number}" for number, text in lines if word in text), "")
        raise type(error)(f"{path}{line}: {error}", hint=error.hint) from None


def stamp_of(path: Path) -> tuple[int, int]:
    """When a file was last written, and its size; nothing of one that cannot be asked."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def is_file(path: Path) -> bool:
    """Whether a file is there; a name that no file can have is none."""
    try:
        return path.is_file()
    except OSError:
        return False
