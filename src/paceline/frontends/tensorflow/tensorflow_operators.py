"""Operators of TensorFlow as PyTorch functions, channels last where they are.

Standard library and torch only. Each is a function of the call and its inputs.
"""

import math
from functools import partial

import rebuilt_operators as rebuilt
import torch
import torch.nn.functional as F
from onnx_file import DTYPES, Refused
from onnx_model import checked, constant, is_small
from onnx_shapes import joined, squeezed, tiled
from tensorflow_file import _CODES, DOMAIN

_UNARY = {
    "Relu": torch.relu, "Relu6": F.relu6, "Elu": F.elu, "Selu": F.selu, "Sigmoid": torch.sigmoid,
    "Tanh": torch.tanh, "Softplus": F.softplus, "Softsign": F.softsign, "Erf": torch.erf,
    "Exp": torch.exp, "Log": torch.log, "Log1p": torch.log1p, "Rsqrt": torch.rsqrt,
    "Sqrt": torch.sqrt, "Square": torch.square, "Neg": torch.neg, "Abs": torch.abs,
    "Floor": torch.floor, "Ceil": torch.ceil, "Round": torch.round, "Sign": torch.sign,
    "Sin": torch.sin, "Cos": torch.cos, "LogicalNot": torch.logical_not,
    "Reciprocal": torch.reciprocal, "IsNan": torch.isnan, "ZerosLike": torch.zeros_like,
    "OnesLike": torch.ones_like, "Expm1": torch.expm1, "Inv": torch.reciprocal,
}  # fmt: skip
_BINARY = {
    "Add": torch.add, "AddV2": torch.add, "Sub": torch.sub, "Mul": torch.mul, "RealDiv": torch.div,
    "Div": torch.div, "Maximum": torch.maximum, "Minimum": torch.minimum, "Pow": torch.pow,
    "SquaredDifference": lambda x, y: (x - y).square(), "FloorDiv": torch.floor_divide,
    "FloorMod": torch.remainder, "Greater": torch.gt, "GreaterEqual": torch.ge, "Less": torch.lt,
    "LessEqual": torch.le, "Equal": torch.eq, "NotEqual": torch.ne, "LogicalAnd": torch.logical_and,
    "LogicalOr": torch.logical_or,
}  # fmt: skip
_REDUCTIONS = {
    "Mean": lambda x, a, k: x.mean(a, keepdim=k), "Sum": lambda x, a, k: x.sum(a, keepdim=k),
    "Max": lambda x, a, k: torch.amax(x, a, keepdim=k),
    "Min": lambda x, a, k: torch.amin(x, a, keepdim=k),
    "Prod": lambda x, a, k: x.prod() if not k else x.prod(a[0], keepdim=k),
    "All": lambda x, a, k: torch.all(x, a[0], keepdim=k) if a else x,
    "Any": lambda x, a, k: torch.any(x, a[0], keepdim=k) if a else x,
}  # fmt: skip


def _dtype(code):
    if code not in _CODES:
        raise Refused("it works on elements of type %s" % code, "onnx-op")
    return getattr(torch, DTYPES[_CODES[code]][0])


def _same(call, x, *_):
    return x


def _unary(function):
    return lambda call, x: call.compute(function, x)


def _binary(function, call, x, y):
    if x.is_meta or y.is_meta:
        x, y = call.on_meta(x), call.on_meta(y)
    return call.compute(function, x, y)


def _reduction(function, call, x, _axes):
    axes, keeps = call.ints(1), bool(call.attribute("keep_dims", 0))
    if call.input(1).numel() == 0:
        return x
    return call.compute(lambda one: function(one, axes, keeps), x)


def _constant(call):
    return constant(call.attribute("value"))


def _matmul(call, x, y):
    x, y = call.on_meta(x), call.on_meta(y)
    flags = [call.attribute(a, call.attribute(b, 0)) for a, b in
             (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))]  # fmt: skip
    x = x.transpose(-1, -2) if flags[0] else x
    y = y.transpose(-1, -2) if flags[1] else y
    return torch.matmul(x, y)


def _einsum(call, *tensors):
    equation = call.attribute("equation")
    return torch.einsum(equation, *[call.on_meta(one) for one in tensors])


def _is_last(call):
    return call.attribute("data_format", "NHWC").endswith("C")


def _spatial(call, name, default=(1, 1, 1, 1)):
    listed = call.attribute(name) or list(default)
    return tuple(listed[1:-1] if _is_last(call) else listed[2:])


def _padding(call, count):
    kind = call.attribute("padding", "VALID")
    if kind == "SAME":
        return "same"
    if kind == "EXPLICIT":
        pads = call.attribute("explicit_paddings")
        pairs = list(zip(pads[::2], pads[1::2]))
        return pairs[1:-1] if _is_last(call) else pairs[2:]
    return [(0, 0)] * count


def _convolution(call, x, weight):
    x, weight = call.on_meta(x), call.on_meta(weight)
    count = weight.ndim - 2
    ones = (1,) * weight.ndim
    order = (count + 1, count, *range(count))
    channels = x.shape[-1] if _is_last(call) else x.shape[1]
    return rebuilt.convolution(
        x, weight.permute(order), None, stride=_spatial(call, "strides", ones),
        padding=_padding(call, count), dilation=_spatial(call, "dilations", ones),
        groups=channels // weight.shape[-2], is_last=_is_last(call),
    )  # fmt: skip


def _depthwise(call, x, weight):
    x, weight = call.on_meta(x), call.on_meta(weight)
    rows, columns, channels, multiple = weight.shape
    weight = weight.permute(2, 3, 0, 1).reshape(channels * multiple, 1, rows, columns)
    return rebuilt.convolution(
        x, weight, None, stride=_spatial(call, "strides"), padding=_padding(call, 2),
        dilation=_spatial(call, "dilations"), groups=channels, is_last=_is_last(call),
    )  # fmt: skip


def _transposed(call, _sizes, weight, gradient):
    weight, gradient = call.on_meta(weight), call.on_meta(gradient)
    wanted = call.ints(0)
    last = _is_last(call)
    first = rebuilt.channels_first(gradient) if last else gradient
    made = F.conv_transpose2d(first, weight.permute(3, 2, 0, 1), None, _spatial(call, "strides"))
    sides = wanted[1:-1] if last else wanted[2:]
    flat = [n for side, size in zip(sides[::-1], made.shape[:1:-1]) for n in (0, side - size)]
    made = F.pad(made, flat) if any(flat) else made
    return rebuilt.channels_last(made) if last else made


def _bias(call, x, bias):
    bias = call.on_meta(bias)
    if not _is_last(call):
        bias = bias.reshape(1, -1, *[1] * (x.ndim - 2))
    return call.on_meta(x) + bias


def _batch_norm(call, x, scale, offset, mean, variance):
    x, scale, offset, mean, variance = (
        call.on_meta(one) for one in (x, scale, offset, mean, variance)
    )
    trains = torch.is_grad_enabled() and scale.requires_grad
    dim = -1 if _is_last(call) else 1
    return rebuilt.batch_norm(
        x, mean.detach(), variance.detach(), scale, offset, training=trains, dim=dim
    )


def _pool(kind, call, x):
    return rebuilt.pooled(
        call.on_meta(x), kind=kind, size=_spatial(call, "ksize"),
        stride=_spatial(call, "strides"), padding=_padding(call, 2), is_last=_is_last(call),
    )  # fmt: skip


def _reshape(call, x, _shape):
    wanted = call.ints(1)
    checked([one for one in wanted if one != -1], call.title())
    return call.compute(lambda one: one.reshape(wanted), x)


def _shape(call, x):
    return torch.tensor(list(x.shape), dtype=torch.int32)


_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _strided_slice(call, x, *_):
    begins, ends, steps = call.ints(1), call.ints(2), call.ints(3)
    masks = {name: call.attribute(name, 0) for name in _MASKS}
    cut = []
    for n, (begin, end, step) in enumerate(zip(begins, ends, steps)):
        bit = 1 << n
        if masks["ellipsis_mask"] & bit:
            cut.append(Ellipsis)
        elif masks["new_axis_mask"] & bit:
            cut.append(None)
        elif masks["shrink_axis_mask"] & bit:
            cut.append(begin)
        else:
            if step < 1:
                raise Refused("its node %s is read backwards" % call.title(), "onnx-node")
            begin = None if masks["begin_mask"] & bit else begin
            cut.append(slice(begin, None if masks["end_mask"] & bit else end, step))
    return call.compute(lambda one: one[tuple(cut)], x)


def _slice(call, x, *_):
    begins, sizes = call.ints(1), call.ints(2)
    cut = tuple(slice(b, None if s == -1 else b + s) for b, s in zip(begins, sizes))
    return call.compute(lambda one: one[cut], x)


def _pack(call, *tensors):
    axis = call.attribute("axis", 0)
    if any(one.is_meta for one in tensors):
        tensors = [call.on_meta(one) for one in tensors]
    return call.compute(lambda *all_: torch.stack(all_, axis), *tensors)


def _unpack(call, x):
    return tuple(call.compute(lambda one: one.unbind(call.attribute("axis", 0)), x))


def _concat(call, *tensors):
    return joined(call, tensors[:-1], call.ints(len(tensors) - 1)[0])


def _split(call, _axis, x):
    axis, count = call.ints(0)[0], call.attribute("num_split", 1)
    return tuple(call.compute(lambda one: one.chunk(count, axis), x))


def _split_by_sizes(call, x, _sizes, _axis):
    sizes, axis = call.ints(1), call.ints(2)[0]
    rest = x.shape[axis] - sum(one for one in sizes if one >= 0)
    sizes = checked([rest if one == -1 else one for one in sizes], call.title())
    return tuple(call.compute(lambda one: one.split(sizes, axis), x))


def _transpose(call, x, _order):
    order = call.ints(1)
    return call.compute(lambda one: one.permute(order), x)


def _expand_dims(call, x, _axis):
    axis = call.ints(1)[0]
    return call.compute(lambda one: one.unsqueeze(axis), x)


def _squeeze(call, x):
    return squeezed(call, x, call.attribute("squeeze_dims") or None)


def _pad(call, x, *_):
    pairs = call.ints(1)
    flat = [one for n in reversed(range(x.ndim)) for one in pairs[2 * n : 2 * n + 2]]
    grown = [size + pairs[2 * n] + pairs[2 * n + 1] for n, size in enumerate(x.shape)]
    checked(grown, call.title())
    return call.compute(lambda one: F.pad(one, flat), x)


def _broadcast(call, x, _shape):
    shape = checked(call.ints(1), call.title())
    return call.compute(lambda one: one.expand(shape), x)


def _fill(call, _shape, value):
    shape = checked(call.ints(0), call.title())
    device = "cpu" if is_small(shape) else "meta"
    return (
        torch.full(shape, 0, dtype=value.dtype, device=device)
        if value.is_meta
        else torch.full(shape, value.item(), dtype=value.dtype, device=device)
    )


def _range(call, *_):
    start, limit, step = (call.known(n).reshape(()) for n in range(3))
    count = max(0, math.ceil((limit.item() - start.item()) / (step.item() or 1)))
    checked((count,), call.title())
    device = "cpu" if is_small((count,)) else "meta"
    return torch.arange(count, dtype=start.dtype, device=device) * step.item() + start.item()


def _cast(call, x):
    dtype = _dtype(call.attribute("DstT", 1))
    return call.compute(lambda one: one.to(dtype), x)


def _gather(call, x, places, *_):
    axis = call.ints(2)
    axis = (axis[0] if axis else 0) % x.ndim
    if x.is_meta and axis == 0 and x.ndim == 2 and places.ndim:
        return F.embedding(call.on_meta(places).long(), x)
    shape = [*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]]
    if x.is_meta or places.is_meta:
        x, places = call.on_meta(x), call.on_meta(places)
    return call.compute(
        lambda one, p: one.index_select(axis, p.reshape(-1).long()).reshape(shape), x, places
    )


def _select(call, condition, x, y):
    if any(one.is_meta for one in (condition, x, y)):
        condition, x, y = (call.on_meta(one) for one in (condition, x, y))
    return call.compute(torch.where, condition, x, y)


def _extreme(function, call, x, _axis):
    axis = call.ints(1)[0]
    return call.compute(lambda one: function(one, axis), x)


def _top(call, x, _count):
    found = call.on_meta(x).topk(call.ints(1)[0])
    return found[0], found[1]


def _resized(mode, call, x, _size):
    size = checked(call.ints(1), call.title())
    first = rebuilt.channels_first(call.on_meta(x))
    return rebuilt.channels_last(F.interpolate(first, size=size, mode=mode))


def _softmax(function):
    return lambda call, x: call.compute(lambda one: function(one, -1), x)


def _sum_of(call, *tensors):
    total = call.on_meta(tensors[0])
    for one in tensors[1:]:
        total = total + call.on_meta(one)
    return total


def _nothing(call, *_):
    return ()


_NAMED = {
    "Const": _constant, "MatMul": _matmul, "BatchMatMul": _matmul, "BatchMatMulV2": _matmul,
    "BatchMatMulV3": _matmul, "Einsum": _einsum, "Conv1D": _convolution, "Conv2D": _convolution,
    "Conv3D": _convolution, "DepthwiseConv2dNative": _depthwise, "Conv2DBackpropInput": _transposed,
    "BiasAdd": _bias, "FusedBatchNorm": _batch_norm, "FusedBatchNormV2": _batch_norm,
    "FusedBatchNormV3": _batch_norm, "MaxPool": partial(_pool, "max"),
    "AvgPool": partial(_pool, "average"),
    "Reshape": _reshape, "Shape": _shape, "StridedSlice": _strided_slice, "Slice": _slice,
    "Pack": _pack, "Unpack": _unpack, "ConcatV2": _concat, "Split": _split,
    "SplitV": _split_by_sizes, "Transpose": _transpose, "ExpandDims": _expand_dims,
    "Squeeze": _squeeze, "Pad": _pad, "PadV2": _pad, "MirrorPad": _pad, "Tile": tiled,
    "BroadcastTo": _broadcast, "Fill": _fill, "Range": _range, "Cast": _cast, "GatherV2": _gather,
    "ResourceGather": _gather, "Select": _select, "SelectV2": _select,
    "ArgMax": partial(_extreme, torch.argmax), "ArgMin": partial(_extreme, torch.argmin),
    "TopKV2": _top,
    "Cumsum": partial(_extreme, torch.cumsum), "ResizeBilinear": partial(_resized, "bilinear"),
    "ResizeNearestNeighbor": partial(_resized, "nearest"), "Softmax": _softmax(torch.softmax),
    "LogSoftmax": _softmax(torch.log_softmax), "AddN": _sum_of, "NoOp": _nothing,
    "IdentityN": lambda call, *given: given,
    "LeakyRelu": lambda call, x: call.compute(F.leaky_relu, x),
}  # fmt: skip
_NAMED.update(dict.fromkeys(
    ("Identity", "ReadVariableOp", "StopGradient", "PreventGradient", "Snapshot",
     "EnsureShape", "PlaceholderWithDefault", "CheckNumerics"), _same,
))  # fmt: skip
OPERATORS = {
    (DOMAIN, name): operator
    for name, operator in (
        *_NAMED.items(),
        *((name, _unary(one)) for name, one in _UNARY.items()),
        *((name, partial(_binary, one)) for name, one in _BINARY.items()),
        *((name, partial(_reduction, one)) for name, one in _REDUCTIONS.items()),
    )
}
