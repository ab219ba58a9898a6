"""The truth that was measured: append-only JSON-lines segments, one per process.

A segment is written by one process and by nobody else, a line per record, on the disk before
`Store.append` returns. So a kill at any moment loses at most the line in flight, two sweeps on one
folder cannot disturb each other, and no lock is needed on file systems that have none. Readers
drop a last line that has no end, and count lines that they cannot read instead of failing.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from paceline.errors import InvalidInputError
from paceline.measurements.records import Record, record_from_line, record_to_line
from paceline.values import dataclass
from paceline.writing import user_folder

#: Folder of the store, where the user sets one.
FOLDER_VARIABLE = "PACELINE_STORE"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreContents:
    """What a store holds.

    Attributes:
        records: In the order of segments, then lines.
        num_damaged: Lines that could not be read, cut-off last lines included.
    """

    records: tuple[Record, ...]
    num_damaged: int


class Store:
    """One folder of segments; this process appends to a segment of its own.

    Args:
        folder: Made when it is first written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: IO[bytes] | None = None

    def append(self, record: Record) -> None:
        """Write one record; it is on the disk when this returns.

        Raises:
            InvalidInputError: The disk is full or the folder cannot be written; what was there
                before is intact.
        """
        line = record_to_line(record).encode() + b"\n"
        try:
            file = self._segment()
        except OSError as error:
            raise _unwritable(self.folder, error) from None
        start = file.tell()
        try:
            _write_all(file, line)
            os.fsync(file.fileno())
        except OSError as error:
            self._undo(start)
            raise _unwritable(self.folder, error) from None

    def check_writable(self) -> None:
        """Make the folder and write to it, before anything is measured in vain.

        Raises:
            InvalidInputError: The disk is full or the folder cannot be written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder, buffering=0) as probe:
                _write_all(probe, b"a record")
        except OSError as error:
            raise _unwritable(self.folder, error) from None

    def close(self) -> None:
        """Close this process's segment."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> StoreContents:
        """Every readable record, this process's included."""
        records, num_damaged = [], 0
        for path in segment_paths(self.folder):
            for record in read_segment(path):
                if record is None:
                    num_damaged += 1
                else:
                    records.append(record)
        return StoreContents(records=tuple(records), num_damaged=num_damaged)

    def _segment(self) -> IO[bytes]:
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
            name = f"{stamp}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
            # Unbuffered: what a failed write left behind can be cut off without a second failure.
            self._file = (self.folder / name).open("xb", buffering=0)
        return self._file

    def _undo(self, start: int) -> None:
        assert self._file is not None
        try:
            self._file.truncate(start)
            self._file.seek(start)
        except OSError:
            # The next record starts a fresh segment; the reader drops the cut-off line.
            self._file.close()
            self._file = None


def default_store_folder() -> Path:
    """Where measurements are kept: ``PACELINE_STORE``, else the user's data folder."""
    return user_folder("data", "measurements", variable=FOLDER_VARIABLE)


#: Bytes of a line; what is longer is none of ours.
_LONGEST_LINE = 64_000_000


def segment_paths(folder: Path) -> tuple[Path, ...]:
    """Segments in the order they were begun."""
    return tuple(sorted(folder.glob("*.jsonl")))


def read_segment(path: Path) -> Iterator[Record | None]:
    """Records of one segment, None for each line that cannot be read."""
    with path.open("rb") as file:
        while line := file.readline(_LONGEST_LINE):
            yield _read_line(line)


def _read_line(line: bytes) -> Record | None:
    if not line.endswith(b"\n"):
        return None
    try:
        return record_from_line(line.decode())
    except (InvalidInputError, UnicodeDecodeError):
        return None


def _write_all(file: IO[bytes], line: bytes) -> None:
    """Write every byte: a disk that fills up takes a part and fails only at the next attempt."""
    rest = line
    while rest:
        rest = rest[file.write(rest) :]


def _unwritable(folder: Path, error: OSError) -> InvalidInputError:
    return InvalidInputError(
        f"a measurement could not be written to {folder}: {error.strerror}",
        hint=f"free some space, or set {FOLDER_VARIABLE} to another folder",
    )
