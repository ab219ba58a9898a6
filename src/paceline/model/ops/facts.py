"""What is known of an op kind: the columns of the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.graph.kinds import OpKind
from paceline.model.graph.raw import RawPass
from paceline.values import dataclass

#: Shape numbers of some rows of a traced pass, from the rows, the position of their first operand,
#: and which part of a convolution's backward each is; (num_rows, NUM_DIMS, 9).
ReadDims: TypeAlias = Callable[[RawPass, IntArray, IntArray, IntArray], FloatArray]
#: FLOP from shape numbers: (num_rows, NUM_DIMS, 9) → (num_rows, 9).
CountFlop: TypeAlias = Callable[[FloatArray], FloatArray]
#: Numbers of any width.
Numbers: TypeAlias = npt.NDArray[np.floating[Any]]
#: batch, m, n and k of the matrix product that an op is, from its shape numbers at points.
AsProduct: TypeAlias = Callable[[Numbers], tuple[Numbers, ...]]

#: Kinds that share an efficiency model. ``stream`` moves bytes.
Efficiency = Literal["product", "convolution", "attention", "attention_backward", "stream"]
#: What kernels that stream have in common beside their bytes.
StreamFamily = Literal["norm", "softmax", "pool", "copy", "indexed", "update", "reduction", "plain"]
#: What an op does with the features of its input: treats each by itself; may treat them so unless
#: it works across them; needs all.
Features = Literal["apart", "across", "all"]
#: What ranks that share a sequence do: rows apart; look beyond their part; or cannot.
Sequence = Literal["rows", "looks", "in_order"]
#: Kinds with no shape numbers of their own.
PLAIN_DIMS = ("rows", "columns", "operands")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KindFacts:
    """One op kind.

    Attributes:
        dims: Meaning of its shape numbers. By default rows × columns is the number of output
            elements, and columns the extent that is reduced or normalised over.
        read_dims: How they are read from a trace; None for the default's way.
        along_last: In that way: whether its columns are the last extent; otherwise 1.
        count_flop: Its arithmetic; None for kinds that are bound by memory.
        efficiency: Its efficiency model.
        as_product: The matrix product that it is to that model; None if it is none.
        is_cell: Whether it runs step after step and layer after layer.
        stream: Its family among kinds that stream.
        reduces: Whether the layout of rows and columns matters, as it works along columns.
        backward_of: Forward kind whose gradients it computes.
        masks_gradients: Of such a kind: whether it makes those gradients alone that are asked for.
        is_narrow: Whether autocast runs it in the narrow format.
        wants_wide: Whether autocast widens what it reads: always, or but for batch norm.
        wide_forward_only: Whether a rule of autocast that keeps it FP32 ends with forward.
        has_statistics: Whether its further outputs are statistics, kept in FP32.
        takes_epilogue: Whether a kernel of it can go on with pointwise work on its result.
        features: What it does with features, which tensor ranks share.
        feature_dims: Shape numbers that shrink where they do.
        weight_dims: Of kinds with a matrix or filter: the shape numbers of its inputs and outputs.
        loss_dims: Of a loss: shape numbers that shrink where ranks share the vocabulary.
        sequence: What ranks of a sequence do.
        ring_tensors: Of attention: tensors as large as the keys that go round a ring.
    """

    kind: OpKind
    dims: tuple[str, ...] = PLAIN_DIMS
    read_dims: ReadDims | None = None
    along_last: bool = False
    count_flop: CountFlop | None = None
    efficiency: Efficiency = "stream"
    as_product: AsProduct | None = None
    is_cell: bool = False
    stream: StreamFamily = "plain"
    reduces: bool = False
    backward_of: OpKind | None = None
    masks_gradients: bool = False
    is_narrow: bool = False
    wants_wide: Literal["no", "but_batch_norm", "yes"] = "no"
    wide_forward_only: bool = False
    has_statistics: bool = False
    takes_epilogue: bool = False
    features: Features = "all"
    feature_dims: tuple[str, ...] = ("rows",)
    weight_dims: tuple[str, str] | None = None
    loss_dims: tuple[str, ...] = ()
    sequence: Sequence = "rows"
    ring_tensors: float = 0.0
