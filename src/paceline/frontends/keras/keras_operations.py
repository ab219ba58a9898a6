"""Operations of ``keras.ops`` that stand in a functional model as nodes of their own.

Standard library and torch only.
"""

from functools import partial

import torch
import torch.nn.functional as F
from keras_context import ACTIVATIONS


def _over(function, layer, x, axis=None, keepdims=False):
    """A reduction with Keras's ``axis`` and ``keepdims``."""
    axis = layer.get("axis", axis)
    dims = list(range(len(x.shape))) if axis is None else axis
    dims = [dims] if isinstance(dims, int) else list(dims)
    keep = bool(layer.get("keepdims", keepdims))
    return layer.run(lambda a: function(a, dim=dims, keepdim=keep), x)


def _plain(function):
    """A function of tensors and numbers alone."""
    return lambda layer, *xs: layer.run(function, *xs)


def _reshape(layer, x, newshape=None):
    shape = list(layer.get("newshape") or newshape)
    # A free batch is written -1 or null; the sample's own extent would be a number.
    shape = [-1 if n is None else n for n in shape]
    return layer.run(lambda a: a.reshape(shape), x)


def _transpose(layer, x, axes=None):
    axes = layer.get("axes") or axes
    order = list(axes) if axes else list(range(len(x.shape)))[::-1]
    return layer.run(lambda a: a.permute(order), x)


def _along(function, layer, *xs, axis=0):
    """Several tensors in a list, joined along ``axis``."""
    axis = layer.get("axis", axis)
    return layer.run(lambda *all_of: function(all_of, dim=axis), *xs)


def _expand(layer, x, axis=None):
    axis = layer.get("axis", axis)
    axes = [axis] if isinstance(axis, int) else list(axis)

    def call(a):
        for one in axes:
            a = a.unsqueeze(one)
        return a

    return layer.run(call, x)


def _squeeze(layer, x, axis=None):
    axis = layer.get("axis", axis)
    return layer.run(lambda a: a.squeeze() if axis is None else a.squeeze(axis), x)


def _item(layer, x, key=None):
    key = _index(key)
    return layer.run(lambda a: a[key], x)


def _index(key):
    if isinstance(key, dict) and key.get("class_name") in ("__slice__", "slice"):
        start, stop, step = (key.get("config") or {}).get("value", key.get("value"))[:3]
        return slice(start, stop, step)
    if isinstance(key, dict) and key.get("class_name") == "__ellipsis__":
        return Ellipsis
    if isinstance(key, dict) and "value" in (key.get("config") or {}):
        return _index(key["config"]["value"])
    return tuple(_index(one) for one in key) if isinstance(key, (list, tuple)) else key


def _softmax(layer, x, axis=-1):
    axis = layer.get("axis", axis)
    return layer.run(lambda a: torch.softmax(a, dim=axis), x)


def _cast(layer, x, dtype="float32"):
    kind = getattr(torch, str(layer.get("dtype", dtype)), torch.float32)
    return layer.run(lambda a: a.to(kind), x)


def _normalized(layer, x):
    return layer.run(lambda a: F.normalize(a, dim=-1), x)


_TWO = {
    "Add": torch.add, "Subtract": torch.sub, "Multiply": torch.mul, "Divide": torch.div,
    "TrueDivide": torch.div, "Maximum": torch.maximum, "Minimum": torch.minimum,
    "Power": torch.pow, "Matmul": torch.matmul,
}  # fmt: skip
_ONE = {
    "Sqrt": torch.sqrt, "Rsqrt": torch.rsqrt, "Square": torch.square, "Exp": torch.exp,
    "Log": torch.log, "Log1p": torch.log1p, "Abs": torch.abs, "Absolute": torch.abs,
    "Negative": torch.neg, "Sin": torch.sin, "Cos": torch.cos, "Sign": torch.sign,
    "Relu": F.relu, "Relu6": F.relu6, "Sigmoid": torch.sigmoid, "Tanh": torch.tanh,
    "Silu": F.silu, "Gelu": F.gelu, "Elu": F.elu, "Selu": F.selu, "Softplus": F.softplus,
    "Softsign": F.softsign, "LeakyRelu": F.leaky_relu, "HardSigmoid": F.hardsigmoid,
    "HardSilu": F.hardswish, "LogSigmoid": F.logsigmoid, "Identity": torch.clone,
    "StopGradient": torch.detach,
}  # fmt: skip
OPERATIONS = {
    **{name: _plain(function) for name, function in {**_TWO, **_ONE}.items()},
    "Mean": partial(_over, torch.mean), "Sum": partial(_over, torch.sum),
    "Max": partial(_over, torch.amax), "Min": partial(_over, torch.amin),
    "Var": partial(_over, torch.var), "Std": partial(_over, torch.std),
    "Logsumexp": partial(_over, torch.logsumexp),
    "Reshape": _reshape, "Transpose": _transpose, "Concatenate": partial(_along, torch.cat),
    "Stack": partial(_along, torch.stack), "ExpandDims": _expand, "Squeeze": _squeeze,
    "GetItem": _item,
    "Softmax": _softmax, "LogSoftmax": _plain(ACTIVATIONS["log_softmax"]), "Cast": _cast,
    "Normalize": _normalized,
}  # fmt: skip
