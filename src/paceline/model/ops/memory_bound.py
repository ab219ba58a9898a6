"""What is bound by memory: norms, softmax, losses, tables, pools and all that moves elements."""

from __future__ import annotations

import numpy as np

from paceline.model.graph import polynomial
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.graph.kinds import OpKind
from paceline.model.graph.raw import RawPass
from paceline.model.ops.extents import no_dims, rows_and_columns
from paceline.model.ops.facts import KindFacts

_COPIES = ("aten::clone", "aten::copy_")


def _reduce_dims(raw: RawPass, rows: IntArray, _first: IntArray, _part: IntArray) -> FloatArray:
    return rows_and_columns(raw, raw.inputs.at(rows, 0), raw.outputs.at(rows, 0))


def _plane_dims(raw: RawPass, rows: IntArray, _first: IntArray, _part: IntArray) -> FloatArray:
    """(planes, pixels, operands) of what is written: items times channels, and the rest.

    The fourth number says how the picture that is read is stored: 0 as the model stores its
    pictures, 1 plane after plane (it was copied into the order in which it is read), 2 channels
    last (it is a view of tokens).
    """
    written = raw.outputs.at(rows, 0)
    dims = no_dims(len(rows))
    dims[:, 0] = polynomial.product(raw.dims[written, :2])
    dims[:, 1] = polynomial.divide(polynomial.product(raw.dims[written]), dims[:, 0])
    dims[:, 2, 0] = raw.inputs.lengths()[rows]
    dims[:, 3, 0] = [_is_copied(raw, row) for row in rows]
    told = np.flatnonzero(raw.attributes.lengths()[rows])
    is_last = told[raw.attributes.at(rows[told], 0) > 0]
    dims[is_last, 3, 0] = 2.0
    return dims


def _is_copied(raw: RawPass, row: int) -> bool:
    """Whether what an op reads first is a copy, or pointwise work on one (first operands lead)."""
    writer = _writer(raw, row)
    while writer >= 0:
        name, _, tag = raw.op_names[raw.op_name[writer]].partition("|")
        if name in _COPIES or tag != "pointwise":
            return name in _COPIES
        writer = _writer(raw, writer)
    return False


def _writer(raw: RawPass, row: int) -> int:
    """The last op before ``row`` that wrote what it reads first; -1 if none did."""
    first, last = raw.inputs.start[row : row + 2]
    if first == last:
        return -1
    written = raw.tensor_storage[raw.outputs.values[: raw.outputs.start[row]]]
    writes = np.flatnonzero(written == raw.tensor_storage[raw.inputs.values[first]])
    return (
        int(np.searchsorted(raw.outputs.start, writes[-1], side="right")) - 1 if writes.size else -1
    )


_PLANES = ("planes", "pixels", "operands", "stored")
KINDS = (
    KindFacts(
        kind=OpKind.NORM, along_last=True, stream="norm", reduces=True,
        wants_wide="but_batch_norm", has_statistics=True, features="across",
    ),
    KindFacts(
        kind=OpKind.NORM_BACKWARD, along_last=True, stream="norm", reduces=True,
        backward_of=OpKind.NORM, masks_gradients=True, wants_wide="but_batch_norm",
        has_statistics=True,
    ),
    KindFacts(
        kind=OpKind.SOFTMAX, along_last=True, stream="softmax", reduces=True, wants_wide="yes",
        features="across", loss_dims=("columns",),
    ),
    KindFacts(
        kind=OpKind.SOFTMAX_BACKWARD, along_last=True, stream="softmax", reduces=True,
        backward_of=OpKind.SOFTMAX, wants_wide="yes",
    ),
    KindFacts(
        kind=OpKind.CROSS_ENTROPY, stream="softmax", reduces=True, wants_wide="yes",
        features="apart", loss_dims=("rows",),
    ),
    KindFacts(
        kind=OpKind.CROSS_ENTROPY_BACKWARD, stream="softmax", reduces=True,
        backward_of=OpKind.CROSS_ENTROPY, wants_wide="yes",
    ),
    KindFacts(kind=OpKind.EMBEDDING, along_last=True, stream="indexed"),
    KindFacts(kind=OpKind.EMBEDDING_BACKWARD, stream="indexed", backward_of=OpKind.EMBEDDING),
    KindFacts(kind=OpKind.POOL, stream="pool", features="apart"),
    KindFacts(kind=OpKind.POOL_BACKWARD, stream="pool", backward_of=OpKind.POOL),
    KindFacts(
        kind=OpKind.INTERPOLATE, dims=_PLANES, read_dims=_plane_dims, stream="pool",
        features="apart", feature_dims=("planes",),
    ),
    KindFacts(
        kind=OpKind.INTERPOLATE_BACKWARD, dims=_PLANES, read_dims=_plane_dims, stream="pool",
        backward_of=OpKind.INTERPOLATE, feature_dims=("planes",),
    ),
    KindFacts(kind=OpKind.DROPOUT, features="apart"),
    KindFacts(kind=OpKind.DROPOUT_BACKWARD, backward_of=OpKind.DROPOUT),
    KindFacts(kind=OpKind.ELEMENTWISE, wide_forward_only=True, features="apart"),
    KindFacts(
        kind=OpKind.REDUCE, read_dims=_reduce_dims, stream="reduction", reduces=True,
        wide_forward_only=True, features="across",
    ),
    KindFacts(kind=OpKind.COPY, stream="copy", wide_forward_only=True, features="apart"),
    KindFacts(kind=OpKind.CAST, stream="copy", features="apart"),
    KindFacts(kind=OpKind.INDEX, stream="indexed", features="apart"),
    KindFacts(kind=OpKind.SORT, along_last=True, stream="indexed"),
    KindFacts(
        kind=OpKind.SCAN, along_last=True, wide_forward_only=True, sequence="in_order"
    ),
    KindFacts(kind=OpKind.RANDOM),
    KindFacts(kind=OpKind.DEQUANTIZE),
    KindFacts(kind=OpKind.MOE_DISPATCH),
    KindFacts(kind=OpKind.FFT, sequence="in_order"),
    KindFacts(kind=OpKind.LINALG),
    KindFacts(kind=OpKind.OTHER),
)  # fmt: skip
