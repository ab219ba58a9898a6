"""WebDataset shards: tar files in which the members of a sample lie side by side.

Members are ``key.jpg``, ``key.cls`` and so on. The index is made from the headers alone; bodies
are read when a sample is wanted, in any order.

Source: POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format".
"""

import os
from array import array

from ..decode import LIMITS
from .records import IMAGE_SUFFIXES, NO_LABEL, Damage, Spans, UnreadableData

_BLOCK = 512
#: A longer extended header is not a name.
_LONGEST_HEADER_BYTES = 2**16
_LONGEST_LABEL_BYTES = 32
_LABEL_SUFFIX = ".cls"


class TarFiles(Spans):
    """Images of tar shards, labelled by their ``.cls`` members."""

    def __init__(self, files, limits=LIMITS):
        Spans.__init__(self, files, limits)
        self._label_start, self._label_size = array("q"), array("q")
        self._keys = []
        for number in range(len(files)):
            self._index(number)
        if not len(self) and not self.damaged:
            raise UnreadableData(
                "no image in %d tar files, the first `%s`" % (len(files), files[0])
            )

    def label_of(self, index):
        """The number in the sample's ``.cls`` member."""
        size = self._label_size[index]
        if not 0 < size <= _LONGEST_LABEL_BYTES:
            return NO_LABEL
        text = self.bytes_at(self._file[index], self._label_start[index], size)
        return int(text) if text.strip().isdigit() else NO_LABEL

    def name_of(self, index):
        """Shard and member."""
        return "%s: %s" % (self.files[self._file[index]], self._keys[index])

    def _index(self, number):
        """Add the samples of one shard, up to its first damage."""
        key, label = None, (0, 0)
        try:
            with open(self.files[number], "rb") as file:
                for name, start, size in _members(file):
                    stem, suffix = _split(name)
                    if stem != key:
                        key, label, image = stem, (0, 0), None
                    if suffix == _LABEL_SUFFIX:
                        label = (start, size)
                        if image is not None:
                            self._label_start[image], self._label_size[image] = label
                    elif suffix in IMAGE_SUFFIXES:
                        image = len(self)
                        self.add(number, start, size)
                        self._keys.append(name)
                        self._label_start.append(label[0])
                        self._label_size.append(label[1])
        except (OSError, ValueError) as error:
            self.damaged.append(Damage(self.files[number], str(error)))


def _members(file):
    """Name, start and size of each regular member.

    Raises:
        ValueError: A header that is none, or a member that is cut off.
    """
    end, place, longer, wanted = os.fstat(file.fileno()).st_size, 0, None, None
    while place + _BLOCK <= end:
        file.seek(place)
        header = file.read(_BLOCK)
        if not any(header):
            return
        _check_sum(header, place)
        kind, size = header[156:157], _number(header[124:136])
        if wanted is not None and kind not in b"xgLK":
            size, wanted = wanted, None
        body = place + _BLOCK
        if size < 0 or body + size > end:
            raise ValueError("the member at byte %d is cut off" % place)
        place = body + -(-size // _BLOCK) * _BLOCK
        if kind in (b"L", b"x"):
            if size > _LONGEST_HEADER_BYTES:
                raise ValueError("an extended header of %d bytes" % size)
            found = file.read(size)
            if kind == b"L":
                longer = _text(found)
            else:
                longer, wanted = _pax(found, longer)
        elif kind in (b"0", b"\0", b"7"):
            yield longer or _name(header), body, size
            longer = None
        elif kind not in (b"g", b"K"):
            longer = None
    raise ValueError("the end mark is missing: the shard may be cut off")


def _check_sum(header, place):
    """Its own field counts as eight spaces."""
    want = _number(header[148:156])
    if want != sum(header) - sum(header[148:156]) + 8 * 32:
        raise ValueError("no tar header at byte %d" % place)


def _number(field):
    """Octal digits, or a big-endian number after 0x80."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    text = field.strip(b" \0")
    if text and not text.isdigit():
        raise ValueError("a number field holds %r" % bytes(field))
    return int(text, 8) if text else 0


def _pax(body, longer):
    """Path and size that an extended header states."""
    size = None
    while body:
        digits, _, _rest = body.partition(b" ")
        if not digits.isdigit() or not 0 < int(digits) <= len(body):
            raise ValueError("a broken extended header")
        record, body = body[len(digits) + 1 : int(digits) - 1], body[int(digits) :]
        key, _, value = record.partition(b"=")
        if key == b"path":
            longer = _text(value)
        elif key == b"size" and value.isdigit():
            size = int(value)
    return longer, size


def _name(header):
    prefix = _text(header[345:500]) if header[257:262] == b"ustar" else ""
    name = _text(header[:100])
    return "%s/%s" % (prefix, name) if prefix and header[257:265] == b"ustar\00000" else name


def _text(field):
    return field.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _split(name):
    """Key of a sample and suffix of a member: up to the first point of the last part."""
    folder, _, last = name.rpartition("/")
    stem, point, suffix = last.partition(".")
    return folder + "/" + stem, (point + suffix).lower()
