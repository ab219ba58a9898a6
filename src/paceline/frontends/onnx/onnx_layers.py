"""Operators of ONNX that are layers: products, convolutions, norms, pools, recurrent layers.

Standard library and torch only. What a graph keeps in the order of ONNX is handed to PyTorch's
function of the same layer; where weights lie in another order (gates), only sizes matter here.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from onnx_file import Refused

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _matmul(call, x, y):
    return call.compute(torch.matmul, *_tensors(call, x, y))


def _tensors(call, *given):
    """All on meta where one is."""
    if any(one is not None and one.is_meta for one in given):
        return [call.on_meta(one) for one in given]
    return list(given)


def _integer_product(call, x, y, *_):
    x, y = _tensors(call, x, y)
    return torch.matmul(x.to(torch.int32), y.to(torch.int32))


def _gemm(call, x, y, z=None):
    x, y, z = _tensors(call, x, y, z)
    x = x.t() if call.attribute("transA", 0) else x
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    if call.attribute("transB", 0) and alpha == beta == 1.0 and (z is None or z.ndim == 1):
        return call.compute(lambda a, b, *c: F.linear(a, b, *c), x, y, *([] if z is None else [z]))
    y = y.t() if call.attribute("transB", 0) else y
    if z is None:
        return torch.mm(x, y)
    return torch.addmm(z.reshape(1) if z.ndim == 0 else z, x, y, alpha=alpha, beta=beta)


def _einsum(call, *tensors):
    equation = call.attribute("equation")
    return call.compute(lambda *all_: torch.einsum(equation, *all_), *_tensors(call, *tensors))


def _window(call, x, kernel):
    """(strides, dilations, pads before, pads after) of a window over the last dims of ``x``."""
    count = x.ndim - 2
    strides = call.attribute("strides") or [1] * count
    dilations = call.attribute("dilations") or [1] * count
    pads = call.attribute("pads") or [0] * (2 * count)
    if min(*strides, *dilations) < 1 or len(pads) != 2 * count:
        raise Refused("its node %s has settings that make no window" % call.title())
    before, after = pads[:count], pads[count:]
    automatic = call.attribute("auto_pad", "NOTSET")
    if automatic.startswith("SAME"):
        before, after = [], []
        for size, k, stride, wide in zip(x.shape[2:], kernel, strides, dilations):
            total = max((-(-size // stride) - 1) * stride + (k - 1) * wide + 1 - size, 0)
            less = total // 2
            first = less if automatic == "SAME_UPPER" else total - less
            before.append(first)
            after.append(total - first)
    return strides, dilations, before, after


def _padded(x, before, after):
    """(input, pads) for a function that pads both sides alike."""
    if list(before) == list(after):
        return x, list(before)
    flat = [one for pair in reversed(list(zip(before, after))) for one in pair]
    return F.pad(x, flat), [0] * len(before)


def _convolution(call, x, weight, bias=None):
    x, weight, bias = (call.on_meta(one) for one in (x, weight, bias))
    strides, dilations, before, after = _window(call, x, weight.shape[2:])
    x, pads = _padded(x, before, after)
    groups = call.attribute("group", 1)
    return _CONVOLUTIONS[x.ndim - 2](x, weight, bias, strides, pads, dilations, groups)


def _integer_convolution(call, x, weight, *_):
    x, weight = call.on_meta(x).float(), call.on_meta(weight).float()
    return _convolution(call, x, weight).to(torch.int32)


def _quantized_convolution(call, x, scale, zero, weight, _scale, _zero, _out, out_zero, *bias):
    x, weight = call.on_meta(x).float(), call.on_meta(weight).float()
    made = _convolution(call, x, weight, *[call.on_meta(one).float() for one in bias])
    return made.to(zero.dtype if out_zero is None else out_zero.dtype)


def _quantized_product(call, x, _scale, zero, y, *_):
    return torch.matmul(call.on_meta(x).float(), call.on_meta(y).float()).to(zero.dtype)


def _transposed_convolution(call, x, weight, bias=None):
    x, weight, bias = (call.on_meta(one) for one in (x, weight, bias))
    strides, dilations, before, after = _window(call, x, weight.shape[2:])
    extra = call.attribute("output_padding") or [0] * (x.ndim - 2)
    wanted, groups = call.attribute("output_shape"), call.attribute("group", 1)
    automatic = call.attribute("auto_pad", "NOTSET").startswith("SAME")
    sizes = zip(x.shape[2:], weight.shape[2:], strides, dilations, extra)
    whole = [(n - 1) * s + (k - 1) * d + 1 + e for n, k, s, d, e in sizes]
    if automatic and not wanted:
        wanted = [n * s for n, s in zip(x.shape[2:], strides)]
    made = _TRANSPOSED[x.ndim - 2](x, weight, bias, strides, 0, extra, groups, dilations)
    if wanted:
        cuts = [(0, size) for size in wanted[-(x.ndim - 2) :]]
    else:
        cuts = [(b, n - b - a) for n, b, a in zip(whole, before, after)]
        if before == after:
            return _TRANSPOSED[x.ndim - 2](
                x, weight, bias, strides, before, extra, groups, dilations
            )
    for axis, (start, size) in enumerate(cuts):
        made = made.narrow(axis + 2, start, size)
    return made


def _batch_norm(call, x, scale, bias, mean, variance):
    x, scale, bias, mean, variance = (call.on_meta(one) for one in (x, scale, bias, mean, variance))
    trains = x.requires_grad or (torch.is_grad_enabled() and scale.requires_grad)
    mean, variance = mean.detach(), variance.detach()
    made = F.batch_norm(
        x, mean, variance, scale, bias, trains, 0.1, call.attribute("epsilon", 1e-5)
    )
    return (made, mean, variance)


def _instance_norm(call, x, scale, bias):
    x, scale, bias = (call.on_meta(one) for one in (x, scale, bias))
    return F.instance_norm(x, weight=scale, bias=bias, eps=call.attribute("epsilon", 1e-5))


def _layer_norm(call, x, scale, bias=None):
    x, scale, bias = (call.on_meta(one) for one in (x, scale, bias))
    axis = call.attribute("axis", -1) % x.ndim
    shape = x.shape[axis:]
    if tuple(scale.shape) != tuple(shape):
        scale = scale.expand(shape)
    bias = bias if bias is None or bias.shape == shape else bias.expand(shape)
    # Means and deviations beside it have one number a row.
    rows = (*x.shape[:axis], *[1] * len(shape))
    made = F.layer_norm(x, shape, scale, bias, call.attribute("epsilon", 1e-5))
    extras = [x.new_empty(rows) for _ in call.node["outputs"][1:]]
    return (made, *extras)


def _group_norm(call, x, scale, bias):
    x, scale, bias = (call.on_meta(one) for one in (x, scale, bias))
    groups, channels = call.attribute("num_groups"), x.shape[1]
    if scale.shape[0] != channels:
        scale, bias = (one.repeat_interleave(channels // groups) for one in (scale, bias))
    return F.group_norm(x, groups, scale, bias, call.attribute("epsilon", 1e-5))


def _rms_norm(call, x, scale):
    x, scale = call.on_meta(x), call.on_meta(scale)
    shape = x.shape[call.attribute("axis", -1) % x.ndim :]
    return torch.rms_norm(x, shape, scale, call.attribute("epsilon", 1e-5))


def _response_norm(call, x):
    settings = [call.attribute(n, d) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))]
    return F.local_response_norm(call.on_meta(x), call.attribute("size"), *settings)


def _mean_variance(call, x):
    axes, x = call.attribute("axes") or [0, 2, 3], call.on_meta(x)
    centred = x - x.mean(axes, keepdim=True)
    return centred / (centred * centred).mean(axes, keepdim=True).sqrt()


def _max_pool(call, x):
    x, kernel = call.on_meta(x), call.attribute("kernel_shape")
    strides, dilations, before, after = _window(call, x, kernel)
    ceil = bool(call.attribute("ceil_mode", 0))
    needs_pad = list(before) != list(after) or any(2 * p > k for p, k in zip(before, kernel))
    if needs_pad:
        flat = [one for pair in reversed(list(zip(before, after))) for one in pair]
        x, before = F.pad(x, flat, value=-math.inf), [0] * len(kernel)
    pool = _MAX[x.ndim - 2]
    if len(call.node["outputs"]) > 1:
        return pool(x, kernel, strides, before, dilations, ceil, return_indices=True)
    return pool(x, kernel, strides, before, dilations, ceil)


def _average_pool(call, x):
    x, kernel = call.on_meta(x), call.attribute("kernel_shape")
    strides, _, before, after = _window(call, x, kernel)
    ceil, counts = (
        bool(call.attribute("ceil_mode", 0)),
        bool(call.attribute("count_include_pad", 0)),
    )
    if any(2 * p > k for p, k in zip(before, kernel)) or list(before) != list(after):
        flat = [one for pair in reversed(list(zip(before, after))) for one in pair]
        x, before = F.pad(x, flat), [0] * len(kernel)
    return _AVERAGE[x.ndim - 2](x, kernel, strides, before, ceil, counts)


def _power_pool(call, x):
    x, power, kernel = call.on_meta(x), call.attribute("p", 2), call.attribute("kernel_shape")
    strides, _, before, after = _window(call, x, kernel)
    x, pads = _padded(x.abs().pow(power), before, after)
    return _AVERAGE[x.ndim - 2](x, kernel, strides, pads).mul(math.prod(kernel)).pow(1.0 / power)


def _over_all(function, call, x):
    return function(call.on_meta(x), list(range(2, x.ndim)))


def _unpool(call, x, places, *_):
    x, places = call.on_meta(x), call.on_meta(places).long()
    shape = call.ints(2)
    kernel, strides = call.attribute("kernel_shape"), call.attribute("strides")
    strides = strides or [1] * len(kernel)
    if shape is None:
        shape = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], strides, kernel)]
    shape = [*x.shape[:2], *shape[-len(kernel) :]]
    flat = x.new_zeros((*x.shape[:2], math.prod(shape[2:])))
    return flat.scatter(2, places.flatten(2), x.flatten(2)).reshape(shape)


def _resize(call, x, *_):
    """Of opset 10 on, and Upsample before: by scales or to sizes."""
    from onnx_model import checked

    is_old = call.op == "Upsample" or call.opset < 11
    scales = call.known(1 if is_old else 2)
    sizes = None if is_old else call.ints(3)
    axes = call.attribute("axes") or list(range(x.ndim))
    shape = list(x.shape)
    if sizes:
        for axis, size in zip(axes, sizes):
            shape[axis] = size
    else:
        for axis, scale in zip(axes, scales.reshape(-1).tolist()):
            shape[axis] = math.floor(shape[axis] * scale + 1e-6)
    return _interpolated(call, call.on_meta(x), list(checked(shape, call.title())))


def _interpolated(call, x, shape):
    mode, extra = call.attribute("mode", "nearest"), 0
    while x.ndim < 3:
        x, extra, shape = x.unsqueeze(0), extra + 1, [1, *shape]
    if shape[:2] != list(x.shape[:2]):
        raise Refused("its node %s resizes batch or channels" % call.title(), "onnx-node")
    size = shape[2:]
    names = {
        ("nearest", 1): "nearest", ("nearest", 2): "nearest", ("nearest", 3): "nearest",
        ("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear",
        ("cubic", 2): "bicubic",
    }  # fmt: skip
    name = names.get((mode, len(size)))
    if name is None:
        raise Refused("its node %s resizes %d dims by `%s`" % (call.title(), len(size), mode),
                      "onnx-node")  # fmt: skip
    made = F.interpolate(x, size=size, mode=name)
    return made.reshape(made.shape[extra:])


def _grid_sample(call, x, grid):
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(
        call.attribute("mode", "bilinear"), call.attribute("mode", "bilinear")
    )
    padding = call.attribute("padding_mode", "zeros")
    aligned = bool(call.attribute("align_corners", 0))
    return F.grid_sample(call.on_meta(x), call.on_meta(grid), mode, padding, aligned)


def _affine_grid(call, theta, _size):
    aligned = bool(call.attribute("align_corners", 0))
    return F.affine_grid(call.on_meta(theta), call.ints(1), aligned)


def _regions(call, x, boxes, _batch):
    """Samples of each region, by bilinear reading."""
    x, boxes = call.on_meta(x), call.on_meta(boxes)
    shape = (boxes.shape[0], x.shape[1], call.attribute("output_height", 1),
             call.attribute("output_width", 1))  # fmt: skip
    made = x.new_empty(shape)
    if call.model.recorder is not None:
        call.model.recorder.record("paceline::pool_regions|", [x, boxes], [made], [])
    return made


def _fourier(call, x, *_):
    axis = call.ints(2, "axis")
    axis = (axis[0] if axis else 1) % x.ndim
    x = call.on_meta(x)
    whole = torch.complex(
        x[..., 0], x[..., -1] if x.shape[-1] == 2 else torch.zeros_like(x[..., 0])
    )
    function = torch.fft.ifft if call.attribute("inverse", 0) else torch.fft.fft
    made = torch.view_as_real(function(whole, dim=axis))
    if call.attribute("onesided", 0):
        made = made.narrow(axis, 0, made.shape[axis] // 2 + 1)
    return made


def _recurrent(
    gates, function, has_cell, call, x, weight, recurrence, bias=None, lengths=None, *states
):
    """One op for all steps, as an engine runs it."""
    x, weight, recurrence, bias = (call.on_meta(o) for o in (x, weight, recurrence, bias))
    is_batch_first = call.attribute("layout", 0)
    x = x.transpose(0, 1) if is_batch_first else x
    directions, hidden = weight.shape[0], recurrence.shape[-1]
    if tuple(recurrence.shape) != (directions, gates * hidden, hidden):
        raise Refused("its node %s has weights of other sizes" % call.title(), "onnx-node")
    shape = (directions, x.shape[1], hidden)
    given = [_state(call, one, shape, x, is_batch_first) for one in states[: 1 + has_cell]]
    given += [x.new_zeros(shape) for _ in range(1 + has_cell - len(given))]
    flat = _flat_weights(weight, recurrence, bias, gates * hidden)
    state, trains = tuple(given) if has_cell else given[0], weight.requires_grad
    made = function(x, state, flat, bias is not None, 1, 0.0, trains, directions == 2, False)
    return _in_the_order_of_onnx(made, directions, hidden, is_batch_first)


def _state(call, state, shape, x, is_batch_first):
    if state is None:
        return x.new_zeros(shape)
    state = call.on_meta(state)
    return state.transpose(0, 1) if is_batch_first else state


def _flat_weights(weight, recurrence, bias, rows):
    """As PyTorch lists them: each direction's input and recurrent weights, then its two biases."""
    flat = []
    for direction in range(weight.shape[0]):
        flat += [weight[direction], recurrence[direction]]
        if bias is not None:
            flat += [bias[direction, :rows], bias[direction, rows:]]
    return flat


def _in_the_order_of_onnx(made, directions, hidden, is_batch_first):
    """(length, directions, batch, hidden), and the states."""
    output, *states = made
    length, batch = output.shape[:2]
    output = output.reshape(length, batch, directions, hidden)
    if is_batch_first:
        return (output.transpose(0, 1), *[one.transpose(0, 1) for one in states])
    return (output.transpose(1, 2), *states)


def _plain_recurrent(call, x, *rest):
    names = call.attribute("activations") or ["Tanh"]
    function = torch.rnn_relu if names[0] == "Relu" else torch.rnn_tanh
    return _recurrent(1, function, 0, call, x, *rest)


def _attention(call, query, key, value, mask=None, past_key=None, past_value=None, *_):
    """Of opset 23: with heads apart, or together with their counts as settings."""
    query, key, value = (call.on_meta(one) for one in (query, key, value))
    is_flat = query.ndim == 3
    if is_flat:
        counts = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
        query, key, value = (
            one.reshape(*one.shape[:2], n, -1).transpose(1, 2)
            for one, n in zip((query, key, value), (counts[0], counts[1], counts[1]))
        )
    if past_key is not None:
        key = torch.cat([call.on_meta(past_key), key], 2)
        value = torch.cat([call.on_meta(past_value), value], 2)
    mask = call.on_meta(mask)
    made = F.scaled_dot_product_attention(
        query, key, value, mask, 0.0, bool(call.attribute("is_causal", 0)),
        scale=call.attribute("scale"), enable_gqa=key.shape[1] != query.shape[1],
    )  # fmt: skip
    if is_flat:
        made = made.transpose(1, 2).flatten(2)
    return (made, key, value)[: max(1, len(call.node["outputs"]))]


def _rotary(call, x, cosine, sine, places=None):
    """Rotated pairs, of opset 23."""
    x, cosine, sine = (call.on_meta(one) for one in (x, cosine, sine))
    shape, heads = x.shape, call.attribute("num_heads", 0)
    if x.ndim == 3:
        x = x.reshape(*shape[:2], heads, -1).transpose(1, 2)
    if places is not None:
        places = call.on_meta(places)
        cosine, sine = F.embedding(places, cosine), F.embedding(places, sine)
    size = call.attribute("rotary_embedding_dim", 0) or x.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    if call.attribute("interleaved", 0):
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned.chunk(2, -1)
    cosine, sine = (one[..., : size // 2].unsqueeze(1) for one in (cosine, sine))
    made = torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)
    made = torch.cat([made, rest], -1) if rest.shape[-1] else made
    return made.transpose(1, 2).reshape(shape) if len(shape) == 3 else made


OPERATORS = {
    "MatMul": _matmul,
    "MatMulInteger": _integer_product,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": _convolution,
    "ConvInteger": _integer_convolution,
    "QLinearConv": _quantized_convolution,
    "QLinearMatMul": _quantized_product,
    "ConvTranspose": _transposed_convolution,
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm,
    "RMSNormalization": _rms_norm,
    "LRN": _response_norm,
    "MeanVarianceNormalization": _mean_variance,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _power_pool,
    "GlobalAveragePool": partial(_over_all, lambda x, axes: x.mean(axes, keepdim=True)),
    "GlobalMaxPool": partial(_over_all, lambda x, axes: x.amax(axes, keepdim=True)),
    "GlobalLpPool": partial(
        _over_all, lambda x, axes: torch.linalg.vector_norm(x, 2, axes, keepdim=True)
    ),
    "MaxUnpool": _unpool,
    "Resize": _resize,
    "Upsample": _resize,
    "GridSample": _grid_sample,
    "AffineGrid": _affine_grid,
    "RoiAlign": _regions,
    "DFT": _fourier,
    "LSTM": partial(_recurrent, 4, torch.lstm, 1),
    "GRU": partial(_recurrent, 3, torch.gru, 0),
    "RNN": _plain_recurrent,
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
}
