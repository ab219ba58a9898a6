"""Damage files at random, read them, and count what came of it.

Usage: python tests/unit/loop/damage.py [CASES] [SEED]

Every case changes one file of one format: bytes flipped, cut off, doubled, filled, or set to ones.
A reader must count and name what it cannot read, and may not crash, unpickle, or take memory beyond
the limits. The process ends with a status other than 0 if it does.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import samples

from paceline.loop.decode import DamagedSample, Limits, Recipe, decode
from paceline.loop.readers import UnreadableData, open_reader

LIMITS = Limits(pixels=2**22, sample_bytes=2**22, scans=100)
RECIPE = Recipe(32, 0.875, False, False)
#: Above what the process has after its imports and first cases.
MOST_BYTES = 600e6
_UNPICKLED: list[str] = []


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event == "pickle.find_class":
        _UNPICKLED.append(str(arguments))


def originals(root: Path) -> dict[str, bytes]:
    """One whole file of each format."""
    root.mkdir(parents=True, exist_ok=True)
    return {
        "a.jpg": samples.encoded(),
        "progressive.jpg": samples.encoded(progressive=True),
        "b.png": samples.encoded("PNG"),
        "c.tar": samples.tar(root / "c.tar").read_bytes(),
        "d.parquet": samples.parquet(root / "d.parquet").read_bytes(),
        "e.arrow": samples.arrow(root / "e.arrow").read_bytes(),
        "f.mdb": samples.lmdb_file(root / "f.mdb").read_bytes(),
        "g.bin": samples.tokens(root / "g.bin").read_bytes(),
        "h.npy": samples.tokens(root / "h.npy").read_bytes(),
    }


def damaged(data: bytes, draw: np.random.Generator) -> bytes:
    """The bytes with one kind of damage."""
    found, size = bytearray(data), len(data)
    # Half of all changes hit the first or last part, where the structure is.
    places = [
        draw.integers(size),
        draw.integers(min(size, 256)),
        size - 1 - draw.integers(min(size, 256)),
    ]
    place = int(places[draw.integers(3)])
    kind = draw.integers(6)
    if kind == 0:
        for _ in range(int(draw.integers(1, 9))):
            found[int(draw.integers(size))] ^= 1 << int(draw.integers(8))
    elif kind == 1:
        del found[place:]
    elif kind == 2:
        found[place:place] = found[place : place + int(draw.integers(1, 600))]
    elif kind == 3:
        found[place : place + 8] = b"\xff" * len(found[place : place + 8])
    elif kind == 4:
        found[place : place + 64] = bytes(len(found[place : place + 64]))
    else:
        found[place] = int(draw.integers(256))
    return bytes(found)


def read_all(path: Path) -> tuple[int, int]:
    """Samples read, and damaged ones."""
    reader = open_reader(str(path), window=64, dtype="uint16", limits=LIMITS)
    whole, broken = 0, len(reader.damaged)
    out = np.empty((32, 32, 3), np.uint8)
    for index in range(min(len(reader), 50)):
        try:
            stored = reader.read(index)
            if reader.kind == "image":
                decode(stored.data, RECIPE, out, None, LIMITS)
            whole += 1
        except DamagedSample as error:
            broken += bool(str(error) and reader.name_of(index))
    return whole, broken


def one_case(path: Path, data: bytes) -> str:
    """What came of one file: ``whole``, ``counted`` (some samples damaged) or ``refused``."""
    if path.suffix in (".jpg", ".png"):
        try:
            decode(data, RECIPE, np.empty((32, 32, 3), np.uint8), None, LIMITS)
        except DamagedSample:
            return "counted"
        return "whole"
    path.write_bytes(data)
    try:
        _, broken = read_all(path)
    except UnreadableData:
        return "refused"
    finally:
        path.unlink()
    return "counted" if broken else "whole"


def run(num_cases: int, seed: int, root: Path, tell: Callable[[str], None] = print) -> Counter[str]:
    """So many cases; what came of them by format."""
    sys.addaudithook(_audit)
    draw, files, found = np.random.default_rng(seed), originals(root / "whole"), Counter[str]()
    for name, data in files.items():
        assert one_case(root / name, data) == "whole", name
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for case in range(num_cases):
        name = list(files)[case % len(files)]
        found[f"{name}: {one_case(root / name, damaged(files[name], draw))}"] += 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    assert not _UNPICKLED, _UNPICKLED
    assert grown < MOST_BYTES, grown
    tell(f"{num_cases} cases, memory grew by {grown / 1e6:.0f} MB, nothing unpickled")
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        num_cases, seed = (int(a) for a in [*sys.argv[1:], *["2000", "0"][len(sys.argv) - 1 :]])
        for line, count in sorted(run(num_cases, seed, Path(folder)).items()):
            print(f"  {line} {count}")
