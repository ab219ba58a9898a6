"""Small files of every kind that the readers know, made when they are asked for."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def pixels(width: int = 48, height: int = 40, seed: int = 0) -> np.ndarray:
    """A smooth image with some noise."""
    y, x = np.mgrid[0:height, 0:width]
    base = np.stack([x * 4 + seed, y * 5, (x + y) * 2 + 3 * seed], axis=-1) % 256
    noise = np.random.default_rng(seed).integers(0, 12, base.shape)
    return np.asarray(np.clip(base + noise, 0, 255), np.uint8)


def encoded(kind: str = "JPEG", seed: int = 0, **options: object) -> bytes:
    """An image file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels(seed=seed)).save(buffer, kind, **options)
    return buffer.getvalue()


def folder(root: Path, count: int = 12) -> Path:
    """Images in three classes."""
    for number in range(count):
        path = root / f"class{number % 3}" / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(seed=number))
    return root


def tar(path: Path, count: int = 8) -> Path:
    """A WebDataset shard."""
    with tarfile.open(path, "w") as shard:
        for number in range(count):
            for suffix, data in (("jpg", encoded(seed=number)), ("cls", b"%d" % (number % 3))):
                member = tarfile.TarInfo(f"{number:04d}.{suffix}")
                member.size = len(data)
                shard.addfile(member, io.BytesIO(data))
    return path


def table(count: int = 8) -> pa.Table:
    """Images and labels as Hugging Face datasets keep them."""
    images = [{"bytes": encoded(seed=n), "path": f"{n}.jpg"} for n in range(count)]
    return pa.table({"image": pa.array(images), "label": [n % 3 for n in range(count)]})


def parquet(path: Path, count: int = 8) -> Path:
    """Rows in groups of four."""
    pq.write_table(table(count), path, row_group_size=4)
    return path


def arrow(path: Path, count: int = 8) -> Path:
    """An Arrow stream in batches of four."""
    rows = table(count)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=4)
    return path


def lmdb_file(path: Path, count: int = 8, size: int | None = None) -> Path:
    """The file of an LMDB; values of ``size`` bytes instead of images if given."""
    values = [
        encoded(seed=number) if size is None else bytes([number % 251]) * size
        for number in range(count)
    ]
    return lmdb_of(path, {b"%08d" % number: value for number, value in enumerate(values)})


def lmdb_of(path: Path, values: dict[bytes, bytes]) -> Path:
    """The file of an LMDB with these values."""
    database = lmdb.open(str(path), map_size=1 << 26, subdir=False, lock=False)
    with database, database.begin(write=True) as transaction:
        for key, value in values.items():
            transaction.put(key, value)
    return path


def tokens(path: Path, count: int = 1000) -> Path:
    """Token numbers of two bytes; ``.npy`` with a header."""
    numbers = np.arange(count, dtype=np.uint16)
    if path.suffix == ".npy":
        np.save(path, numbers)
    else:
        numbers.tofile(path)
    return path
