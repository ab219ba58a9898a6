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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.model.graph.columns import IntColumn, packed, unpacked
from paceline.model.graph.graph import FloatArray, Graph, OpTable, StorageTable, TensorTable
from paceline.model.graph.sides import Sides, at_position, differences, input_bytes
from paceline.model.graph.workload import Pass, ReferenceJob, Workload
from paceline.writing import whole_file

FORMAT_VERSION = 3
#: Version 1 has columns of integers as they are, each a file of the archive; version 2 has their
#: differences, without lags.
_KNOWN_VERSIONS = (1, 2, FORMAT_VERSION)
_MAX_FILE_BYTES = 64 * 2**20
_MAX_ARRAY_BYTES = 512 * 2**20
_HEADER, _COLUMNS = "workload.json", "columns.bin"
_PLANES = ".planes"
_Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
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
    _save(workload, [workload], path)


def save_sides(workloads: Sequence[Workload], sides: Sides, path: Path) -> None:
    """Write one model's graphs at ``sides.traced()`` to one file, which answers at any side.

    Raises:
        ValueError: The operations change with the side.
        InvalidInputError: As of `save_workload`.
    """
    usual = workloads[sides.traced().index(sides.usual)]
    _save(usual, workloads, path, sides=dataclasses.asdict(sides))


def _save(usual: Workload, all_sides: Sequence[Workload], path: Path, **more: Any) -> None:
    if path.suffix != ".npz":
        raise InvalidInputError(
            f"`{path}` would not be taken for a workload file", hint="end its name with .npz"
        )
    columns = {
        f"{number}.{table}.{name}": array
        for number in range(len(usual.passes))
        for table, _ in _TABLES
        for name, array in _packed(
            [getattr(one.passes[number].graph, table) for one in all_sides]
        ).items()
    }
    header = {**_header(usual), **more, "columns": list(columns)}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, _HEADER, json.dumps(header, ensure_ascii=False).encode())
        _add(archive, _COLUMNS, b"".join(map(_npy, columns.values())))
    with whole_file(path) as draft:
        draft.write_bytes(content.getvalue())


def read_workload(path: Path, *, side: int | None = None) -> Workload:
    """Read a workload file.

    Args:
        path: The file.
        side: Of its pictures, where it answers at any; else without effect.

    Raises:
        InvalidInputError: Missing, too large, damaged, or not a workload of this version.
    """
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise _broken(path, "it is larger than 64 MiB")
        with zipfile.ZipFile(path) as archive:
            members = _read_members(path, archive)
        return _workload(members, side)
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


def _workload(members: Mapping[str, bytes], side: int | None) -> Workload:
    header = json.loads(members[_HEADER])
    if header["format_version"] not in _KNOWN_VERSIONS:
        raise ValueError(f"format version {header['format_version']}, known is {FORMAT_VERSION}")
    sides = Sides(**header["sides"]) if "sides" in header else None
    asked = sides.usual if sides is not None and side is None else side
    position = None
    if sides is not None and asked is not None:
        position = sides.position(asked, name=header["name"])
    columns = _columns(header, members)
    passes = tuple(_pass(columns, n, one, position) for n, one in enumerate(header["passes"]))
    job = header["reference_job"]
    fields = {f.name: header[f.name] for f in dataclasses.fields(Workload) if f.name in header}
    workload = Workload(
        **{**fields, "passes": passes, "reference_job": ReferenceJob(**job) if job else None}
    )
    if sides is None or asked in (None, sides.usual):
        return workload
    return dataclasses.replace(
        workload,
        input_description=workload.input_description.replace(str(sides.usual), str(asked)),
        sample_bytes=input_bytes(passes[0].graph, workload.default_seq),
    )


def _columns(header: Mapping[str, Any], members: Mapping[str, bytes]) -> _Columns:
    """Columns of all tables by name; those of version 1 are members of their own."""
    if "columns" not in header:
        files = (name for name in members if name.endswith(".npy"))
        return {name.removesuffix(".npy"): _array(io.BytesIO(members[name])) for name in files}
    content = io.BytesIO(members[_COLUMNS])
    return {str(name): _array(content) for name in header["columns"]}


def _pass(columns: _Columns, number: int, header: Mapping[str, Any], position: int | None) -> Pass:
    tables = {}
    for table, kind in _TABLES:
        prefix = f"{number}.{table}."
        arrays = {
            name.removeprefix(prefix): array
            for name, array in columns.items()
            if name.startswith(prefix)
        }
        tables[table] = kind(**_unpacked(arrays, position))
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


def _packed(tables: Sequence[Any]) -> dict[str, npt.NDArray[Any]]:
    """Arrays of a table; rows of coefficients, at all sides at once, as distinct rows and an index.

    Raises:
        ValueError: What are no coefficients differs between the sides.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for field in dataclasses.fields(tables[0]):
        array, *others = (getattr(table, field.name) for table in tables)
        if array.dtype == np.float64:
            rows, index = _distinct(_over_sides(array, *others) if others else array)
            arrays |= {f"{field.name}.rows": rows, **_as_planes(f"{field.name}.index", index)}
        elif not all(np.array_equal(array, other) for other in others):
            raise ValueError(f"`{field.name}` changes with the side")
        elif array.dtype == np.int32:
            arrays |= _as_planes(field.name, array)
        else:
            arrays[field.name] = array
    return arrays


def _as_planes(name: str, column: IntColumn) -> dict[str, npt.NDArray[Any]]:
    """A column of integers by its name in the file, which has its lags: ``storage.planes+187``."""
    planes, lags = packed(column)
    return {"+".join([f"{name}{_PLANES}", *map(str, lags)]): planes}


def _over_sides(*arrays: FloatArray) -> FloatArray:
    """Coefficients at all sides, as differences: those of higher orders are mostly zero."""
    return differences(np.stack(arrays, axis=1))


def _distinct(array: FloatArray) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    """Distinct rows, and the number of each row among them."""
    flat = array.reshape(len(array), int(np.prod(array.shape[1:])))
    distinct, index = np.unique(flat, axis=0, return_inverse=True)
    return distinct.reshape(-1, *array.shape[1:]), index.reshape(-1).astype(np.int32)


def _unpacked(
    arrays: Mapping[str, npt.NDArray[Any]], position: int | None
) -> dict[str, npt.NDArray[Any]]:
    columns = {}
    for name, array in arrays.items():
        field, is_packed, lags = name.partition(_PLANES)
        columns[field] = unpacked(array, _lags(lags)) if is_packed else array
    whole_arrays = {}
    for name, array in columns.items():
        field, _, part = name.partition(".")
        if part == "index":
            continue
        whole = array
        if part == "rows":
            rows = array if position is None else at_position(array.astype(np.float64), position)
            whole = rows[columns[f"{field}.index"]]
        if whole.dtype != np.dtype(_DTYPES[field]):
            raise ValueError(f"`{field}` is of type {whole.dtype}")
        whole_arrays[field] = whole
    return whole_arrays


def _lags(text: str) -> tuple[int, ...]:
    """Lags at the end of a column's name, ``+187+99``."""
    return tuple(map(int, text.split("+")[1:]))


def _npy(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _array(content: io.BytesIO) -> npt.NDArray[Any]:
    """The next array of a stream."""
    array: npt.NDArray[Any] = np.load(content, allow_pickle=False)
    return array


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, content)
