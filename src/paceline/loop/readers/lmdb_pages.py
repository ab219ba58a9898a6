"""An LMDB file read by its pages, every place in it checked.

The library maps the file and trusts it: a damaged page ends the process. Here the tree is walked
once, read-only, for where each value lies; values are then read like any other part of a file.
Keys are the names. Only the main database of a 64-bit little-endian file is read.

Source: OpenLDAP, ``libraries/liblmdb/mdb.c`` 0.9 (structures ``MDB_page``, ``MDB_meta``,
``MDB_db``, ``MDB_node``).
"""

import mmap
import os
import struct

from ..decode import LIMITS
from .records import Damage, Spans, UnreadableData

_MAGIC, _VERSIONS = 0xBEEFC0DE, (1,)
_BRANCH, _LEAF, _OVERFLOW, _META = 0x01, 0x02, 0x04, 0x08
_BIG, _SUB, _DUPLICATES = 0x01, 0x02, 0x04
_HEADER = 16
#: Deeper than any tree of 2**64 entries.
_DEEPEST = 64
_PAGE_SIZES = [2**n for n in range(9, 17)]


class LmdbFile(Spans):
    """Values of an LMDB's main database, in the order of their keys."""

    def __init__(self, path, limits=LIMITS):
        Spans.__init__(self, [path], limits)
        self._keys = []
        if os.path.getsize(path) < 2 * _PAGE_SIZES[0]:
            raise UnreadableData("`%s` is too short for an LMDB" % path)
        with open(path, "rb") as file:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with pages:
            self._index(pages, path)

    def name_of(self, index):
        """File and key."""
        return "%s: %r" % (self.files[0], self._keys[index])

    def _index(self, pages, path):
        page_bytes, root, entries = _newest_meta(pages, path)
        walk = _Walk(pages, page_bytes, self)
        if root != 2**64 - 1:
            walk.visit(root, 0)
        if walk.errors or len(self) != entries:
            told = "%d of %d entries are readable" % (len(self), entries)
            self.damaged.append(Damage(path, "; ".join([told, *walk.errors[:3]])))

    def add_value(self, key, start, size):
        """One more entry."""
        self.add(0, start, size)
        self._keys.append(key)


class _Walk:
    """One way through the tree; a page seen twice, or outside the file, is damage."""

    def __init__(self, pages, page_bytes, reader):
        self.pages, self.page_bytes, self.reader = pages, page_bytes, reader
        self.seen, self.errors = set(), []

    def visit(self, number, depth):
        """Collect the keys below a page, or why it cannot be read."""
        try:
            nodes, flags = self._page(number, depth)
        except ValueError as error:
            self.errors.append(str(error))
            return
        for node in nodes:
            self._node(number, node, flags, depth)

    def _node(self, number, place, flags, depth):
        """One entry, or the error that it is."""
        try:
            self._entry(place, flags, depth)
        except (ValueError, struct.error) as error:
            self.errors.append("page %d: %s" % (number, error))

    def _page(self, number, depth):
        """Places of its nodes, and its flags."""
        start = number * self.page_bytes
        if start + self.page_bytes > len(self.pages):
            raise ValueError("page %d lies outside the file" % number)
        if number in self.seen or depth > _DEEPEST:
            raise ValueError("page %d is reached twice" % number)
        self.seen.add(number)
        found, _, flags, lower, _ = struct.unpack_from("<QHHHH", self.pages, start)
        if found != number or not flags & (_BRANCH | _LEAF):
            raise ValueError("page %d is not what it should be" % number)
        count = (lower - _HEADER) // 2
        if not 0 <= count <= self.page_bytes // 2 - _HEADER:
            raise ValueError("page %d claims %d nodes" % (number, count))
        places = struct.unpack_from("<%dH" % count, self.pages, start + _HEADER)
        return [start + place for place in places], flags

    def _entry(self, place, flags, depth):
        end = (place // self.page_bytes + 1) * self.page_bytes
        low, high, kind, key_bytes = struct.unpack_from("<HHHH", self.pages, place)
        data = place + 8 + key_bytes
        if data > end:
            raise ValueError("a key leaves its page")
        if flags & _BRANCH:
            self.visit(low | high << 16 | kind << 32, depth + 1)
            return
        size = low | high << 16
        if kind & (_SUB | _DUPLICATES):
            raise ValueError("named databases and duplicate keys are not read")
        key = self.pages[place + 8 : data]
        if kind & _BIG:
            data, end = self._overflow(struct.unpack_from("<Q", self.pages, data)[0])
        if data + size > end:
            raise ValueError("a value leaves its page")
        self.reader.add_value(key, data, size)

    def _overflow(self, number):
        """Where a value of whole pages begins, and where its pages end."""
        start = number * self.page_bytes
        if start + self.page_bytes > len(self.pages):
            raise ValueError("page %d lies outside the file" % number)
        found, _, flags, count = struct.unpack_from("<QHHI", self.pages, start)
        if found != number or not flags & _OVERFLOW or number in self.seen:
            raise ValueError("page %d is not what it should be" % number)
        self.seen.add(number)
        end = start + count * self.page_bytes
        if end > len(self.pages):
            raise ValueError("the value at page %d is cut off" % number)
        return start + _HEADER, end


def _newest_meta(pages, path):
    """Page size, root page and entries by the newer of the two first pages."""
    found = []
    for page_bytes in _PAGE_SIZES:
        for start in (0, page_bytes):
            meta = _meta(pages, start)
            if meta is not None and meta[1] == page_bytes:
                found.append(meta)
    if not found:
        raise UnreadableData("`%s` is no LMDB, or not one of a 64-bit machine" % path)
    _, page_bytes, root, entries = max(found)
    return page_bytes, root, entries


def _meta(pages, start):
    """Transaction, page size, root and entries of a meta page; None where it is none."""
    if start + 152 > len(pages):
        return None
    flags, magic, version = struct.unpack_from("<8x2xH4xII", pages, start)
    if not flags & _META or magic != _MAGIC or version not in _VERSIONS:
        return None
    page_bytes = struct.unpack_from("<I", pages, start + 40)[0]
    entries, root, _, transaction = struct.unpack_from("<QQQQ", pages, start + 40 + 48 + 32)
    return transaction, page_bytes, root, entries
