"""Read messages of protocol buffers from a file without any library, skipping what is not asked.

Standard library only. A schema says which fields are read and how; bytes of weights are never read,
only where they stand. Whatever is wrong with the bytes is a `Malformed`.

Source: https://protobuf.dev/programming-guides/encoding
"""

import mmap
import struct

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: Messages inside messages: the formats read here nest control flow, nothing deeper.
_DEEPEST = 60
#: Fields of one file; what is skipped counts too, so that a file of empty messages ends.
_MOST_FIELDS = 20_000_000
_NUMBERS = {"float": ("<f", 4), "double": ("<d", 8)}


def once(name, kind):
    """A field of a message; ``kind`` as `Reader.part` has it."""
    return (name, kind, False)


def many(name, kind):
    """A field that may come several times."""
    return (name, kind, True)


class Malformed(Exception):
    """Bytes that are no message of the format."""

    kind = "bad-file"


class Range(object):
    """Where bytes stand in the file that a reader has open."""

    __slots__ = ("end", "reader", "start")

    def __init__(self, reader, start, end):
        self.reader, self.start, self.end = reader, start, end

    def __len__(self):
        return self.end - self.start

    def read(self):
        """The bytes themselves."""
        return self.reader.data[self.start : self.end]


class Reader(object):
    """One file, mapped into memory: pages that nobody reads are never loaded."""

    def __init__(self, path):
        with open(path, "rb") as file:
            try:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise Malformed("the file is empty") from None
        self._left = _MOST_FIELDS

    def message(self, schema):
        """The whole file as one message."""
        return self.part(Range(self, 0, len(self.data)), schema)

    def part(self, within, schema, depth=0):
        """A message that stands in a range of bytes.

        ``schema`` gives for each field number (name, kind, is repeated); a kind is ``int``,
        ``float``, ``double``, ``text``, ``range`` or the schema of a message as a function of
        nothing. Absent fields are absent; repeated ones are lists.
        """
        if depth > _DEEPEST:
            raise Malformed("its messages are nested more than %d deep" % _DEEPEST)
        found = {name: [] for name, _, is_repeated in schema.values() if is_repeated}
        at, end = within.start, within.end
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise Malformed("it has more than %d fields" % _MOST_FIELDS)
            tag, at = self._varint(at, end)
            wire, field = tag & 7, schema.get(tag >> 3)
            if field is None:
                at = self._skipped(wire, at, end)
                continue
            name, kind, is_repeated = field
            value, at = self._value(wire, kind, is_repeated, at, end, depth)
            if not is_repeated:
                found[name] = value
            elif isinstance(value, list):
                found[name].extend(value)
            else:
                found[name].append(value)
        return found

    def _value(self, wire, kind, is_repeated, at, end, depth):
        if wire == _BYTES:
            size, at = self._varint(at, end)
            stop = at + size
            if stop > end:
                raise Malformed("a field ends after its message, at byte %d" % at)
            return self._of_bytes(kind, is_repeated, Range(self, at, stop), depth), stop
        if wire == _VARINT and kind == "int":
            value, at = self._varint(at, end)
            return _signed(value), at
        width = {_FIXED32: 4, _FIXED64: 8}.get(wire)
        if kind in _NUMBERS and width == _NUMBERS[kind][1] and at + width <= end:
            return struct.unpack_from(_NUMBERS[kind][0], self.data, at)[0], at + width
        raise Malformed("a field has another type than its format says, at byte %d" % at)

    def _of_bytes(self, kind, is_repeated, within, depth):
        if kind == "range":
            return within
        if kind == "text":
            return within.read().decode("utf-8", "replace")
        if callable(kind):
            return self.part(within, kind(), depth + 1)
        if not is_repeated:
            raise Malformed("a number is given as bytes, at byte %d" % within.start)
        return self._packed(kind, within)

    def _packed(self, kind, within):
        """Numbers one after another."""
        if kind in _NUMBERS:
            letter, width = _NUMBERS[kind]
            if len(within) % width:
                raise Malformed("numbers are cut off at byte %d" % within.end)
            count = len(within) // width
            return list(struct.unpack_from("<%d%s" % (count, letter[1]), self.data, within.start))
        values, at = [], within.start
        while at < within.end:
            value, at = self._varint(at, within.end)
            values.append(_signed(value))
        return values

    def _varint(self, at, end):
        value = shift = 0
        data = self.data
        while at < end and shift < 70:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise Malformed("a number is cut off or too long at byte %d" % at)

    def _skipped(self, wire, at, end):
        if wire == _VARINT:
            return self._varint(at, end)[1]
        if wire == _BYTES:
            size, at = self._varint(at, end)
            at += size
        elif wire in (_FIXED32, _FIXED64):
            at += 4 if wire == _FIXED32 else 8
        else:
            raise Malformed("a field has an unknown type at byte %d" % at)
        if at > end:
            raise Malformed("a field ends after its message, at byte %d" % at)
        return at


def _signed(value):
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
