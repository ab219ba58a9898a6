"""Operators that several front ends translate into, where torch has no one function for them.

Standard library and torch only. Pictures in channels-last order are seen as channels first (a view)
and given back, so that nothing is copied.
"""

import torch
import torch.nn.functional as F

_FIRST = {3: (0, 2, 1), 4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}
_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def channels_first(x):
    """A view with the last dim second."""
    return x.permute(_FIRST[x.dim()])


def channels_last(x):
    """A view with the second dim last."""
    return x.permute(_LAST[x.dim()])


def same_padding(extents, kernel, stride, dilation):
    """(before, after) of each dim so that ``ceil(extent / stride)`` windows fit.

    Source: tensorflow.org, "Neural network: notes on padding", SAME.

    >>> same_padding((224,), (7,), (2,), (1,))
    [(2, 3)]
    """
    pads = []
    for extent, size, step, spread in zip(extents, kernel, stride, dilation):
        windows = -(-extent // step)
        total = max(0, (windows - 1) * step + (size - 1) * spread + 1 - extent)
        pads.append((total // 2, total - total // 2))
    return pads


def padded(x, pads, most=None):
    """``x``, channels first, and the even padding that the op itself is to do.

    Uneven pads, and those above ``most`` of each dim, are made by an op of their own.
    """
    is_even = all(before == after for before, after in pads)
    if is_even and (most is None or all(pair[0] <= n for pair, n in zip(pads, most))):
        return x, tuple(before for before, _ in pads)
    return F.pad(x, [n for pair in reversed(pads) for n in pair]), (0,) * len(pads)


def convolution(x, weight, bias, *, stride, padding, dilation, groups=1, is_last=True):
    """A convolution of one to three dims; ``padding`` is "same", or (before, after) of each dim."""
    x = channels_first(x) if is_last else x
    kernel = weight.shape[2:]
    pads = same_padding(x.shape[2:], kernel, stride, dilation) if padding == "same" else padding
    x, even = padded(x, pads)
    made = _CONV[len(kernel)](x, weight, bias, tuple(stride), even, tuple(dilation), groups)
    return channels_last(made) if is_last else made


def transposed_convolution(
    x, weight, bias, *, stride, pads, more, dilation, groups=1, is_last=True
):
    """A transposed convolution; ``pads`` is cut from both ends, ``more`` is added at the last."""
    x = channels_first(x) if is_last else x
    function = _TRANSPOSED[weight.dim() - 2]
    made = function(x, weight, bias, tuple(stride), pads, more, groups, tuple(dilation))
    return channels_last(made) if is_last else made


def pooled(x, *, kind, size, stride, padding, ceil=False, is_last=True):
    """The maximum or mean of windows; ``padding`` is "same", or (before, after) of each dim."""
    x = channels_first(x) if is_last else x
    ones = (1,) * len(size)
    pads = same_padding(x.shape[2:], size, stride, ones) if padding == "same" else padding
    x, even = padded(x, pads, most=[n // 2 for n in size])
    if kind == "max":
        made = _MAX[len(size)](x, tuple(size), tuple(stride), even, 1, ceil)
    else:
        made = _AVERAGE[len(size)](x, tuple(size), tuple(stride), even, ceil, False)
    return channels_last(made) if is_last else made


def batch_norm(x, mean, variance, scale, offset, *, training, dim=-1):
    """Normalised over all dims but one, with the running numbers kept in training."""
    moved = x.movedim(dim, 1) if dim not in (1,) else x
    made = F.batch_norm(moved, mean, variance, scale, offset, training)
    return made.movedim(1, dim) if dim not in (1,) else made


def recurrent(x, weights, *, kind, hidden, directions=1, training=True):
    """All steps of one recurrent layer, as one op: (batch, steps, directions · hidden).

    Args:
        x: (batch, steps, width).
        weights: Of each direction: of the input (gates · hidden, width), of the state, biases.
        kind: ``lstm``, ``gru`` or ``rnn``.
        hidden: Numbers of the state.
        directions: 1, or 2 for both ways.
        training: Whether what backward needs is kept.
    """
    state = torch.empty((directions, x.shape[0], hidden), device=x.device)
    has_bias = len(weights) > 2 * directions
    rest = (has_bias, 1, 0.0, training, directions == 2, True)
    if kind == "lstm":
        return torch.lstm(x, (state, state), weights, *rest)[0]
    function = torch.gru if kind == "gru" else torch.rnn_tanh
    return function(x, state, weights, *rest)[0]


def layer_norm(x, scale, offset, *, axes):
    """Normalised over the last dims, which ``axes`` counts."""
    shape = tuple(x.shape[-axes:])
    return F.layer_norm(x, shape, scale, offset)


def attention(query, key, value, *, mask=None, is_causal=False, dropout=0.0):
    """(batch, steps, heads, size) of each, through the one attention op."""
    q, k, v = (one.transpose(1, 2) for one in (query, key, value))
    made = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal
    )
    return made.transpose(1, 2)
