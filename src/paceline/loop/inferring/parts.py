"""Answers in Parquet parts that survive any stop, and are joined at the end.

A part holds the rows of fixed positions, has a name that follows from the first of them, and is
renamed to it when it is whole. So a part is there or not, and one written twice makes no double.
Every file says what it is the answer to; parts of another question are never joined.
"""

import os
import shutil

import pyarrow
import pyarrow.parquet as parquet

from ..errors import LoopError

_QUESTION = b"paceline.question"
SCHEMA = pyarrow.schema(
    [
        ("index", pyarrow.int64()),
        ("name", pyarrow.string()),
        ("label", pyarrow.int32()),
        ("score", pyarrow.float32()),
        ("scores", pyarrow.list_(pyarrow.float32())),
        ("damage", pyarrow.string()),
    ]
)


class Parts:
    """The parts of one answer.

    Args:
        out: The Parquet file that is wanted; parts lie in a folder next to it until it is complete.
        question: Text that says model, data and settings.
        num_rows: Of the whole answer.
        part_rows: Of a part.

    Raises:
        LoopError: The file, or parts of it, answer another question.
    """

    def __init__(self, out, question, num_rows, part_rows):
        self.out, self.folder = out, out + ".parts"
        self.num_rows, self.part_rows = num_rows, part_rows
        kept = {_QUESTION: ("%s; parts of %d" % (question, part_rows)).encode()}
        self.schema = SCHEMA.with_metadata(kept)
        if self.is_complete():
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        if os.path.exists(out):
            raise LoopError(
                "`%s` is there, of another model, other data or other settings" % out,
                "name another file, or remove that one",
            )
        _make_folder(self.folder)
        self._check()

    def is_complete(self):
        """Whether the whole answer is there."""
        return os.path.exists(self.out) and self._rows_of(self.out) == self.num_rows

    def done(self):
        """Rows in the parts that are there, from the first without a gap."""
        position = 0
        while position < self.num_rows:
            rows = min(self.part_rows, self.num_rows - position)
            if self._rows_of(self._path(position)) != rows:
                return position
            position += rows
        return position

    def write(self, position, columns):
        """Write the part that begins at a position; ``columns`` as in ``SCHEMA``, by name."""
        table = pyarrow.Table.from_pydict(columns, schema=self.schema)
        _write(self._path(position), lambda file: parquet.write_table(table, file))

    def forget_empty(self):
        """Remove the folder if no part is in it."""
        if not os.listdir(self.folder):
            os.rmdir(self.folder)

    def join(self):
        """Make the one file of all parts, and remove them."""

        def copy(file):
            """Write all parts into one file, one after another."""
            with parquet.ParquetWriter(file, self.schema) as writer:
                for position in range(0, self.num_rows, self.part_rows):
                    writer.write_table(parquet.read_table(self._path(position), memory_map=True))

        _write(self.out, copy)
        shutil.rmtree(self.folder)

    def _path(self, position):
        return os.path.join(self.folder, "%015d.parquet" % position)

    def _rows_of(self, path):
        """Rows of a whole file of this question; -1 where it is none."""
        try:
            found = parquet.read_metadata(path)
            schema = found.schema.to_arrow_schema()
        except (OSError, pyarrow.ArrowException):
            return -1
        is_ours = (schema.metadata or {}).get(_QUESTION) == self.schema.metadata[_QUESTION]
        return found.num_rows if is_ours else -1

    def _check(self):
        names = [name for name in os.listdir(self.folder) if name.endswith(".parquet")]
        if any(self._rows_of(os.path.join(self.folder, name)) < 0 for name in names):
            raise LoopError(
                "`%s` holds parts of another question" % self.folder,
                "name another file, or remove that folder",
            )


def _write(path, write):
    """Write a file whole or not at all."""
    beside = "%s.%d.writing" % (path, os.getpid())
    with open(beside, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _make_folder(path):
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise LoopError("cannot write `%s`: %s" % (path, error.strerror), "name a folder") from None
