"""Operators of ONNX that work element by element, reduce, or convert.

Standard library and torch only. Each is a function of the call and its inputs.
"""

import math
from functools import partial, reduce

import torch
import torch.nn.functional as F
from onnx_file import Refused, dtype_of


def _shrink(x, bias, lambd):
    return torch.where(x.abs() > lambd, x - torch.sign(x) * bias, torch.zeros_like(x))


_UNARY = {
    "Abs": torch.abs, "Neg": torch.neg, "Ceil": torch.ceil, "Floor": torch.floor,
    "Round": torch.round, "Sqrt": torch.sqrt, "Exp": torch.exp, "Log": torch.log,
    "Sin": torch.sin, "Cos": torch.cos, "Tan": torch.tan, "Asin": torch.asin, "Acos": torch.acos,
    "Atan": torch.atan, "Sinh": torch.sinh, "Cosh": torch.cosh, "Tanh": torch.tanh,
    "Asinh": torch.asinh, "Acosh": torch.acosh, "Atanh": torch.atanh, "Erf": torch.erf,
    "Sigmoid": torch.sigmoid, "Relu": torch.relu, "Sign": torch.sign, "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal, "Softsign": F.softsign, "IsNaN": torch.isnan,
    "BitwiseNot": torch.bitwise_not, "HardSwish": F.hardswish, "Mish": F.mish,
    "Softplus": F.softplus, "Det": torch.det, "IsInf": torch.isinf,
}  # fmt: skip
_BINARY = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Pow": torch.pow,
    "And": torch.logical_and, "Or": torch.logical_or, "Xor": torch.logical_xor,
    "Equal": torch.eq, "Greater": torch.gt, "Less": torch.lt, "GreaterOrEqual": torch.ge,
    "LessOrEqual": torch.le, "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor, "PRelu": lambda x, s: torch.where(x >= 0, x, x * s),
}  # fmt: skip
#: Activations with settings: function, and (attribute, default) of each setting.
_SET = {
    "LeakyRelu": (F.leaky_relu, (("alpha", 0.01),)),
    "Elu": (F.elu, (("alpha", 1.0),)),
    "Celu": (F.celu, (("alpha", 1.0),)),
    "Selu": (lambda x, *_: F.selu(x), ()),
    "HardSigmoid": (lambda x, *_: F.hardsigmoid(x), (("alpha", 0.2), ("beta", 0.5))),
    "ThresholdedRelu": (lambda x, a: F.threshold(x, a, 0.0), (("alpha", 1.0),)),
    "Shrink": (_shrink, (("bias", 0.0), ("lambd", 0.5))),
    "Swish": (lambda x, _: F.silu(x), (("alpha", 1.0),)),
}


def _unary(function):
    return lambda call, x: call.compute(function, x)


def _binary(function):
    return lambda call, x, y: call.compute(function, *_paired(call, x, y))


#: What PyTorch computes of a tensor and a number of Python.
_TAKE_NUMBERS = frozenset(("Add", "Sub", "Mul", "Div", "Pow", "Mod"))


def _paired(call, x, y):
    """Two operands: a single known number stays one where the function takes numbers."""
    if not (x.is_meta or y.is_meta):
        return x, y
    if call.op not in _TAKE_NUMBERS:
        return call.on_meta(x), call.on_meta(y)
    return (call.on_meta(x) if y.ndim == 0 or call.op == "Pow" else x), y


def _set(function, settings, call, x):
    given = [call.attribute(name, default) for name, default in settings]
    return call.compute(lambda one: function(one, *given), x)


def _divide(call, x, y):
    if x.dtype.is_floating_point:
        return call.compute(torch.div, *_paired(call, x, y))
    return call.compute(lambda a, b: torch.div(a, b, rounding_mode="trunc"), *_paired(call, x, y))


def _modulo(call, x, y):
    return call.compute(
        torch.fmod if call.attribute("fmod", 0) else torch.remainder, *_paired(call, x, y)
    )


def _shift(call, x, y):
    is_left = call.attribute("direction") == "LEFT"
    return call.compute(torch.bitwise_left_shift if is_left else torch.bitwise_right_shift, x, y)


def _gelu(call, x):
    approximate = call.attribute("approximate", "none")
    return call.compute(lambda one: F.gelu(one, approximate=approximate), x)


def _clip(call, x, *_):
    low, high = call.number(1, "min"), call.number(2, "max")
    if low is None and high is None:
        return x
    return call.compute(lambda one: torch.clamp(one, low, high), x)


def _variadic(function, call, *tensors):
    if len(tensors) == 1:
        return tensors[0]
    return reduce(lambda x, y: call.compute(function, *_whole(call, x, y)), tensors)


def _whole(call, x, y):
    """Both as tensors, which functions of two tensors ask for."""
    return (call.on_meta(x), call.on_meta(y)) if x.is_meta or y.is_meta else (x, y)


def _mean(call, *tensors):
    return call.compute(lambda one: one / len(tensors), _variadic(torch.add, call, *tensors))


def _where(call, condition, x, y):
    if not any(one.is_meta for one in (condition, x, y)):
        return call.compute(torch.where, condition, x, y)
    x, y = (one if one.ndim == 0 and not one.is_meta else call.on_meta(one) for one in (x, y))
    if not x.is_meta and not y.is_meta:
        y = call.on_meta(y)
    return torch.where(call.on_meta(condition), call.placed(x), call.placed(y))


def _cast(call, x):
    dtype = getattr(torch, dtype_of(call.attribute("to")))
    return call.compute(lambda one: one.to(dtype), x) if x.ndim or not x.is_meta else x.to(dtype)


def _cast_like(call, x, like):
    return call.compute(lambda one: one.to(like.dtype), x)


def _identity(call, x):
    return x


def _quantize(call, x, scale, zero=None):
    dtype = torch.uint8 if zero is None else zero.dtype
    return call.on_meta(x).div(call.placed(_along(call, x, scale))).to(dtype)


def _dequantize(call, x, scale, zero=None):
    return call.on_meta(x).to(scale.dtype) * call.placed(_along(call, x, scale))


def _along(call, x, scale):
    """Scales of an axis, shaped to be multiplied; blocks of scales are repeated."""
    if scale.ndim == 0 or scale.numel() == 1:
        return scale.reshape(()) if not scale.is_meta else scale
    if scale.ndim == x.ndim:
        for axis, (whole, part) in enumerate(zip(x.shape, scale.shape)):
            if whole != part:
                scale = torch.repeat_interleave(scale, whole // part, dim=axis)
        return scale
    axis = call.attribute("axis", 1) % x.ndim
    return scale.reshape([-1 if n == axis else 1 for n in range(x.ndim)])


def _quantize_dynamically(call, x):
    x = call.on_meta(x)
    scale = (x.amax() - x.amin()) / 255.0
    return (x / scale).to(torch.uint8), scale, scale.to(torch.uint8)


def _axes(call, x):
    """Axes of a reduction: an attribute, in newer opsets an input; none means all."""
    axes = call.ints(1, "axes")
    if not axes:
        return None if call.attribute("noop_with_empty_axes", 0) else list(range(x.ndim))
    return axes


def _reduction(function, call, x, *_):
    axes, keeps = _axes(call, x), bool(call.attribute("keepdims", 1))
    if axes is None or x.ndim == 0:
        return x
    return call.compute(lambda one: function(one, axes, keeps), x)


def _product(x, axes, keeps):
    for axis in sorted((a % x.ndim for a in axes), reverse=True):
        x = x.prod(axis, keepdim=keeps)
    return x


_REDUCTIONS = {
    "ReduceSum": lambda x, a, k: x.sum(a, keepdim=k).to(x.dtype),
    "ReduceMean": lambda x, a, k: (x if x.dtype.is_floating_point else x.float())
    .mean(a, keepdim=k).to(x.dtype),
    "ReduceMax": lambda x, a, k: torch.amax(x, a, keepdim=k),
    "ReduceMin": lambda x, a, k: torch.amin(x, a, keepdim=k),
    "ReduceProd": _product,
    "ReduceL1": lambda x, a, k: x.abs().sum(a, keepdim=k),
    "ReduceL2": lambda x, a, k: torch.linalg.vector_norm(x, 2, a, keepdim=k),
    "ReduceLogSum": lambda x, a, k: x.sum(a, keepdim=k).log(),
    "ReduceLogSumExp": lambda x, a, k: torch.logsumexp(x, a, keepdim=k),
    "ReduceSumSquare": lambda x, a, k: (x * x).sum(a, keepdim=k),
}  # fmt: skip


def _place_of_extreme(function, call, x):
    axis, keeps = call.attribute("axis", 0), bool(call.attribute("keepdims", 1))
    return call.compute(lambda one: function(one, axis, keepdim=keeps), x)


def _softmax(function, call, x):
    """Along one axis; before opset 13 over all axes from there on, as one."""
    newest = call.opset >= 13
    axis = call.attribute("axis", -1 if newest else 1)
    if newest or axis in (-1, x.ndim - 1):
        return call.compute(lambda one: function(one, axis), x)
    # Older opsets flatten from the axis on.
    axis %= x.ndim
    rows = math.prod(x.shape[:axis])
    return call.compute(lambda one: function(one.reshape(rows, -1), 1).reshape(x.shape), x)


def _hardmax(call, x):
    axis = call.attribute("axis", -1)
    x = call.on_meta(x)
    return torch.zeros_like(x).scatter(axis, x.argmax(axis, keepdim=True), 1.0)


def _cumulated(function, call, x, *_):
    axis = call.ints(1)[0]
    is_reversed = call.attribute("reverse", 0)
    made = call.compute(lambda one: function(one, axis), x)
    return call.compute(lambda one: one.flip(axis), made) if is_reversed else made


def _dropout(call, x, *_):
    """As the file has it: at rest unless it says that it trains."""
    is_training = call.number(2, None, 0)
    ratio = call.number(1, "ratio", 0.5)
    if not is_training or not ratio:
        return x, torch.ones(1, dtype=torch.bool)
    return F.dropout(call.on_meta(x), ratio, True), torch.ones(1, dtype=torch.bool)


def _random_like(function, call, x):
    code = call.attribute("dtype")
    dtype = x.dtype if code is None else getattr(torch, dtype_of(code))
    return function(call.on_meta(x), dtype=dtype)


def _random(function, call):
    from onnx_model import checked

    dtype = getattr(torch, dtype_of(call.attribute("dtype", 1)))
    return function(checked(call.attribute("shape", [])), dtype=dtype, device="meta")


def _bernoulli(call, x):
    code = call.attribute("dtype")
    made = torch.bernoulli(call.on_meta(x))
    return made if code is None else made.to(getattr(torch, dtype_of(code)))


def _cross_entropy(call, scores, labels, weight=None):
    scores, labels = call.on_meta(scores), call.on_meta(labels)
    reduction = call.attribute("reduction", "mean")
    loss = F.cross_entropy(scores, labels, weight=call.on_meta(weight), reduction=reduction)
    return loss, F.log_softmax(scores, 1) if len(call.node["outputs"]) > 1 else loss


def _likelihood(call, scores, labels, weight=None):
    reduction = call.attribute("reduction", "mean")
    return F.nll_loss(
        call.on_meta(scores), call.on_meta(labels), weight=call.on_meta(weight),
        reduction=reduction,
    )  # fmt: skip


def _norm_along(call, x):
    axis, power = call.attribute("axis", -1), call.attribute("p", 2)
    return call.compute(lambda one: F.normalize(one, power, axis), x)


def _refused(call, *_):
    raise Refused(
        "its operator `%s` makes as many results as its data says, which a trace has not" % call.op,
        "onnx-op",
    )


OPERATORS = {
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{name: _binary(function) for name, function in _BINARY.items()},
    **{name: partial(_set, *one) for name, one in _SET.items()},
    **{name: partial(_reduction, function) for name, function in _REDUCTIONS.items()},
    "Div": _divide,
    "Mod": _modulo,
    "BitShift": _shift,
    "Gelu": _gelu,
    "Clip": _clip,
    "Max": partial(_variadic, torch.maximum),
    "Min": partial(_variadic, torch.minimum),
    "Sum": partial(_variadic, torch.add),
    "Mean": _mean,
    "Where": _where,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Identity": _identity,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _quantize_dynamically,
    "ArgMax": partial(_place_of_extreme, torch.argmax),
    "ArgMin": partial(_place_of_extreme, torch.argmin),
    "Softmax": partial(_softmax, torch.softmax),
    "LogSoftmax": partial(_softmax, torch.log_softmax),
    "Hardmax": _hardmax,
    "CumSum": partial(_cumulated, torch.cumsum),
    "CumProd": partial(_cumulated, torch.cumprod),
    "Dropout": _dropout,
    "RandomNormalLike": partial(_random_like, torch.randn_like),
    "RandomUniformLike": partial(_random_like, torch.rand_like),
    "RandomNormal": partial(_random, torch.randn),
    "RandomUniform": partial(_random, torch.rand),
    "Bernoulli": _bernoulli,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
    "NegativeLogLikelihoodLoss": _likelihood,
    "LpNormalization": _norm_along,
    "NonMaxSuppression": _refused,
    "Unique": _refused,
    "Compress": _refused,
}
