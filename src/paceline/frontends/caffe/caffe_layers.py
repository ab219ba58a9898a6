"""Layers of Caffe as operators of torch. Standard library and torch only.

Definitions after caffe.berkeleyvision.org/tutorial/layers.html and ``caffe.proto``, read
2026-11-23: convolutions round down, pools up; pictures are channels first.
"""

import torch
import torch.nn.functional as F
from caffe_text import bad
from rebuilt_operators import convolution, pooled, transposed_convolution
from rebuilt_program import Training


class Call:
    """One layer with what it reads."""

    def __init__(self, program, message, settings):
        self.program, self.message, self._settings = program, message, settings
        self.name = str(one(message, "name", "layer"))
        self.kind = str(one(message, "type", ""))
        self.path = self.name.replace(".", "_").replace("/", "_")

    def get(self, key, default=None):
        """A setting of its parameters."""
        return one(self._settings, key, default)

    def many(self, key):
        """All values of a setting."""
        return self._settings.get(key, [])

    def whole(self, key, default=None, least=1):
        """A setting that is a whole number from ``least`` on."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
            raise bad("layer `%s` (%s) has `%s` of %s" % (self.name, self.kind, key, value))
        return value

    def pair(self, key, default, least=1):
        """(height, width) of a setting: one number, two, or ``key_h`` and ``key_w``."""
        short = key.replace("_size", "")
        if self.get(short + "_h") is not None or self.get(short + "_w") is not None:
            return tuple(self.whole(short + side, default, least) for side in ("_h", "_w"))
        given = self.many(key) or [default]
        given = given * 2 if len(given) == 1 else given
        if len(given) != 2 or not all(isinstance(n, int) and least <= n < 2**31 for n in given):
            raise bad("layer `%s` (%s) has `%s` of %s" % (self.name, self.kind, key, given))
        return tuple(given)

    def weight(self, number, name, shape):
        """Its weight of that number; one with a rate of zero is not trained."""
        rates = self.message.get("param", [])
        old = self.message.get("blobs_lr", [])
        rate = one(rates[number], "lr_mult", 1) if number < len(rates) else 1
        rate = old[number] if number < len(old) else rate
        return self.program.parameter(self.path, name, shape, is_trained=rate != 0)

    def run(self, function, *inputs, **attributes):
        """One operator of this layer."""
        return self.program.run(function, *inputs, path=self.path, **attributes)


def one(message, key, default=None):
    """The last value of a field, as a reader of protocol buffers takes it."""
    values = message.get(key) if isinstance(message, dict) else None
    return values[-1] if values else default


def convolved(call, x):
    """Groups, strides and paddings; a bias unless it is switched off."""
    filters, groups = call.whole("num_output"), call.whole("group", 1)
    kernel = call.pair("kernel_size", None)
    stride, pad = call.pair("stride", 1), call.pair("pad", 0, least=0)
    spread = (call.whole("dilation", 1),) * 2
    if call.kind in ("Deconvolution", "DECONVOLUTION"):
        weight = call.weight(0, "weight", (x.shape[1], filters // groups, *kernel))
        bias = call.weight(1, "bias", (filters,)) if call.get("bias_term", True) else None
        return call.run(
            transposed_convolution, x, weight, bias, stride=stride, pads=pad, more=(0, 0),
            dilation=spread, groups=groups, is_last=False,
        )  # fmt: skip
    weight = call.weight(0, "weight", (filters, x.shape[1] // groups, *kernel))
    bias = call.weight(1, "bias", (filters,)) if call.get("bias_term", True) else None
    return call.run(
        convolution, x, weight, bias, stride=stride, padding=[(n, n) for n in pad],
        dilation=spread, groups=groups, is_last=False,
    )  # fmt: skip


def pooling(call, x):
    """The maximum or mean of windows, rounded up; or of all places."""
    kind = "max" if call.get("pool", "MAX") in ("MAX", 0) else "mean"
    if call.get("global_pooling"):
        function = torch.amax if kind == "max" else torch.mean
        return call.run(lambda a: function(a, dim=(2, 3), keepdim=True), x)
    size, pad = call.pair("kernel_size", None), call.pair("pad", 0, least=0)
    ceil = call.get("round_mode", "CEIL") in ("CEIL", 0)
    return call.run(
        pooled, x, kind=kind, size=size, stride=call.pair("stride", 1),
        padding=[(n, n) for n in pad], ceil=ceil, is_last=False,
    )  # fmt: skip


def dense(call, x):
    """All numbers of an item times a matrix."""
    units, axis = call.whole("num_output"), call.get("axis", 1)
    if axis != 1:
        raise bad("layer `%s` (InnerProduct) has an axis of %s" % (call.name, axis))
    flat = call.run(lambda a: a.flatten(1), x) if len(x.shape) > 2 else x
    weight = call.weight(0, "weight", (units, flat.shape[1]))
    bias = call.weight(1, "bias", (units,)) if call.get("bias_term", True) else None
    return call.run(F.linear, flat, weight, bias)


def batch_norm(call, x):
    """By mean and variance alone: factor and offset are those of a `Scale` after it."""
    width = x.shape[1]
    mean, variance = (
        call.program.buffer(call.path, name, (width,)) for name in ("mean", "variance")
    )
    call.program.buffer(call.path, "factor", (1,))
    own = call.get("use_global_stats")
    training = Training if own is None else not own

    def run(a, m, v, training):
        return F.batch_norm(a, m, v, None, None, training)

    return call.run(run, x, mean, variance, training=training)


def scale(call, x, *factors):
    """A factor of each channel, and an offset where there is one."""
    if factors:
        return call.run(_scaled, x, factors[0])
    x = call.run(_scaled, x, call.weight(0, "weight", (x.shape[1],)))
    return bias(call, x, number=1) if call.get("bias_term") else x


def bias(call, x, number=0):
    """An offset of each channel."""
    offset = call.weight(number, "bias", (x.shape[1],))
    return call.run(lambda a, b: a + b.view(-1, *[1] * (a.dim() - 2)), x, offset)


def _scaled(a, b):
    return a * b.reshape(b.shape + (1,) * (a.dim() - b.dim() - (b.dim() == 1)))


def eltwise(call, *xs):
    """Sums, products or maxima of several tensors."""
    given = call.get("operation", "SUM")
    function = {"PROD": torch.mul, 0: torch.mul, "MAX": torch.maximum, 2: torch.maximum}
    made = xs[0]
    for x in xs[1:]:
        made = call.run(function.get(given, torch.add), made, x)
    return made


def concatenated(call, *xs):
    """Along the channels, or another axis."""
    axis = call.get("axis", call.get("concat_dim", 1))
    return call.run(lambda *all_of: torch.cat(all_of, dim=axis), *xs)


def normed_locally(call, x):
    """Local response normalisation, across channels or places."""
    size = call.whole("local_size", 5)
    return call.run(lambda a: F.local_response_norm(a, size), x)


def dropout(call, x):
    """A mask of each number."""
    rate = call.get("dropout_ratio", 0.5)
    if not isinstance(rate, (int, float)) or not 0 <= rate < 1:
        raise bad("layer `%s` (Dropout) has a ratio of %s" % (call.name, rate))
    return call.run(F.dropout, x, float(rate), Training)


def rectified(call, x):
    """ReLU, with a slope where there is one."""
    slope = call.get("negative_slope", 0) or 0
    return call.run(F.leaky_relu, x, float(slope)) if slope else call.run(F.relu, x)


def parametric(call, x):
    """PReLU: a slope of each channel."""
    width = 1 if call.get("channel_shared") else x.shape[1]
    return call.run(F.prelu, x, call.weight(0, "slope", (width,)))


def softmax(call, x):
    """Over the channels."""
    axis = call.get("axis", 1)
    return call.run(lambda a: torch.softmax(a, dim=axis), x)


def sliced(call, x):
    """Equal parts along the channels, or from stated places on."""
    axis, points = call.get("axis", call.get("slice_dim", 1)), call.many("slice_point")
    count = len(call.message.get("top", []))
    if points:
        return call.run(lambda a: torch.tensor_split(a, points, dim=axis), x)
    return call.run(lambda a: torch.chunk(a, count, dim=axis), x)


def reshaped(call, x):
    """Other extents: zero keeps one, and one -1 takes the rest."""
    shape = (call.get("shape") or {}).get("dim", [])

    def run(a):
        return a.reshape([a.shape[n] if extent == 0 else extent for n, extent in enumerate(shape)])

    return call.run(run, x)


def copied(call, x):
    """The same to several readers."""
    return tuple([x] * max(1, len(call.message.get("top", []))))


def power(call, x):
    """(shift + scale · x) to a power."""
    shift, factor, exponent = (
        float(call.get(k, d)) for k, d in (("shift", 0), ("scale", 1), ("power", 1))
    )
    made = call.run(lambda a: a * factor + shift, x)
    return made if exponent == 1 else call.run(torch.pow, made, exponent)


def _plain(function):
    return lambda call, x: call.run(function, x)


#: By today's names; old ones are the same in capitals.
LAYERS = {
    "Convolution": convolved, "Deconvolution": convolved, "Pooling": pooling,
    "InnerProduct": dense, "BatchNorm": batch_norm, "Scale": scale, "Bias": bias,
    "Eltwise": eltwise, "Concat": concatenated, "LRN": normed_locally, "Dropout": dropout,
    "ReLU": rectified, "PReLU": parametric, "Softmax": softmax, "Slice": sliced,
    "Reshape": reshaped, "Split": copied, "Power": power, "Sigmoid": _plain(torch.sigmoid),
    "TanH": _plain(torch.tanh), "ELU": _plain(F.elu), "AbsVal": _plain(torch.abs),
    "Flatten": _plain(lambda a: a.flatten(1)), "Exp": _plain(torch.exp), "Log": _plain(torch.log),
    "BNLL": _plain(F.softplus),
}  # fmt: skip
