"""What a worker reported, checked and turned into arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.dtypes import ELEMENT_BYTES, DType
from paceline.errors import WorkerError
from paceline.model.graph import polynomial
from paceline.model.graph.graph import FloatArray, IntArray, monomials
from paceline.values import dataclass

_DTYPES = {
    "float32": DType.FP32, "float64": DType.FP64, "float16": DType.FP16, "bfloat16": DType.BF16,
    "float8_e4m3fn": DType.FP8, "float8_e5m2": DType.FP8, "int64": DType.INT64,
    "int32": DType.INT32, "int16": DType.INT16, "int8": DType.INT8, "uint8": DType.UINT8,
    "bool": DType.BOOL, "complex64": DType.COMPLEX64,
}  # fmt: skip
#: What a worker writes after the name of an operator that is launched once for each item.
_PER_ITEM = "@each"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ragged:
    """Rows of different lengths in one flat array.

    Attributes:
        start: Row pointers, (num_rows + 1,).
    """

    start: IntArray
    values: IntArray

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> Ragged:
        """Flatten a list of lists."""
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        flat = np.fromiter((v for row in lists for v in row), dtype=np.int64, count=lengths.sum())
        return cls(start=np.concatenate(([0], np.cumsum(lengths))), values=flat)

    def lengths(self) -> IntArray:
        """Length of each row."""
        return np.diff(self.start)

    def at(self, rows: IntArray, position: int | IntArray) -> IntArray:
        """Value at ``position`` of each row; negative positions count from the row's end."""
        position = np.asarray(position)
        base = np.where(position < 0, self.start[rows + 1], self.start[rows])
        values: IntArray = self.values[base + position]
        return values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawPass:
    """One traced pass: operators as the dispatcher saw them.

    Attributes:
        variables: Names of the free variables.
        modules: Dotted module paths.
        op_names: Operator name and tag (``aten::relu|pointwise``) that ``op_name`` points into.
        op_name: Operator, (num_ops,).
        is_per_item: Whether it is launched once for each item of the batch, (num_ops,).
        phase: ``Phase`` codes, (num_ops,).
        module: Module, (num_ops,).
        inputs: Tensors read per op.
        outputs: Tensors written per op.
        attributes: Scalars per op.
        tensor_storage: Storage of each tensor, (num_tensors,).
        tensor_dtype: ``DType`` of each tensor, (num_tensors,).
        tensor_ndim: Number of dims, (num_tensors,).
        dims: Extents, padded with ones at the end, (num_tensors, max_ndim, 9).
        storage_elements: Elements of ``storage_dtype``, (num_storages, 9).
        storage_dtype: ``DType`` codes.
        birth: Op before which the storage exists; -1: before the pass.
        death: Op after which it is gone; num_ops: after the pass.
        owner: ``Owner`` codes.
        is_trainable: For parameters.
    """

    name: str
    variables: tuple[str, str]
    modules: tuple[str, ...]
    op_names: tuple[str, ...]
    op_name: IntArray
    is_per_item: npt.NDArray[np.bool_]
    phase: IntArray
    module: IntArray
    inputs: Ragged
    outputs: Ragged
    attributes: Ragged
    tensor_storage: IntArray
    tensor_dtype: IntArray
    tensor_ndim: IntArray
    dims: FloatArray
    storage_elements: FloatArray
    storage_dtype: IntArray
    birth: IntArray
    death: IntArray
    owner: IntArray
    is_trainable: npt.NDArray[np.bool_]


def parse_pass(reported: Mapping[str, Any]) -> RawPass:
    """Arrays of one reported pass.

    Raises:
        WorkerError: The report does not have the agreed form.
    """
    try:
        return _parse(reported)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise WorkerError(
            f"the worker's result cannot be read ({type(error).__name__}: {error})",
            hint="its Python may hold files of another paceline version; reinstall paceline",
        ) from error


def _parse(reported: Mapping[str, Any]) -> RawPass:
    topology = reported["topology"]
    ops = topology["ops"]
    op_name = np.array([op[0] for op in ops], dtype=np.int64)
    is_per_item = np.array([name.endswith(_PER_ITEM) for name in topology["names"]], dtype=bool)
    points = np.array(reported["points"], dtype=np.float64)
    ndim = np.array(topology["tensor_ndim"], dtype=np.int64)
    dtypes = np.array([_DTYPES[name] for name in topology["dtypes"]], dtype=np.int64)
    storage_dtype = dtypes[np.array(topology["storage_dtype"], dtype=np.int64)]
    num_bytes = np.array([n["bytes"] for n in reported["numbers"]], dtype=np.float64)
    element_bytes = np.array(ELEMENT_BYTES)[storage_dtype]
    first, second = reported["variables"]
    dims = _padded_dims(points, reported["numbers"], ndim)
    tensor_storage = np.array(topology["tensor_storage"], dtype=np.int64)
    return RawPass(
        name=str(reported["name"]),
        variables=(str(first), str(second)),
        modules=tuple(reported["modules"]),
        op_names=tuple(name.removesuffix(_PER_ITEM) for name in topology["names"]),
        op_name=op_name,
        is_per_item=is_per_item[op_name],
        phase=np.array([op[1] for op in ops], dtype=np.int64),
        module=np.array([op[2] for op in ops], dtype=np.int64),
        inputs=Ragged.from_lists([op[3] for op in ops]),
        outputs=Ragged.from_lists([op[4] for op in ops]),
        attributes=Ragged.from_lists([op[5] for op in ops]),
        tensor_storage=tensor_storage,
        tensor_dtype=dtypes[np.array(topology["tensor_dtype"], dtype=np.int64)],
        tensor_ndim=ndim,
        dims=dims,
        storage_elements=_storage_elements(points, num_bytes / element_bytes, dims, tensor_storage),
        storage_dtype=storage_dtype,
        birth=np.array(topology["birth"], dtype=np.int64),
        death=np.array(topology["death"], dtype=np.int64),
        owner=np.array(topology["owner"], dtype=np.int64),
        is_trainable=np.array(topology["trainable"], dtype=bool),
    )


def _padded_dims(
    points: FloatArray, numbers: Sequence[Mapping[str, Any]], ndim: IntArray
) -> FloatArray:
    flat = np.array([n["dims"] for n in numbers], dtype=np.float64)
    varies = np.flatnonzero(np.ptp(flat, axis=0) > 0)
    rows = polynomial.constant(flat[0])
    rows[varies] = polynomial.fit(points, flat[:, varies])
    padded = np.zeros((len(ndim), max(int(ndim.max(initial=1)), 1), 9))
    padded[:, :, 0] = 1.0
    tensor = np.repeat(np.arange(len(ndim)), ndim)
    position = np.arange(len(rows)) - np.repeat(np.cumsum(ndim) - ndim, ndim)
    padded[tensor, position] = rows
    return padded


def _storage_elements(
    points: FloatArray, seen: FloatArray, dims: FloatArray, tensor_storage: IntArray
) -> FloatArray:
    """Sizes of storages; where they are products of extents, such as S (S + 1), from a tensor."""
    rows = polynomial.fit_or_nan(points, seen)
    open_rows = np.flatnonzero(np.isnan(rows[:, 0]))
    if not open_rows.size:
        return rows
    tensors = np.flatnonzero(np.isin(tensor_storage, open_rows))
    elements, storage = polynomial.product(dims[tensors]), tensor_storage[tensors]
    at_points = monomials(points[:, 0], points[:, 1])
    is_whole = np.isclose(at_points @ elements.T, seen[:, storage], rtol=1e-6).all(axis=0)
    rows[storage[is_whole]] = elements[is_whole]
    if np.isnan(rows).any():
        # Says what is wrong.
        polynomial.fit(points, seen[:, np.isnan(rows[:, 0])])
    return rows
