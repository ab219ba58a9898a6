"""Where samples come from: one reader per kind of storage.

A reader knows how many samples there are, reads any of them by its index from any thread, and
names it in a message. It raises ``DamagedSample`` for a sample that cannot be read, and lists in
``damaged`` what it could not even count. Nothing is unpickled, and no code in a file is run.
"""

import glob
import os

from .arrays import Arrays, Dataset, Synthetic
from .folders import ImageFolder
from .lmdb_pages import LmdbFile
from .records import UnreadableData
from .tables import ArrowFiles, ParquetFiles
from .tars import TarFiles
from .tokens import TokenFiles

__all__ = [
    "Arrays",
    "ArrowFiles",
    "Dataset",
    "ImageFolder",
    "LmdbFile",
    "ParquetFiles",
    "Synthetic",
    "TarFiles",
    "TokenFiles",
    "UnreadableData",
    "open_reader",
]

_BY_SUFFIX = {
    ".tar": TarFiles,
    ".parquet": ParquetFiles,
    ".arrow": ArrowFiles,
}
_LMDB_SUFFIXES = (".mdb", ".lmdb")
_TOKEN_SUFFIXES = (".bin", ".npy", ".u16", ".u32")


def open_reader(data, window=None, dtype=None, limits=None):
    """The reader for ``data``.

    Args:
        data: A folder of images, tar shards, Parquet or Arrow files or an LMDB; a file or a glob
            pattern of them; token files if ``window`` is given; an array or a tuple of arrays; a
            data set with ``len`` and ``[]``; or a reader.
        window: Tokens of a sample; for token files.
        dtype: Of token files without a header, such as ``"uint16"``.
        limits: Of type ``decode.Limits``.

    Raises:
        UnreadableData: Nothing there that a reader knows.
    """
    options = {} if limits is None else {"limits": limits}
    if hasattr(data, "read") and hasattr(data, "name_of"):
        return data
    if isinstance(data, (str, os.PathLike)):
        return _open_path(os.fspath(data), window, dtype, options)
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], (str, os.PathLike)):
        return _open_files([os.fspath(one) for one in data], window, dtype, options)
    if hasattr(data, "shape") or isinstance(data, tuple):
        return Arrays(data)
    if hasattr(data, "__len__") and hasattr(data, "__getitem__"):
        return Dataset(data)
    raise UnreadableData("no reader for a %s" % type(data).__name__)


def _open_path(path, window, dtype, options):
    if os.path.isdir(path):
        return _open_folder(path, window, dtype, options)
    files = [path] if os.path.isfile(path) else sorted(glob.glob(path, recursive=True))
    if not files:
        raise UnreadableData("`%s` is no file, folder or pattern that matches one" % path)
    return _open_files(files, window, dtype, options)


def _open_folder(path, window, dtype, options):
    if os.path.isfile(os.path.join(path, "data.mdb")):
        return LmdbFile(os.path.join(path, "data.mdb"), **options)
    for suffix in (*_BY_SUFFIX, *(_TOKEN_SUFFIXES if window else ())):
        files = sorted(
            glob.glob(os.path.join(glob.escape(path), "**", "*" + suffix), recursive=True)
        )
        if files:
            return _open_files(files, window, dtype, options)
    return ImageFolder(path, **options)


def _open_files(files, window, dtype, options):
    suffix = os.path.splitext(files[0])[1].lower()
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix](files, **options)
    if suffix in _LMDB_SUFFIXES:
        return LmdbFile(files[0], **options)
    if window:
        return TokenFiles(files, window, dtype)
    if suffix in _TOKEN_SUFFIXES:
        raise UnreadableData("`%s` looks like tokens" % files[0], "say the window: window=1024")
    raise UnreadableData("no reader for `%s`" % files[0])
