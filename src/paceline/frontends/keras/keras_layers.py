"""Layers of Keras as operators of torch: dense, convolutions, pools, norms, shapes.

Standard library and torch only. Definitions after the reference of Keras 3 (keras.io/api/layers,
read 2026-11-23). Tensors have Keras's own order of dims.
"""

from functools import partial

import torch
import torch.nn.functional as F
from keras_context import activated, normed_batch, refused
from rebuilt_operators import (
    channels_first,
    channels_last,
    convolution,
    layer_norm,
    pooled,
    transposed_convolution,
)


def dense(layer, x):
    """A product with (units, width), with a bias."""
    units = layer.whole("units")
    weight = layer.weight("kernel", (units, x.shape[-1]))
    bias = layer.weight("bias", (units,)) if layer.get("use_bias", True) else None
    return activated(layer, layer.run(F.linear, x, weight, bias), layer.get("activation"))


def einsum_dense(layer, x):
    """A product by an equation such as ``ab,bc->ac``."""
    inputs, _, output = str(layer.get("equation")).replace(" ", "").partition("->")
    of_data, _, of_weight = inputs.partition(",")
    dots = "".join(c for c in "ABCDEFGHIJ")[: len(x.shape) - len(of_data.replace("...", ""))]
    of_data, output = (text.replace("...", dots) for text in (of_data, output))
    if len(of_data) != len(x.shape) or not (of_data + of_weight + output).isalpha():
        raise refused("layer `%s` has the equation `%s`" % (layer.name, layer.get("equation")))
    known = dict(zip(of_data, x.shape))
    shape = layer.get("output_shape")
    shape = list(shape) if isinstance(shape, (list, tuple)) else [shape]
    known.update({c: n for c, n in zip(output[::-1], shape[::-1]) if n and c in of_weight})
    weight = layer.weight("kernel", [known.get(c, 0) for c in of_weight])
    equation = "%s,%s->%s" % (of_data, of_weight, output)
    made = layer.run(lambda a, b: torch.einsum(equation, a, b), x, weight)
    axes = str(layer.get("bias_axes") or "").replace(".", "")
    if axes:
        places = [output.index(c) for c in axes]
        extents = [known[output[n]] if n in places else 1 for n in range(min(places), len(output))]
        made = layer.run(torch.add, made, layer.weight("bias", extents))
    return activated(layer, made, layer.get("activation"))


def embedding(layer, x):
    """A row per number."""
    shape = (layer.whole("input_dim"), layer.whole("output_dim"))
    weight = layer.weight("embeddings", shape)
    return layer.run(
        lambda w, i: F.embedding(i.long() if i.is_floating_point() else i, w), weight, x
    )


def _is_last(layer):
    return layer.get("data_format") != "channels_first"


def _padding(layer, kernel, dilation):
    """``same``, or what stands before and after each dim."""
    padding = layer.get("padding", "valid")
    if padding == "causal":
        return [((kernel[0] - 1) * dilation[0], 0)]
    if padding not in ("same", "valid"):
        raise refused("layer `%s` has the padding `%s`" % (layer.name, padding))
    return "same" if padding == "same" else [(0, 0)] * len(kernel)


def _width(layer, x):
    return x.shape[-1] if _is_last(layer) else x.shape[1]


def convolved(rank, layer, x):
    """A convolution of ``rank`` dims."""
    kernel, stride = layer.wholes("kernel_size", rank), layer.wholes("strides", rank)
    dilation, groups = layer.wholes("dilation_rate", rank), layer.whole("groups", 1)
    filters = layer.whole("filters")
    weight = layer.weight("kernel", (filters, _width(layer, x) // groups, *kernel))
    bias = layer.weight("bias", (filters,)) if layer.get("use_bias", True) else None
    made = layer.run(
        convolution, x, weight, bias, stride=stride, dilation=dilation, groups=groups,
        padding=_padding(layer, kernel, dilation), is_last=_is_last(layer),
    )  # fmt: skip
    return activated(layer, made, layer.get("activation"))


def depthwise(rank, layer, x):
    """A convolution of each channel alone."""
    made = _by_channel(layer, x, rank, layer.get("use_bias", True))
    return activated(layer, made, layer.get("activation"))


def _by_channel(layer, x, rank, has_bias):
    kernel, stride = layer.wholes("kernel_size", rank), layer.wholes("strides", rank)
    dilation, width = layer.wholes("dilation_rate", rank), _width(layer, x)
    many = width * layer.whole("depth_multiplier", 1)
    weight = layer.weight("depthwise_kernel", (many, 1, *kernel))
    bias = layer.weight("bias", (many,)) if has_bias else None
    return layer.run(
        convolution, x, weight, bias, stride=stride, dilation=dilation, groups=width,
        padding=_padding(layer, kernel, dilation), is_last=_is_last(layer),
    )  # fmt: skip


def separable(rank, layer, x):
    """A convolution of each channel alone, then a dense one of each place."""
    x = _by_channel(layer, x, rank, has_bias=False)
    filters, ones = layer.whole("filters"), (1,) * rank
    weight = layer.weight("pointwise_kernel", (filters, _width(layer, x), *ones))
    bias = layer.weight("bias", (filters,)) if layer.get("use_bias", True) else None
    made = layer.run(
        convolution, x, weight, bias, stride=ones, dilation=ones, padding=[(0, 0)] * rank,
        is_last=_is_last(layer),
    )  # fmt: skip
    return activated(layer, made, layer.get("activation"))


def convolved_back(rank, layer, x):
    """A transposed convolution: ``same`` multiplies the extents by the strides."""
    kernel, stride = layer.wholes("kernel_size", rank), layer.wholes("strides", rank)
    dilation, filters = layer.wholes("dilation_rate", rank), layer.whole("filters")
    weight = layer.weight("kernel", (_width(layer, x), filters, *kernel))
    bias = layer.weight("bias", (filters,)) if layer.get("use_bias", True) else None
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    same = layer.get("padding") == "same"
    cut = [max(0, s - t) if same else 0 for s, t in zip(spans, stride)]
    more = [c % 2 if same else 0 for c in cut]
    more = [max(m, t - s) if t > s else m for m, s, t in zip(more, spans, stride)]
    made = layer.run(
        transposed_convolution, x, weight, bias, stride=stride, dilation=dilation,
        pads=tuple((c + 1) // 2 for c in cut), more=tuple(more), is_last=_is_last(layer),
    )  # fmt: skip
    return activated(layer, made, layer.get("activation"))


def pools(kind, rank, layer, x):
    """The maximum or the mean of windows."""
    size = layer.wholes("pool_size", rank, 2)
    stride = layer.wholes("strides", rank) if layer.get("strides") else size
    return layer.run(
        pooled, x, kind=kind, size=size, stride=stride, is_last=_is_last(layer),
        padding=_padding(layer, size, (1,) * rank),
    )  # fmt: skip


def pools_all(kind, rank, layer, x):
    """The maximum or the mean of all places."""
    first = 1 if _is_last(layer) else 2
    axes, keep = tuple(range(first, first + rank)), bool(layer.get("keepdims"))
    function = torch.mean if kind == "mean" else torch.amax
    return layer.run(lambda a: function(a, dim=axes, keepdim=keep), x)


def pools_to(kind, rank, layer, x):
    """The maximum (``max``) or mean (``avg``) of so many windows that ``output_size`` comes out."""
    size, is_last = layer.wholes("output_size", rank), _is_last(layer)
    function = getattr(F, "adaptive_%s_pool%dd" % (kind, rank))

    def call(a):
        a = channels_first(a) if is_last else a
        made = function(a, size if rank > 1 else size[0])
        return channels_last(made) if is_last else made

    return layer.run(call, x)


def batch_normalization(layer, x):
    """Over all dims but one."""
    axis = layer.get("axis", -1)
    axis = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    _check_axis(layer, x, axis)
    return normed_batch(layer, x, axis)


def _check_axis(layer, x, axis):
    if not isinstance(axis, int) or not -len(x.shape) <= axis < len(x.shape):
        raise refused("layer `%s` (%s) has `axis` of %s" % (layer.name, layer.kind, axis))


def layer_normalization(layer, x):
    """Over the last dims, or one that is moved last."""
    axes = layer.get("axis", -1)
    axes = [axes] if isinstance(axes, int) else list(axes)
    for axis in axes:
        _check_axis(layer, x, axis)
    places = sorted(axis % len(x.shape) for axis in axes)
    shape = [x.shape[n] for n in places]
    scale = layer.weight("gamma", shape) if layer.get("scale", True) else None
    offset = layer.weight("beta", shape) if layer.get("center", True) else None
    last = list(range(len(x.shape) - len(places), len(x.shape)))

    def call(a, *rest):
        moved = a if places == last else a.movedim(places, last)
        made = layer_norm(moved, *rest, axes=len(places))
        return made if places == last else made.movedim(last, places)

    return layer.run(call, x, scale, offset)


def group_normalization(layer, x):
    """Over places and the channels of each group."""
    width, groups = x.shape[-1], layer.get("groups", 32)
    groups = width if groups == -1 else groups
    scale = layer.weight("gamma", (width,)) if layer.get("scale", True) else None
    offset = layer.weight("beta", (width,)) if layer.get("center", True) else None

    def call(a, *rest):
        if a.dim() == 2:
            return F.group_norm(a, groups, *rest)
        return channels_last(F.group_norm(channels_first(a), groups, *rest))

    return layer.run(call, x, scale, offset)


def rms_normalization(layer, x):
    """By the root of the mean square of the last dim."""
    shape = (x.shape[-1],)
    return layer.run(F.rms_norm, x, shape, layer.weight("scale", shape))


def normalization(layer, x):
    """By a mean and a variance that were adapted to data or are stated."""
    axis = layer.get("axis", -1)
    axes = [axis] if isinstance(axis, int) else list(axis or ())
    shape = [x.shape[n] for n in axes]
    if layer.get("mean") is None:
        mean, variance = layer.constant("mean", shape), layer.constant("variance", shape)
        layer.constant("count", ())
        return layer.run(lambda a, m, v: (a - m) / torch.sqrt(v), x, mean, variance)
    return layer.run(lambda a: (a - a.new_zeros(shape)) / 1.0, x)


def rescaling(layer, x):
    """A multiple and an offset."""
    parts = [layer.get("scale", 1.0), layer.get("offset", 0.0)]
    is_list = [isinstance(part, (list, tuple)) for part in parts]

    def call(a):
        scale, offset = (a.new_zeros(len(p)) if many else p for p, many in zip(parts, is_list))
        a = a if a.is_floating_point() else a.float()
        return a * scale + offset

    return layer.run(call, x)


def rectified(layer, x):
    """``ReLU`` with a greatest value or a slope."""
    most, slope = layer.get("max_value"), layer.get("negative_slope") or 0.0
    if slope:
        x = layer.run(F.leaky_relu, x, float(slope))
        return x if most is None else layer.run(lambda a: a.clamp(max=float(most)), x)
    if most is None:
        return layer.run(F.relu, x)
    return layer.run(lambda a: F.hardtanh(a, 0.0, float(most)), x)


def parametric(layer, x):
    """``PReLU``: a slope of each number of an item."""
    shared = [n % len(x.shape) for n in layer.get("shared_axes") or ()]
    shape = [1 if n + 1 in shared else extent for n, extent in enumerate(x.shape[1:])]
    alpha = layer.weight("alpha", shape)
    return layer.run(lambda a, s: torch.where(a > 0, a, a * s), x, alpha)


def softmax_layer(layer, x):
    """Over one axis."""
    axis = layer.get("axis", -1)
    axis = axis[-1] if isinstance(axis, list) else axis
    return layer.run(lambda a, *_masks: torch.softmax(a, dim=axis), x)


def one_function(function, layer, x, *_more, **settings):
    """A layer that is one function of torch; ``settings`` are (key, default) of its arguments."""
    named = {key: layer.get(*given) for key, given in settings.items()}
    return layer.run(function, x, **named)


def activation(layer, x):
    """A layer of one activation."""
    return activated(layer, x, layer.get("activation"))


def nothing(layer, x, *_more):
    """A layer that changes no number."""
    return x


def flatten(layer, x):
    """One dim after the batch."""
    return layer.run(lambda a: a.reshape(a.shape[0], -1), x)


def reshape(layer, x):
    """Other extents after the batch."""
    target = tuple(layer.get("target_shape") or ())
    if not all(isinstance(n, int) for n in target):
        raise refused("layer `%s` has the shape %s" % (layer.name, list(target)))
    return layer.run(lambda a: a.reshape(a.shape[0], *target), x)


def permute(layer, x):
    """Another order of the dims after the batch."""
    return layer.run(lambda a: a.permute(0, *layer.get("dims")), x)


def repeat_vector(layer, x):
    """(batch, n, width)."""
    count = layer.whole("n")
    return layer.run(lambda a: a.unsqueeze(1).expand(-1, count, -1).contiguous(), x)


def _sides(layer, rank, key):
    """(before, after) of each dim, however it is written."""
    given = layer.get(key, 1)
    given = [given] * rank if isinstance(given, int) else list(given)
    if rank == 1 and len(given) == 2 and all(isinstance(n, int) for n in given):
        given = [given]
    pairs = [(one, one) if isinstance(one, int) else tuple(one) for one in given]
    good = len(pairs) == rank and all(len(p) == 2 for p in pairs)
    if not good or not all(isinstance(n, int) and 0 <= n < 2**24 for p in pairs for n in p):
        raise refused("layer `%s` (%s) has `%s` of %s" % (layer.name, layer.kind, key, given))
    return pairs


def zero_padding(rank, layer, x):
    """Zeros around."""
    flat = [n for pair in reversed(_sides(layer, rank, "padding")) for n in pair]
    around = [0, 0, *flat] if _is_last(layer) else flat
    return layer.run(lambda a: F.pad(a, around), x)


def cropping(rank, layer, x):
    """Less around."""
    pairs, first = _sides(layer, rank, "cropping"), 1 if _is_last(layer) else 2

    def call(a):
        """Without what is cut off each dim."""
        for dim, (before, after) in enumerate(pairs, first):
            a = a.narrow(dim, before, a.shape[dim] - before - after)
        return a

    return layer.run(call, x)


def upsampling(rank, layer, x):
    """Every place several times, or interpolated."""
    size = layer.wholes("size", rank, 2)
    mode = layer.get("interpolation", "nearest")
    mode = {"bilinear": "bilinear", "bicubic": "bicubic"}.get(mode, "nearest")

    def call(a):
        """Larger by whole factors."""
        a = channels_first(a) if _is_last(layer) else a
        extents = [n * k for n, k in zip(a.shape[2:], size)]
        made = F.interpolate(a, size=extents, mode=mode)
        return channels_last(made) if _is_last(layer) else made

    return layer.run(call, x)


def resizing(layer, x):
    """To a height and a width."""
    size = (layer.whole("height"), layer.whole("width"))
    mode = {"bilinear": "bilinear", "bicubic": "bicubic"}.get(layer.get("interpolation"), "nearest")
    call = lambda a: channels_last(F.interpolate(channels_first(a), size=size, mode=mode))  # noqa: E731
    return layer.run(call, x)


def center_crop(layer, x):
    """The middle of a height and a width."""
    height, width = layer.whole("height"), layer.whole("width")
    return layer.run(lambda a: a.narrow(1, 0, height).narrow(2, 0, width), x)


def merged(function, layer, *xs):
    """Several tensors of one shape, two by two."""
    made = xs[0]
    for x in xs[1:]:
        made = layer.run(function, made, x)
    return made


def averaged(layer, *xs):
    """The mean of several tensors."""
    made = merged(torch.add, layer, *xs)
    return layer.run(torch.div, made, len(xs))


def concatenated(layer, *xs):
    """One after the other along an axis."""
    axis = layer.get("axis", -1)
    return layer.run(lambda *all_of: torch.cat(all_of, dim=axis), *xs)


def dotted(layer, a, b):
    """The product of two tensors over an axis of each."""
    axes = layer.get("axes", -1)
    first, second = (axes, axes) if isinstance(axes, int) else axes

    def call(x, y):
        """The product over two axes."""
        x, y = x.movedim(first, -1), y.movedim(second, 1)
        if x.dim() == 2 and y.dim() == 2:
            return (x * y).sum(-1, keepdim=True)
        return torch.matmul(x, y)

    return layer.run(call, a, b)


def layer_scale(layer, x):
    """A factor of each channel, as the blocks of ConvNeXt have it."""
    return layer.run(torch.mul, x, layer.weight("gamma", (layer.whole("projection_dim"),)))


def scaled_sum(layer, a, b):
    """``CustomScaleLayer`` of Inception-ResNet: the second is multiplied first."""
    scale = float(layer.get("scale", 1.0))
    return layer.run(torch.add, a, layer.run(torch.mul, b, scale))


def spread(layer, x):
    """Classes as ones among zeros: ``CategoryEncoding``."""
    count = layer.whole("num_tokens")
    is_one = layer.get("output_mode") == "one_hot"

    def call(a):
        hot = F.one_hot(a.long(), count).float()
        return hot if is_one or a.dim() < 2 else hot.amax(dim=-2)

    return layer.run(call, x)


def _table(make, *names):
    return {name % rank: partial(make, rank) for name in names for rank in (1, 2, 3)}


LAYERS = {
    "Dense": dense, "EinsumDense": einsum_dense, "Embedding": embedding,
    **_table(convolved, "Conv%dD", "Convolution%dD"),
    **_table(convolved_back, "Conv%dDTranspose", "Convolution%dDTranspose"),
    **{"DepthwiseConv%dD" % n: partial(depthwise, n) for n in (1, 2)},
    **{"SeparableConv%dD" % n: partial(separable, n) for n in (1, 2)},
    **_table(partial(pools, "max"), "MaxPooling%dD", "MaxPool%dD"),
    **_table(partial(pools, "mean"), "AveragePooling%dD", "AvgPool%dD"),
    **_table(partial(pools_all, "max"), "GlobalMaxPooling%dD", "GlobalMaxPool%dD"),
    **_table(partial(pools_all, "mean"), "GlobalAveragePooling%dD", "GlobalAvgPool%dD"),
    **_table(partial(pools_to, "max"), "AdaptiveMaxPooling%dD"),
    **_table(partial(pools_to, "avg"), "AdaptiveAveragePooling%dD"),
    "BatchNormalization": batch_normalization, "LayerNormalization": layer_normalization,
    "GroupNormalization": group_normalization, "RMSNormalization": rms_normalization,
    "UnitNormalization": partial(one_function, lambda a: F.normalize(a, dim=-1)),
    "Normalization": normalization, "Rescaling": rescaling, "Discretization": nothing,
    "CategoryEncoding": spread,
    "Activation": activation, "ReLU": rectified, "PReLU": parametric, "Softmax": softmax_layer,
    "ELU": partial(one_function, F.elu), "LeakyReLU": partial(one_function, F.leaky_relu),
    "Identity": nothing, "Masking": nothing, "ActivityRegularization": nothing,
    "LayerScale": layer_scale,
    "CustomScaleLayer": scaled_sum,
    "Flatten": flatten, "Reshape": reshape, "Permute": permute, "RepeatVector": repeat_vector,
    **_table(zero_padding, "ZeroPadding%dD"), **_table(cropping, "Cropping%dD"),
    **_table(upsampling, "UpSampling%dD"), "Resizing": resizing, "CenterCrop": center_crop,
    "RandomCrop": center_crop,
    "Add": partial(merged, torch.add), "Subtract": partial(merged, torch.sub),
    "Multiply": partial(merged, torch.mul), "Maximum": partial(merged, torch.maximum),
    "Minimum": partial(merged, torch.minimum), "Average": averaged, "Concatenate": concatenated,
    "Dot": dotted,
}  # fmt: skip
