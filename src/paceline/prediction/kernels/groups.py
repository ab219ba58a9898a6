"""Which op kinds share an efficiency model, and their shape numbers in that model's terms."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cache

import numpy as np
import numpy.typing as npt

from paceline.dtypes import DType, Precision
from paceline.model.graph.costs import CostTable
from paceline.model.graph.distinct import distinct, distinct_rows
from paceline.model.graph.graph import FloatArray, IntArray, OpKind
from paceline.model.ops.facts import Efficiency, StreamFamily
from paceline.model.ops.registry import FACTS, column, is_one_of, kinds_where
from paceline.prediction.features import Array, ConvShape

#: Where the shape numbers of attention say how many query rows there are.
_Q_LEN = 3


class Group(IntEnum):
    """Kinds that share an efficiency model."""

    PRODUCT_VECTOR = 0
    PRODUCT_TENSOR = 1
    CONV_VECTOR = 2
    CONV_TENSOR = 3
    ATTENTION = 4
    ATTENTION_BACKWARD = 5
    STREAM = 6

    @property
    def model(self) -> str:
        """Name of its efficiency model in the calibration."""
        return _MODEL[self]

    @property
    def is_product(self) -> bool:
        """Whether its shapes are those of a matrix product."""
        return self in (Group.PRODUCT_VECTOR, Group.PRODUCT_TENSOR)

    @property
    def is_convolution(self) -> bool:
        """Whether its shapes are those of a convolution."""
        return self in (Group.CONV_VECTOR, Group.CONV_TENSOR)


_MODEL: dict[Group, str] = {
    Group.PRODUCT_VECTOR: "product_vector",
    Group.PRODUCT_TENSOR: "product_tensor",
    Group.CONV_VECTOR: "conv_vector",
    Group.CONV_TENSOR: "conv_tensor",
    Group.ATTENTION: "attention",
    Group.ATTENTION_BACKWARD: "attention",
    Group.STREAM: "stream",
}

#: Columns given to elements whose layout does not matter.
PLAIN_COLUMNS = np.float32(1024.0)
#: Families of kinds that stream, in the order of ``STREAM_FLAGS`` but for backward.
_FAMILIES: tuple[StreamFamily, ...] = (
    "norm", "softmax", "pool", "copy", "indexed", "update", "reduction"
)  # fmt: skip


#: Groups of an efficiency model, on vector and on matrix units.
_UNITS: dict[Efficiency, tuple[Group, Group]] = {
    "product": (Group.PRODUCT_VECTOR, Group.PRODUCT_TENSOR),
    "convolution": (Group.CONV_VECTOR, Group.CONV_TENSOR),
    "attention": (Group.ATTENTION, Group.ATTENTION),
    "attention_backward": (Group.ATTENTION_BACKWARD, Group.ATTENTION_BACKWARD),
}


def groups_of_rows(
    costs: CostTable, precision: Precision, *, on_vector_units: bool = False
) -> npt.NDArray[np.int8]:
    """`Group` of every row, (num_rows,).

    Args:
        costs: The rows.
        precision: With TF32, products of FP32 operands run on matrix units.
        on_vector_units: Products of 16 bits are calculated in FP32, as
            `devices.calculates_in_fp32` has it.
    """
    kind = costs.kind
    narrow = (costs.matmul_dtype != int(DType.FP32)) | (precision.peak_key == "tf32")
    narrow &= not on_vector_units
    group = np.full(len(kind), Group.STREAM, dtype=np.int8)
    for model, (on_vectors, on_matrices) in _UNITS.items():
        rows = _of_model(model)[kind]
        group[rows] = np.where(narrow[rows], on_matrices, on_vectors)
    return group


@cache
def _of_model(model: Efficiency) -> npt.NDArray[np.bool_]:
    return is_one_of(kinds_where(lambda facts: facts.efficiency == model))


def product_dims(kind: npt.NDArray[np.int16], dims: Array) -> tuple[Array, ...]:
    """batch, m, n, k of matrix products, of convolutions as implicit products, and of cells.

    Args:
        kind: ``OpKind``, (num_rows,).
        dims: Shape numbers, (num_points, num_rows, NUM_DIMS).

    Returns:
        Four arrays of (num_points, num_rows), each at least one.
    """
    product = dims[..., :4].copy()
    for one in distinct(kind).tolist():
        as_product = FACTS[OpKind(one)].as_product
        if as_product is not None:
            rows = np.flatnonzero(kind == one)
            product[:, rows] = np.stack(as_product(dims[:, rows]), axis=-1)
    product = np.maximum(product, 1)
    return product[..., 0], product[..., 1], product[..., 2], product[..., 3]


def folded_product(product: tuple[Array, ...]) -> tuple[Array, ...]:
    """A batch of products as one with as many more rows.

    No published row of matrix units has a batch. Their tiles are shared out over the
    multiprocessors like the tiles of more rows; the bytes and FLOP of the op stay its own.

    Args:
        product: batch, m, n, k.
    """
    batch, m, n, k = product
    return np.ones_like(batch), batch * m, n, k


def sequential_launches(kind: npt.NDArray[np.int16], dims: FloatArray) -> FloatArray:
    """Launches that must wait for one another inside one op, (num_points, num_rows).

    A recurrent cell of layer l at step t needs step t - 1; layers and directions overlap at best
    along the diagonal, which is not credited.

    Args:
        kind: ``OpKind``, (num_rows,).
        dims: Shape numbers, (num_points, num_rows, NUM_DIMS).
    """
    steps = np.maximum(dims[..., 1], 1) * np.maximum(dims[..., 4], 1)
    return np.where(column("is_cell")[kind], steps, 1.0)


def stream_dims(kind: npt.NDArray[np.int16], dims: Array) -> tuple[Array, Array, Array]:
    """rows, columns and operands of ops that stream, each (num_points, num_rows).

    Only an op that reduces over its columns cares how its elements are laid out; all others are
    cut into rows of one length. An optimizer update reads gradient, parameter and states.
    """
    rows, columns, operands = (dims[..., i] for i in range(3))
    optimizer = kind == OpKind.OPTIMIZER
    elements = rows * np.where(optimizer, 1.0, columns)
    reduces = column("reduces")[kind]
    operands = np.where(optimizer, operands + 2.0, operands)
    rows = np.where(reduces, rows, elements / PLAIN_COLUMNS)
    columns = np.where(reduces, columns, PLAIN_COLUMNS)
    return np.maximum(rows, 1), np.maximum(columns, 1), operands


def stream_flags(kind: npt.NDArray[np.int16]) -> tuple[Array, ...]:
    """``STREAM_FLAGS`` of each row as 0 or 1, each (num_rows,)."""
    norm, softmax, *others = (_of_family(family)[kind] for family in _FAMILIES)
    is_backward = column("backward_of")[kind]
    return tuple(flag.astype(np.float32) for flag in (norm, softmax, is_backward, *others))


@cache
def _of_family(family: StreamFamily) -> npt.NDArray[np.bool_]:
    return is_one_of(kinds_where(lambda facts: facts.stream == family))


def conv_shape(
    kind: npt.NDArray[np.int16], dims: Array, product: tuple[Array, ...], bytes_moved: Array
) -> ConvShape:
    """What the implicit product of convolutions does not show.

    Args:
        kind: ``OpKind``, (num_rows,).
        dims: Shape numbers, (num_points, num_rows, NUM_DIMS).
        product: batch, m, n, k of the implicit product, (num_points, num_rows).
        bytes_moved: Device-memory bytes, (num_points, num_rows).
    """
    _, c, h, w, _, r, s, out_h, out_w, groups = np.moveaxis(dims, -1, 0)
    batch, m, n, k = product
    gathered = batch * (m * k + k * n + m * n)
    return ConvShape(
        kernel_area=np.maximum(r * s, 1),
        stride=np.sqrt(np.maximum(h * w, 1) / np.maximum(out_h * out_w, 1)),
        channels_per_group=np.maximum(c, 1) / np.maximum(groups, 1),
        gathered_over_moved=gathered / np.maximum(bytes_moved, 1),
        is_line=((h <= 1) & (w > 1)).astype(np.float32),
        is_backward_input=(kind == OpKind.CONV_BACKWARD_INPUT).astype(np.float32),
        is_backward_weight=(kind == OpKind.CONV_BACKWARD_WEIGHT).astype(np.float32),
    )


def has_one_query(costs: CostTable, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Whether rows of attention have one query row per head, as in decode, (num_rows,)."""
    q_len = costs.dims[rows, _Q_LEN]
    is_one: npt.NDArray[np.bool_] = (q_len[:, 0] == 1) & (q_len[:, 1:] == 0).all(axis=1)
    return is_one


def rows_alike(
    costs: CostTable, rows: npt.NDArray[np.intp], at_points: Sequence[Array], part: IntArray
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Which rows are the first of those that ask the same of a device, and which each is alike.

    Forward and backward, and the same op in two places of memory, are rows of their own.

    Args:
        costs: The pass.
        rows: Some of its rows.
        at_points: What is known of all rows at the points, (num_points, num_rows, …) each.
        part: Part of each row of the pass, ascending; those of different parts are not alike.
    """
    parts = np.split(rows, np.flatnonzero(np.diff(part[rows])) + 1)
    found = [_alike_in_part(costs, own, at_points) for own in parts]
    starts = np.cumsum([0, *(len(own) for own in parts)])
    counts = np.cumsum([0, *(len(first) for first, _ in found)])
    first = [own + start for (own, _), start in zip(found, starts, strict=False)]
    index = [own + count for (_, own), count in zip(found, counts, strict=False)]
    return np.concatenate(first), np.concatenate(index)


def _alike_in_part(
    costs: CostTable, rows: npt.NDArray[np.intp], at_points: Sequence[Array]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    codes = np.stack((costs.kind[rows], costs.variant[rows], costs.matmul_dtype[rows]), axis=1)
    numbers = [np.moveaxis(one[:, rows], 1, 0).reshape(len(rows), -1) for one in at_points]
    asked = np.concatenate((codes, *numbers, costs.weight_bytes[rows]), axis=1)
    first, index, _ = distinct_rows(asked)
    return first, index
