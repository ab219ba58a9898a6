"""Workload files: columns of whole numbers and a JSON header, in one file.

A workload can be shared without its code. Whoever reads one trusts nothing in it: sizes are
checked before anything is decompressed, and pointers before anything follows them.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.model.graph.columns import read, steps, written
from paceline.model.graph.graph import Graph, IntArray
from paceline.model.graph.packing import pack, unpack
from paceline.model.graph.sides import Sides, input_bytes
from paceline.model.graph.workload import Pass, ReferenceJob, Workload, unit_of_item
from paceline.patterns import pattern
from paceline.writing import whole_file

FORMAT_VERSION = 4
_MAX_FILE_BYTES = 64 * 2**20
_MAX_ARRAY_BYTES = 512 * 2**20
_HEADER, _COLUMNS = "workload.json", "columns.bin"
#: A number in a module's name, as it is written again.
_NUMBER = pattern(r"(?<!\d)(0|[1-9]\d{0,8})(?!\d)")


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
    header, columns = _header(usual), []
    for number, one in enumerate(usual.passes):
        header["passes"][number]["modules"], names = _written_names(one.graph.modules)
        columns += [*names, *pack([other.passes[number].graph for other in all_sides])]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _add(archive, _HEADER, json.dumps(header | more, ensure_ascii=False).encode())
        _add(archive, _COLUMNS, written(columns))
    with whole_file(path) as draft:
        draft.write_bytes(content.getvalue())


def read_workload(path: Path, *, side: int | None = None) -> Workload:
    """Read a workload file.

    ``side``: of its pictures, where it answers at any; else without effect.

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
            NotImplementedError, RuntimeError, AttributeError, StopIteration,
            zlib.error) as error:  # fmt: skip
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
    if header["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format version {header['format_version']}, known is {FORMAT_VERSION}")
    sides = Sides(**header["sides"]) if "sides" in header else None
    asked = sides.usual if sides is not None and side is None else side
    position = None
    if sides is not None and asked is not None:
        position = sides.position(asked, name=header["name"])
    columns = read(members[_COLUMNS])
    passes = tuple([_pass(columns, one, position) for one in header["passes"]])
    job = header["reference_job"]
    fields = {f.name: header[f.name] for f in dataclasses.fields(Workload) if f.name in header}
    fields["sample_unit"] = unit_of_item(fields["sample_unit"], fields["input_description"])
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


def _pass(columns: Iterator[IntArray], header: Mapping[str, Any], position: int | None) -> Pass:
    modules = _names(header["modules"], columns)
    tables = unpack(columns, position=position)
    graph = Graph(
        name=str(header["graph"]),
        variables=(str(header["variables"][0]), str(header["variables"][1])),
        modules=modules,
        ops=tables.ops,
        tensors=tables.tensors,
        storages=tables.storages,
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
            }
            for one in workload.passes
        ],
    }


def _written_names(modules: Sequence[str]) -> tuple[list[list[str]], list[IntArray]]:
    """Names of modules as what stands between their numbers, and columns of both.

    Columns: which of the distinct names each module has, and its first number, its second and so
    on, each as the step from that of the module before it.
    """
    split = [_NUMBER.split(name) for name in modules]
    plain = list(dict.fromkeys(tuple(parts[::2]) for parts in split))
    place = {parts: number for number, parts in enumerate(plain)}
    numbers = [[int(parts[at]) for parts in split if len(parts) > at] for at in _places(plain)]
    which = np.array([place[tuple(parts[::2])] for parts in split], dtype=np.int64)
    return [list(parts) for parts in plain], [which, *(steps(np.array(one)) for one in numbers)]


def _names(plain: Sequence[Sequence[str]], columns: Iterator[IntArray]) -> tuple[str, ...]:
    """The names that `_written_names` took apart."""
    which = next(columns).tolist()
    numbers = [iter(np.cumsum(next(columns)).tolist()) for _ in _places(plain)]
    return tuple(_name(plain[one], numbers) for one in which)


def _name(parts: Sequence[str], numbers: Sequence[Iterator[int]]) -> str:
    between = zip(numbers, parts[1:], strict=False)
    return str(parts[0]) + "".join(f"{next(number)}{part}" for number, part in between)


def _places(plain: Sequence[Sequence[str]]) -> range:
    """Where numbers stand in the longest of the names, once they are split."""
    return range(1, 2 * max(map(len, plain), default=1) - 1, 2)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, content)
