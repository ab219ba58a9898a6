"""The header of a GGUF file: keys, and names, shapes and types of tensors. No weight is read.

Standard library only. The layout, and the ids of types with their blocks, are those of
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and ``ggml.h`` (2026-11).
"""

import collections
import math
import os
import struct

from torch_entries.request_errors import RequestError

#: A tensor's extents, the fastest first, and the id of its type.
Tensor = collections.namedtuple("Tensor", ("extents", "type"))
#: An array of the file: its values, empty where it is long, nested or of text.
Array = collections.namedtuple("Array", ("length", "values"))
#: Keys by name, tensors by name.
Header = collections.namedtuple("Header", ("keys", "tensors"))

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
#: Names of types by id, with the elements of a block and its bytes: `GGML_QUANT_SIZES` of
#: gguf-py/gguf/constants.py (ggml-org/llama.cpp ef035f7, read 2026-11-29), the last two as in its
#: later versions, and Q8_1, which lies in no file, as in ggml-common.h.
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4),
    27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip
#: Numbers of keys by id of their type: unsigned and signed 8, 16, 32 bits, float, bool, 64 bits.
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd"))
_TEXT, _ARRAY = 8, 9
#: Bounds on what a header may claim; the largest published ones stay far below.
_MOST_KEYS, _MOST_TENSORS, _MOST_ITEMS = 10_000, 200_000, 5_000_000
_LONGEST_NAME, _LONGEST_KEPT, _DEEPEST, _MOST_DIMS = 1_024, 4_096, 4, 4
_MOST_ELEMENTS = 1 << 48


def read_header(path):
    """The header of the file at a path.

    Raises:
        RequestError: The file cannot be read, is none of GGUF, or claims what cannot be.
    """
    try:
        with open(path, "rb") as file:
            return _Reader(file, os.fstat(file.fileno()).st_size).header()
    except OSError as error:
        raise RequestError("no-file", error.strerror) from error


def tensor_bytes(tensor):
    """Bytes that a tensor takes in the file."""
    _, elements, size = TYPES[tensor.type]
    return math.prod(tensor.extents) // elements * size


class _Reader:
    """A file, and how many items of arrays it may still claim."""

    def __init__(self, file, size):
        self.file, self.size, self.items = file, size, _MOST_ITEMS

    def header(self):
        """Keys and tensors of the file, read from its first byte on."""
        if self._bytes(4) != _MAGIC:
            raise _refused("does not begin with `GGUF`")
        version = self._number("I")
        if version not in _VERSIONS:
            raise _refused("is of version %d, and 2 and 3 are read" % version)
        num_tensors, num_keys = self._number("Q"), self._number("Q")
        if num_keys > _MOST_KEYS or num_tensors > _MOST_TENSORS:
            raise _refused("claims %d keys and %d tensors" % (num_keys, num_tensors))
        keys = self._table(num_keys, lambda: self._value(self._number("I"), 0))
        return Header(keys, self._table(num_tensors, self._tensor))

    def _table(self, count, value):
        found = {}
        for _ in range(count):
            name = self._text(_LONGEST_NAME)
            if name is None or name in found:
                raise _refused("has a name twice, or one longer than %d" % _LONGEST_NAME)
            found[name] = value()
        return found

    def _tensor(self):
        num_dims = self._number("I")
        if not 1 <= num_dims <= _MOST_DIMS:
            raise _refused("has a tensor of %d dims" % num_dims)
        extents = tuple(self._number("Q") for _ in range(num_dims))
        kind, _offset = self._number("I"), self._number("Q")
        if kind not in TYPES:
            raise _refused("has a tensor of the unknown type %d" % kind)
        if not 1 <= math.prod(extents) <= _MOST_ELEMENTS or extents[0] % TYPES[kind][1]:
            raise _refused("has a tensor of %s with extents %s" % (TYPES[kind][0], list(extents)))
        return Tensor(extents, kind)

    def _value(self, kind, depth):
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _TEXT:
            return self._text(_LONGEST_KEPT)
        if kind == _ARRAY and depth < _DEEPEST:
            return self._array(depth)
        raise _refused("has a key of the unknown type %d" % kind)

    def _array(self, depth):
        kind, count = self._number("I"), self._number("Q")
        self.items -= count
        if self.items < 0:
            raise _refused("claims an array of %d items" % count)
        if kind in _NUMBERS:
            size = struct.calcsize("<" + _NUMBERS[kind])
            if count > _LONGEST_KEPT:
                self._skip(count * size)
                return Array(count, ())
            read = self._bytes(count * size)
            return Array(count, struct.unpack("<%d%s" % (count, _NUMBERS[kind]), read))
        for _ in range(count):
            if kind == _TEXT:
                self._skip(self._number("Q"))
            else:
                self._value(kind, depth + 1)
        return Array(count, ())

    def _text(self, longest):
        """A text; None where it is longer, such as a template of a chat."""
        length = self._number("Q")
        if length > longest:
            self._skip(length)
            return None
        return self._bytes(length).decode("utf-8", "replace")

    def _number(self, form):
        return struct.unpack("<" + form, self._bytes(struct.calcsize("<" + form)))[0]

    def _bytes(self, count):
        read = self.file.read(count)
        if len(read) < count:
            raise _refused("ends too early")
        return read

    def _skip(self, count):
        if count > self.size - self.file.tell():
            raise _refused("ends too early")
        self.file.seek(count, os.SEEK_CUR)


def _refused(said):
    return RequestError("bad-gguf", "its header cannot be read: it %s" % said)
