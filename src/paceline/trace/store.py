"""Workload files: NPZ arrays without pickle and a JSON header, in one file.

A workload can be shared without its code. Whoever reads one trusts nothing in it: sizes are
checked before anything is decompressed, and pointers before anything follows them.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.trace.graph import Graph, OpTable, StorageTable, TensorTable
from paceline.trace.workload import Pass, ReferenceJob, Workload
from paceline.writing import whole_file

FORMAT_VERSION = 2
#: Version 1 has columns of integers as they are.
_KNOWN_VERSIONS = (1, FORMAT_VERSION)
_MAX_FILE_BYTES = 64 * 2**20
_MAX_ARRAY_BYTES = 512 * 2**20
_HEADER = "workload.json"
_TABLES: tuple[tuple[str, type], ...] = (
    ("ops", OpTable), ("tensors", TensorTable), ("storages", StorageTable),
)  # fmt: skip
_DTYPES: Mapping[str, str] = {
    "kind": "int16", "variant": "int16", "phase": "int8", "module": "int32", "flop": "float64",
    "dims": "float64", "input_start": "int32", "input_tensor": "int32", "output_start": "int32",
    "output_tensor": "int32", "storage": "int32", "elements": "float64", "dtype": "int8",
    "owner": "int8", "birth": "int32", "death": "int32", "is_saved": "bool",
    "is_trainable": "bool", "is_wide": "bool",
}  # fmt: skip


def save_workload(workload: Workload, path: Path) -> None:
    """Write ``workload`` to one file. The bytes depend on the workload only.

    Raises:
        InvalidInputError: The name does not end in ``.npz``, or the file cannot be written.
    """
    if path.suffix != ".npz":
        raise InvalidInputError(
            f"`{path}` would not be taken for a workload file", hint="end its name with .npz"
        )
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        header = json.dumps(_header(workload), indent=1, ensure_ascii=False)
        _add(archive, _HEADER, header.encode())
        for number, one in enumerate(workload.passes):
            for table, _ in _TABLES:
                for name, array in _packed(getattr(one.graph, table)).items():
                    _add(archive, f"{number}.{table}.{name}.npy", _npy(array))
    with whole_file(path) as draft:
        draft.write_bytes(content.getvalue())


def read_workload(path: Path) -> Workload:
    """Read a workload file.

    Raises:
        InvalidInputError: Missing, too large, damaged, or not a workload of this version.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise _broken(path, "it is larger than 64 MiB")
        with zipfile.ZipFile(path) as archive:
            members = _read_members(path, archive)
        return _workload(members)
    except OSError as error:
        raise InvalidInputError(
            f"cannot read the workload file `{path}` ({error.strerror or error})",
            hint="write one with `paceline trace MODEL --save FILE`",
        ) from error
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, IndexError, EOFError,
            NotImplementedError, RuntimeError, AttributeError, zlib.error) as error:  # fmt: skip
        raise _broken(path, f"{type(error).__name__}: {error}") from error


def _read_members(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    infos = archive.infolist()
    if sum(info.file_size for info in infos) > _MAX_ARRAY_BYTES:
        raise _broken(path, "it unpacks to more than 512 MiB")
    members = {}
    for info in infos:
        with archive.open(info) as member:
            members[info.filename] = member.read(info.file_size + 1)
    return members


def _broken(path: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"`{path}` is not a workload file that can be used: {reason}",
        hint="write one with `paceline trace MODEL --save FILE`",
    )


def _workload(members: Mapping[str, bytes]) -> Workload:
    header = json.loads(members[_HEADER])
    if header["format_version"] not in _KNOWN_VERSIONS:
        raise ValueError(f"format version {header['format_version']}, known is {FORMAT_VERSION}")
    passes = tuple(_pass(members, n, one) for n, one in enumerate(header["passes"]))
    job = header["reference_job"]
    fields = {f.name: header[f.name] for f in dataclasses.fields(Workload) if f.name in header}
    return Workload(
        **{**fields, "passes": passes, "reference_job": ReferenceJob(**job) if job else None}
    )


def _pass(members: Mapping[str, bytes], number: int, header: Mapping[str, Any]) -> Pass:
    tables = {}
    for table, kind in _TABLES:
        prefix = f"{number}.{table}."
        arrays = {
            name.removeprefix(prefix).removesuffix(".npy"): _array(content)
            for name, content in members.items()
            if name.startswith(prefix)
        }
        tables[table] = kind(**_unpacked(arrays))
    graph = Graph(
        name=str(header["graph"]),
        variables=(str(header["variables"][0]), str(header["variables"][1])),
        modules=tuple(map(str, header["modules"])),
        ops=tables["ops"],
        tensors=tables["tensors"],
        storages=tables["storages"],
    )
    _check(graph)
    return Pass(
        name=str(header["name"]),
        graph=graph,
        repeats=float(header["repeats"]),
        runs_on="host" if header["runs_on"] == "host" else "device",
    )


def _check(graph: Graph) -> None:
    """Pointers stay inside their tables."""
    ops, tensors, storages = graph.ops, graph.tensors, graph.storages
    num_ops, num_tensors, num_storages = len(ops.kind), len(tensors.storage), len(storages.dtype)
    for starts, values in ((ops.input_start, ops.input_tensor),
                           (ops.output_start, ops.output_tensor)):  # fmt: skip
        if len(starts) != num_ops + 1 or starts[0] != 0 or starts[-1] != len(values):
            raise ValueError("row pointers do not fit their table")
        if (np.diff(starts) < 0).any():
            raise ValueError("row pointers fall")
        _check_range(values, num_tensors, "tensor")
    _check_range(tensors.storage, num_storages, "storage")
    _check_range(ops.module, max(len(graph.modules), 1), "module")
    if not all(np.isfinite(a).all() for a in (ops.flop, ops.dims, storages.elements)):
        raise ValueError("a coefficient is not finite")
    if (storages.birth < -1).any() or (storages.death > num_ops).any():
        raise ValueError("a storage lives outside the pass")


def _check_range(values: npt.NDArray[np.int32], count: int, what: str) -> None:
    if len(values) and (values.min() < 0 or values.max() >= count):
        raise ValueError(f"a {what} pointer is outside its table")


def _header(workload: Workload) -> dict[str, Any]:
    fields = {f.name: getattr(workload, f.name) for f in dataclasses.fields(Workload)}
    job = workload.reference_job
    return {
        "format_version": FORMAT_VERSION,
        **fields,
        "reference_job": dataclasses.asdict(job) if job else None,
        "passes": [
            {
                "name": one.name,
                "repeats": one.repeats,
                "runs_on": one.runs_on,
                "graph": one.graph.name,
                "variables": list(one.graph.variables),
                "modules": list(one.graph.modules),
            }
            for one in workload.passes
        ],
    }


def _packed(table: Any) -> dict[str, npt.NDArray[Any]]:
    """Arrays of a table; rows of coefficients as distinct rows and an index."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for field in dataclasses.fields(table):
        array = getattr(table, field.name)
        if array.dtype == np.int32:
            arrays[f"{field.name}.planes"] = _planes(array)
        elif array.dtype != np.float64:
            arrays[field.name] = array
        else:
            flat = array.reshape(len(array), int(np.prod(array.shape[1:])))
            distinct, index = np.unique(flat, axis=0, return_inverse=True)
            arrays[f"{field.name}.rows"] = distinct.reshape(-1, *array.shape[1:])
            arrays[f"{field.name}.index.planes"] = _planes(index.reshape(-1).astype(np.int32))
    return arrays


def _planes(column: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """Differences of a column of integers, a row for each of their bytes: (4, len(column)).

    Blocks of a network refer to each other alike, so that their differences repeat.
    """
    differences = np.diff(column, prepend=np.int32(0)).astype("<i4")
    return differences.view(np.uint8).reshape(len(column), 4).T


def _column(planes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """The column that `_planes` took apart."""
    if planes.dtype != np.uint8 or planes.ndim != 2 or len(planes) != 4:
        raise ValueError(f"planes of type {planes.dtype} and shape {planes.shape}")
    differences = np.ascontiguousarray(planes.T).view("<i4").reshape(-1)
    return np.cumsum(differences, dtype=np.int32)


def _unpacked(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    columns = {
        name.removesuffix(".planes"): _column(array) if name.endswith(".planes") else array
        for name, array in arrays.items()
    }
    unpacked = {}
    for name, array in columns.items():
        field, _, part = name.partition(".")
        if part == "index":
            continue
        whole = array[columns[f"{field}.index"]] if part == "rows" else array
        if whole.dtype != np.dtype(_DTYPES[field]):
            raise ValueError(f"`{field}` is of type {whole.dtype}")
        unpacked[field] = whole
    return unpacked


def _npy(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _array(content: bytes) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    return array


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, content)
