"""Time of NeuSight's model graphs, node by node, as PyTorch runs their ops.

The published graphs list ops by class and shape. What each moves through memory follows from what
its kernels and their autograd formulas read and write, in FP32.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

#: A shape, or the arguments of a call; and `COLUMNS` of one call.
Shape = tuple[Any, ...]
Call = tuple[Any, ...]
#: Floats moved per element, forward and backward. Dropout reads and writes floats and a mask of
#: bytes; backward casts the mask, scales it and multiplies. An addition hands its gradient on.
#: A maximum with a constant compares once and fills two masked gradients.
_DROPOUT, _MAXIMUM = (2.25, 6.25), (2.0, 5.25)
#: Backward of what needs its own input or output beside the gradient: two reads, one write.
_NONLINEAR = frozenset({"VECgelu", "VECrelu"})
#: Backward of a layer norm reads gradient and input twice: for the input and for scale and shift.
_NORM_BACKWARD = 5.0
_PASSED_ON = frozenset({"VECadd", "VECaddu", "contiguous", "getitem"})
_BINARY = frozenset({"add", "mul", "div", "pow"})
#: Rows of this many columns stand for elements whose layout does not matter.
_COLUMNS = 1024.0
COLUMNS = (
    "kind", "batch", "m", "n", "k", "rows", "columns", "operands", "is_norm", "is_softmax",
    "flop", "moved_bytes",
)  # fmt: skip
KEYS = ("device", "model", "mode", "seqlen", "model_batch")


def read_calls(folder: Path) -> pd.DataFrame:
    """One row per kernel of every NVIDIA graph: `KEYS`, repeat and `COLUMNS`."""
    graph = pd.read_csv(folder / "ops" / "neusight_model_ops.csv.xz")
    graph = graph[~graph.device.str.startswith("AMD")]
    rows = [
        (r.device, r.model, r.mode, r.seqlen, r.batch, r.repeat, *call)
        for r in graph.itertuples()
        for call in _node_calls(r)
    ]
    return pd.DataFrame(rows, columns=[*KEYS, "repeat", *COLUMNS])


def measured_sums(folder: Path) -> pd.DataFrame:
    """Kernels as the source measured them one by one, added up: `KEYS` and kernels_s.

    No prediction: it shows how far whole models are from the sum of their parts.
    """
    graph = pd.read_csv(folder / "ops" / "neusight_model_ops.csv.xz")
    graph = graph.rename(columns={"batch": "model_batch"})
    parts = graph[["measured_fw_ms", "measured_bw_ms", "measured_acc_ms"]].fillna(0.0).sum(axis=1)
    total = (parts * graph["repeat"] * 1e-3).groupby([graph[key] for key in KEYS]).sum()
    return total.rename("kernels_s").reset_index()


def _node_calls(node: Any) -> Iterator[Call]:
    shapes = [s for s in _parsed(node.input_shapes) if isinstance(s, tuple)]
    yield from _forward(node, shapes)
    if node.mode == "train":
        yield from _backward(node, shapes)
        for op, arguments in _parsed(node.acc_ops):
            yield _call(op, arguments)


def _forward(node: Any, shapes: list[Shape]) -> Iterator[Call]:
    if node.op_class == "dropout":
        yield _moved(_DROPOUT[0] * _elements(shapes[0]))
    elif _is_maximum(node):
        yield _moved(_MAXIMUM[0] * _elements(shapes[0]))
    elif node.op_class == "contiguous" and len(shapes[0]) < 4:
        return  # Only heads that were permuted are not contiguous yet.
    else:
        for op, arguments in _parsed(node.fw_ops):
            yield _call(op + "u" if _has_scalar(op, shapes) else op, arguments)


def _backward(node: Any, shapes: list[Shape]) -> Iterator[Call]:
    calls = _parsed(node.bw_ops)
    if node.op_class in _PASSED_ON:
        return
    if node.op_class == "dropout":
        yield _moved(_DROPOUT[1] * _elements(shapes[0]))
    elif _is_maximum(node):
        yield _moved(_MAXIMUM[1] * _elements(shapes[0]))
    elif node.op_class == "VECln":
        yield _moved(_NORM_BACKWARD * _elements(shapes[0]))
    elif node.op_class in _NONLINEAR:
        yield from (_call("VECmul", arguments) for _, arguments in calls)
    elif calls and _has_scalar(calls[0][0], shapes):
        yield _call(calls[0][0] + "u", calls[0][1])
    else:
        yield from (_call(op, arguments) for op, arguments in calls)


def _is_maximum(node: Any) -> bool:
    return node.op_class == "misc" and str(node.name).startswith("max")


def _has_scalar(op: str, shapes: list[Shape]) -> bool:
    """Whether the second operand of a binary op is one number."""
    is_binary = op.removeprefix("VEC") in _BINARY and op.startswith("VEC")
    return is_binary and len(shapes) > 1 and _elements(shapes[1]) == 1


def _parsed(text: object) -> list[Any]:
    return list(ast.literal_eval(text)) if isinstance(text, str) else []


def _elements(shape: Shape) -> float:
    return float(np.prod(shape))


def _moved(elements: float) -> Call:
    """A stream that moves so many floats."""
    rows = max(elements / (2 * _COLUMNS), 1.0)
    return ("stream", 0, 0, 0, 0, rows, _COLUMNS, 1, 0.0, 0.0, 0.0, 4 * elements)


def _call(op: str, arguments: Shape) -> Call:
    """`COLUMNS` of one call."""
    if op in ("Linear", "BMM"):
        return _product(op, arguments)
    if op == "MEM":
        return _moved(sum(_elements(shape) for shape in arguments))
    name = op.removeprefix("VEC")
    rows, columns = float(arguments[0]), float(arguments[1])
    operands = 2 if name in _BINARY else 1
    is_norm, is_softmax = float(name == "ln"), float(name == "softmax")
    moved = 4 * rows * columns * (operands + 1)
    if not (is_norm or is_softmax):
        rows, columns = max(rows * columns / _COLUMNS, 1.0), _COLUMNS
    return ("stream", 0, 0, 0, 0, rows, columns, operands, is_norm, is_softmax, 0.0, moved)


def _product(op: str, arguments: Shape) -> Call:
    """The contracted dimension stands third in the source; a linear layer shares its weight."""
    b, m, n, k = arguments if len(arguments) == 4 else (1, *arguments)
    batch, rows = (1, b * m) if op == "Linear" else (b, m)
    moved = 4 * (batch * (rows * n + rows * k + n * k))
    return ("product", batch, rows, k, n, 0, 0, 0, 0.0, 0.0, 2.0 * b * m * n * k, moved)
