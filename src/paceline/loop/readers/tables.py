"""Parquet files and Arrow folders (as Hugging Face ``datasets`` writes them).

The image is the first column of bytes, or a structure with a field ``bytes``; the label is an
integer column. Parquet is read by row group, of which the last few are kept; an order that stays
within a few groups for a while (``block_ends``) reads each once.
"""

import bisect
import os
import threading
from collections import OrderedDict

from ..decode import LIMITS, DamagedSample
from .records import NO_LABEL, Damage, Stored, UnreadableData

_LABELS = ("label", "labels", "class", "target", "cls", "fine_label")
_IMAGES = ("image", "jpg", "img", "jpeg", "png", "bytes")
#: Row groups kept in memory, and the most that one may take.
_KEPT_GROUPS, _GROUP_BYTES = 4, 2**31
_ROWS_A_READ = 64


class _Table:
    """Rows of several files in blocks that are read whole; shared by the two formats."""

    kind = "image"

    def __init__(self, files, limits):
        self.files, self.limits, self.damaged, self.classes = files, limits, [], None
        #: ``(file, block of the file)`` and the index after its last row.
        self.blocks, self.block_ends = [], []
        for number, path in enumerate(files):
            self._guarded(number, path)
        if not self.blocks and not self.damaged:
            raise UnreadableData("no rows in %d files, the first `%s`" % (len(files), files[0]))

    def _guarded(self, number, path):
        arrow = _pyarrow()
        try:
            self._index(number, path)
        except (arrow.ArrowException, OSError, ValueError) as error:
            self.damaged.append(Damage(path, _first_line(error)))

    def _add_block(self, file, block, rows):
        if rows:
            self.blocks.append((file, block))
            self.block_ends.append((self.block_ends[-1] if self.block_ends else 0) + rows)

    def __len__(self):
        return self.block_ends[-1] if self.block_ends else 0

    def read(self, index):
        """The stored bytes of one image and its label."""
        number, row = self._place(index)
        images, labels = self._columns(number)
        value = images[row]
        if not value.is_valid:
            raise DamagedSample("the image is missing")
        buffer = value.as_buffer()
        label = None if labels is None else labels[row].as_py()
        return Stored(memoryview(buffer).cast("B"), NO_LABEL if label is None else label)

    def name_of(self, index):
        """File and row."""
        number, row = self._place(index)
        first = self.block_ends[number - 1] if number else 0
        same = [
            n for n, b in enumerate(self.blocks[: number + 1]) if b[0] == self.blocks[number][0]
        ]
        start = self.block_ends[same[0] - 1] if same[0] else 0
        return "%s: row %d" % (self.files[self.blocks[number][0]], first - start + row)

    def _place(self, index):
        number = bisect.bisect_right(self.block_ends, index)
        return number, index - (self.block_ends[number - 1] if number else 0)


class ParquetFiles(_Table):
    """Rows of Parquet files; page checksums are verified where they are stored."""

    def __init__(self, files, limits=LIMITS):
        self._opened, self._kept = {}, OrderedDict()
        self._lock, self._locks = threading.Lock(), {}
        _Table.__init__(self, files, limits)

    def __getstate__(self):
        own = ("_opened", "_kept", "_lock", "_locks")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._opened, self._kept = {}, OrderedDict()
        self._lock, self._locks = threading.Lock(), {}

    def _index(self, number, path):
        metadata = self._file(number).metadata
        _named_columns(self._file(number).schema_arrow, path)
        for group in range(metadata.num_row_groups):
            self._add_block(number, group, metadata.row_group(group).num_rows)

    def _file(self, number):
        import pyarrow.parquet as parquet

        if number not in self._opened:
            self._opened[number] = parquet.ParquetFile(
                self.files[number],
                memory_map=False,
                page_checksum_verification=True,
                thrift_string_size_limit=2**26,
                thrift_container_size_limit=2**22,
            )
        return self._opened[number]

    def _columns(self, number):
        """Images and labels of a row group, read once by whichever thread comes first."""
        with self._lock:
            lock = self._locks.setdefault(number, threading.Lock())
        with lock:
            if number not in self._kept:
                columns = self._read_group(number)
                with self._lock:
                    self._kept[number] = columns
                    while len(self._kept) > _KEPT_GROUPS:
                        self._locks.pop(self._kept.popitem(last=False)[0], None)
            found = self._kept.get(number)
        return found if found is not None else self._read_group(number)

    def _read_group(self, number):
        arrow = _pyarrow()
        file, group = self.blocks[number]
        try:
            with self._lock:
                opened = self._file(file)
                image, label = _named_columns(opened.schema_arrow, self.files[file])
                wanted = [image] if label is None else [image, label]
                batches, num_bytes = [], 0
                for batch in opened.iter_batches(_ROWS_A_READ, row_groups=[group], columns=wanted):
                    num_bytes += batch.nbytes
                    if num_bytes > _GROUP_BYTES:
                        raise DamagedSample("a row group of over %d bytes" % _GROUP_BYTES)
                    batches.append(batch)
            table = arrow.Table.from_batches(batches)
            table.validate(full=True)
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise DamagedSample(_first_line(error)) from None
        first = self.block_ends[number - 1] if number else 0
        if table.num_rows != self.block_ends[number] - first:
            raise DamagedSample("a row group of %d rows" % table.num_rows)
        return _pick(table, image, label)


class ArrowFiles(_Table):
    """Rows of Arrow files, mapped: nothing is copied before a sample is decoded."""

    def __init__(self, files, limits=LIMITS):
        self._batches = {}
        _Table.__init__(self, files, limits)

    def __getstate__(self):
        return {name: v for name, v in self.__dict__.items() if name != "_batches"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._batches = {}
        for number, path in enumerate(self.files):
            if any(file == number for file, _ in self.blocks):
                self._read(number, path)

    def _index(self, number, path):
        for block, rows in enumerate(self._read(number, path)):
            self._add_block(number, block, rows)

    def _read(self, number, path):
        """Map a file, check its offsets once, and return the rows of each batch."""
        arrow = _pyarrow()
        if os.path.getsize(path) == 0:
            raise ValueError("the file is empty")
        source, rows = arrow.memory_map(path), []
        for block, batch in enumerate(_record_batches(arrow, source)):
            image, label = _named_columns(batch.schema, path)
            names = [image] if label is None else [image, label]
            table = arrow.Table.from_batches([batch.select(names)])
            table.validate(full=True)
            self._batches[number, block] = _pick(table, image, label)
            rows.append(batch.num_rows)
        return rows

    def _columns(self, number):
        return self._batches[self.blocks[number]]


def _record_batches(arrow, source):
    """Of an IPC file or an IPC stream."""
    try:
        file = arrow.ipc.open_file(source)
    except arrow.ArrowInvalid:
        source.seek(0)
        yield from arrow.ipc.open_stream(source)
        return
    for number in range(file.num_record_batches):
        yield file.get_batch(number)


def _named_columns(schema, path):
    """Names of the image's and the label's column; None where there is no label."""
    types = _pyarrow().types

    def is_bytes(kind):
        return types.is_binary(kind) or types.is_large_binary(kind)

    def is_image(kind):
        """Whether a column holds bytes, or structures with bytes."""
        if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            return is_bytes(kind.field("bytes").type)
        return is_bytes(kind)

    images = [field.name for field in schema if is_image(field.type)]
    named = [name for name in _IMAGES if name in images]
    if not images:
        raise UnreadableData("`%s` has no column of bytes: %s" % (path, ", ".join(schema.names)))
    labels = [n for n in _LABELS if n in schema.names and types.is_integer(schema.field(n).type)]
    return (named or images)[0], labels[0] if labels else None


def _pick(table, image, label):
    """The two columns, each as one array."""
    arrow = _pyarrow()

    def whole(column):
        joined = column.combine_chunks()
        return joined.chunk(0) if isinstance(joined, arrow.ChunkedArray) else joined

    images = whole(table.column(image))
    if arrow.types.is_struct(images.type):
        images = images.field("bytes")
    return images, None if label is None else whole(table.column(label))


def _pyarrow():
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise UnreadableData("Parquet and Arrow need pyarrow", "pip install pyarrow") from None
    return pyarrow


def _first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]
