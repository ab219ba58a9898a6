"""From an ONNX file to a model that can be traced: its inputs, and what is free in them.

Standard library and torch only.
"""

import re

import onnx_control
import onnx_layers
import onnx_pointwise
import onnx_shapes
import torch
from onnx_file import Refused, dtype_of, read_model
from onnx_model import Model, free_inputs
from torch_entries.subjects import RequestError, Subject, check_side

OPERATORS = {
    ("", name): operator
    for table in (onnx_pointwise, onnx_shapes, onnx_layers, onnx_control)
    for name, operator in table.OPERATORS.items()
}
#: Side of pictures whose size a file leaves free.
_SIDE = 224
_TRAINED = (
    "a training step of the inference graph: cross-entropy of its outputs, what its exporter "
    "folded away stays away"
)


def build_subject(request):
    """The subject of a file that a request names."""
    graph, opsets, functions = read_model(request["entry"])
    subject = OnnxSubject(Model(graph, opsets, functions, OPERATORS), graph, request)
    check_side(subject, request)
    subject.is_fixed = bool(request.get("is_fixed"))
    return subject


class OnnxSubject(Subject):
    """A file: its inputs say which extents are free."""

    def __init__(self, model, graph, request):
        self._wanted = [_input(one) for one in free_inputs(graph)]
        if not self._wanted or not self._wanted[0][1]:
            raise RequestError("no-inputs", "it takes no tensor with a batch")
        self._free = _Free(self._wanted, request.get("image_size"))
        model.replaced = None
        dtype, shape = self._wanted[0]
        has_seq = self._free.length is not None
        kind = _kind(dtype, shape, graph, has_seq)
        one = None if kind in ("text", "language") or has_seq else self._free.sized(shape, 1, 1)[1:]
        super().__init__(model, kind, one, has_seq=has_seq)
        self.side = self._free.side
        taken = [*self._free.taken, *([_TRAINED] if request["task"] == "train" else [])]
        self.taken = ", ".join(taken)

    def inputs(self, batch, seq):
        """Uninitialised inputs, in the order of the file."""
        stored = self._free.stored_batch
        self.model.replaced = None if stored is None else (stored, batch)
        return tuple(
            torch.empty(self._free.sized(shape, batch, seq), dtype=dtype, device="meta")
            for dtype, shape in self._wanted
        )

    def _step(self, recorder, inputs):
        self.model.recorder = recorder
        super()._step(recorder, inputs)

    def _forward(self, recorder, inputs):
        self.model.recorder = recorder
        super()._forward(recorder, inputs)


class _Free(object):
    """Which extents of the inputs are free, and what each becomes.

    Attributes:
        batch: Name of the batch; None where the file has a fixed one.
        stored_batch: The fixed one.
        length: Name of the length; None where there is none.
        side: Side of pictures, where the file leaves it free.
        taken: What was assumed, in words.
    """

    def __init__(self, wanted, side):
        self.taken, self.side, self.stored_batch = [], None, None
        names = [name for _, shape in wanted for name in map(_symbol, shape) if name]
        first = wanted[0][1][0]
        called = (name for name in names if re.fullmatch(r"n|b|bs|.*batch.*", name.lower()))
        self.batch = next(called, None) or _symbol(first)
        if self.batch is None:
            self.stored_batch = first
            self.taken.append("the file's batch of %d is taken as free" % first)
        others = [name for name in dict.fromkeys(names) if name != self.batch]
        pictures = {
            name for dtype, shape in wanted if dtype.is_floating_point and len(shape) in (4, 5)
            for name in map(_symbol, shape[2:]) if name
        }  # fmt: skip
        self._sides = {name: side or _SIDE for name in others if name in pictures}
        if self._sides:
            self.side = side or _SIDE
            self.taken.append("pictures of %d×%d" % (self.side, self.side))
        past = [n for n in others if re.search("past", n) and "+" not in n and n not in pictures]
        self._past = set(past)
        if past:
            self.taken.append("an empty past")
        lengths = [n for n in others if n not in pictures and n not in past]
        plain = [n for n in lengths if re.fullmatch(r"\w+", n)]
        self.length = next(iter(plain), None)
        if len(plain) > 1:
            self.taken.append("%s as long as %s" % (" and ".join(plain[1:]), plain[0]))

    def sized(self, shape, batch, seq):
        """Extents at a batch and a length."""
        return tuple(self._extent(one, n, batch, seq) for n, one in enumerate(shape))

    def _extent(self, extent, place, batch, seq):
        name = _symbol(extent)
        if name is None:
            is_batch = place == 0 and self.stored_batch is not None and extent == self.stored_batch
            return batch if is_batch else extent
        if name == self.batch:
            return batch
        if name in self._sides:
            return self._sides[name]
        return 0 if name in self._past else seq


def _symbol(extent):
    return extent if isinstance(extent, str) else None


def _input(one):
    """(type, extents) of an input: a number, or the name of what is free."""
    tensor = one.get("type", {}).get("tensor")
    if tensor is None:
        raise Refused("its input `%s` is no tensor" % one.get("name", ""), "onnx-op")
    dtype = getattr(torch, dtype_of(tensor.get("dtype", 0)))
    dims = tensor.get("shape", {"dim": []})["dim"]
    shape = []
    for place, dim in enumerate(dims):
        value = dim.get("value")
        if value is not None and value > 0:
            shape.append(value)
        elif value is not None and value < -1:
            raise Refused("its input `%s` has a size of %d" % (one.get("name", ""), value))
        else:
            nameless = "batch" if place == 0 else "%s_%d" % (one.get("name", ""), place)
            shape.append(dim.get("name") or nameless)
    return dtype, shape


def _kind(dtype, shape, graph, has_length):
    if dtype.is_floating_point:
        return "image" if len(shape) == 4 else "features"
    last = graph["outputs"][0].get("type", {}).get("tensor", {}).get("shape", {"dim": []})["dim"]
    return "language" if has_length and len(last) == 3 else "text"
