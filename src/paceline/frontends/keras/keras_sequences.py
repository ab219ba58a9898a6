"""Recurrent layers and attention of Keras, each as one op, and wrappers of layers.

Standard library and torch only.
"""

import torch
import torch.nn.functional as F
from keras_context import refused
from rebuilt_operators import attention, recurrent
from rebuilt_program import Training

_GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}
_OPS = {"LSTM": "lstm", "GRU": "gru", "SimpleRNN": "rnn"}
_CELLS = {"LSTMCell": "LSTM", "GRUCell": "GRU", "SimpleRNNCell": "SimpleRNN"}


def recurrent_layer(layer, x, *states):
    """``LSTM``, ``GRU`` and ``SimpleRNN``: all steps as one op."""
    made = _one_way(layer, x, layer.kind)
    return _returned(layer, layer.kind, made)


def _one_way(layer, x, kind):
    if len(x.shape) != 3:
        raise refused("layer `%s` (%s) takes (batch, steps, width)" % (layer.name, kind))
    x = _dropped_inputs(layer, x)
    weights = _weights(layer, x.shape[-1], kind)
    return layer.run(
        recurrent, x, weights, kind=_OPS[kind], hidden=layer.whole("units"), training=Training
    )


def _weights(layer, width, kind):
    """Of the input, of the state, and Keras's one bias; a GRU that resets after has two."""
    units = layer.whole("units")
    many = _GATES[kind] * units
    made = [layer.weight("kernel", (many, width)), layer.weight("recurrent_kernel", (many, units))]
    if layer.get("use_bias", True):
        made.append(layer.weight("bias", (many,)))
        if kind == "GRU" and layer.get("reset_after", True):
            made.append(layer.weight("recurrent_bias", (many,)))
    return made


def _dropped_inputs(layer, x):
    """Inputs without those that one mask for all steps takes away."""
    if not layer.get("dropout"):
        return x

    def call(a, training):
        return a * F.dropout(torch.ones_like(a[:, :1]), 0.5, training) if training else a

    return layer.run(call, x, Training)


def _returned(layer, kind, made):
    """The whole output or its last step, and states where they are asked for."""
    last = layer.run(lambda a: a[:, -1], made) if _wants_last(layer) else None
    output = made if layer.get("return_sequences") else last
    if not layer.get("return_state"):
        return output
    return (output, last, last) if kind == "LSTM" else (output, last)


def _wants_last(layer):
    return bool(layer.get("return_state") or not layer.get("return_sequences"))


def bidirectional(layer, x, *_states):
    """A recurrent layer in both directions, as one op."""
    forward = _cell_of(layer.inner(layer.get("layer"), "forward_layer"))
    second = layer.get("backward_layer") or layer.get("layer")
    backward = _cell_of(layer.inner(second, "backward_layer"))
    kind, units = forward.kind, forward.whole("units")
    if backward.kind != kind or backward.whole("units") != units or kind not in _GATES:
        raise refused("layer `%s` (Bidirectional) has two different layers" % layer.name)
    weights = [w for one in (forward, backward) for w in _weights(one, x.shape[-1], kind)]
    made = layer.run(
        recurrent, x, weights, kind=_OPS[kind], hidden=units, directions=2, training=Training
    )
    if not forward.get("return_sequences"):
        made = layer.run(lambda a: torch.cat((a[:, -1, :units], a[:, 0, units:]), -1), made)
    made = _merged(layer, made, units)
    if not forward.get("return_state"):
        return made
    ends = layer.run(lambda a: a[..., :units].reshape(a.shape[0], -1)[:, :units], made)
    return (made, *([ends] * (4 if kind == "LSTM" else 2)))


def _merged(layer, made, units):
    mode = layer.get("merge_mode", "concat")
    if mode == "concat":
        return made
    functions = {"sum": torch.add, "mul": torch.mul, "ave": lambda a, b: (a + b) / 2}
    if mode not in functions:
        raise refused("layer `%s` (Bidirectional) has the merge mode `%s`" % (layer.name, mode))
    return layer.run(lambda a: functions[mode](a[..., :units], a[..., units:]), made)


def generic_rnn(layer, x, *_states):
    """``RNN`` of a cell, or of cells one above the other."""
    inner = layer.inner(layer.get("cell"), "cell")
    cells = [inner]
    if inner.kind == "StackedRNNCells":
        given = inner.get("cells") or ()
        cells = [inner.inner(one, "cell%d" % n) for n, one in enumerate(given)]
    made = x
    for cell in cells:
        if cell.kind not in _CELLS:
            raise refused("layer `%s` (RNN) has the cell `%s`" % (layer.name, cell.kind))
        made = _one_way(cell, made, _CELLS[cell.kind])
    return _returned(layer, _CELLS[cells[-1].kind], made) if cells else made


def _cell_of(layer):
    """The recurrent layer itself; of an ``RNN``, its cell with the outer settings."""
    if layer.kind != "RNN":
        return layer
    cell = layer.inner(layer.get("cell"), "cell")
    cell.kind = _CELLS.get(cell.kind, cell.kind)
    cell.config = {**cell.config, "return_sequences": layer.get("return_sequences")}
    return cell


def time_distributed(layer, x):
    """A layer on every step."""
    inner, steps = layer.inner(layer.get("layer"), "layer"), x
    flat = layer.run(lambda a: a.reshape(-1, *a.shape[2:]), x)
    made = layer.building.called(inner, [flat], {})
    return layer.run(lambda a, like: a.reshape(*like.shape[:2], *a.shape[1:]), made, steps)


def multi_head_attention(layer, query, value, key=None, *_masks, is_causal=False):
    """Projections of queries, keys and values, attention, and a projection of the result."""
    key = value if key is None else key
    heads, size = layer.whole("num_heads"), layer.whole("key_dim")
    wide = layer.whole("value_dim") if layer.get("value_dim") else size
    q = _headed(layer, "query", query, heads, size)
    k = _headed(layer, "key", key, heads, size)
    v = _headed(layer, "value", value, heads, wide)
    return _attended(layer, q, k, v, query.shape[-1], is_causal)


def grouped_attention(layer, query, value, key=None, *_masks, is_causal=False):
    """The same with several queries for each key."""
    key = value if key is None else key
    heads, pairs = layer.whole("num_query_heads"), layer.whole("num_key_value_heads")
    size = layer.whole("head_dim")
    q = _headed(layer, "query", query, heads, size)
    k, v = (_headed(layer, n, x, pairs, size) for n, x in (("key", key), ("value", value)))
    if heads % pairs:
        raise refused("layer `%s` has %d queries for %d keys" % (layer.name, heads, pairs))
    many = heads // pairs
    k, v = (layer.run(lambda a: a.repeat_interleave(many, dim=2), one) for one in (k, v))
    return _attended(layer, q, k, v, query.shape[-1], is_causal)


def _headed(layer, name, x, heads, size):
    """(batch, steps, heads, size)."""
    made = _projected(layer, name, x, heads * size)
    if len(x.shape) != 3:
        made = layer.run(lambda a: a.reshape(a.shape[0], -1, a.shape[-1]), made)
    return layer.run(lambda a: a.unflatten(-1, (heads, size)), made)


def _projected(layer, name, x, width):
    weight = layer.weight(name + "_kernel", (width, x.shape[-1]))
    bias = layer.weight(name + "_bias", (width,)) if layer.get("use_bias", True) else None
    return layer.run(F.linear, x, weight, bias)


def _attended(layer, q, k, v, width, is_causal):
    width = layer.get("output_shape") or width
    width = width[-1] if isinstance(width, (list, tuple)) else width
    made = layer.run(attention, q, k, v, is_causal=bool(is_causal))
    return _projected(layer, "output", layer.run(lambda a: a.flatten(2), made), width)


def dot_attention(layer, query, value, key=None):
    """``Attention`` without projections."""
    key = value if key is None else key
    if layer.get("use_scale"):
        query = layer.run(torch.mul, query, layer.weight("scale", ()))
    shaped = [layer.run(lambda a: a.unsqueeze(2), one) for one in (query, key, value)]
    return layer.run(lambda a: a.squeeze(2), layer.run(attention, *shaped))


def additive_attention(layer, query, value, key=None):
    """``AdditiveAttention``: the tanh of sums, weighed."""
    key = value if key is None else key
    scale = layer.weight("scale", (query.shape[-1],)) if layer.get("use_scale", True) else None

    def call(q, k, v, *weight):
        """Softmax over sums of queries and keys, times values."""
        sums = torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))
        scores = (sums * weight[0] if weight else sums).sum(-1)
        return torch.softmax(scores, -1) @ v

    weights = () if scale is None else (scale,)
    return layer.run(call, query, key, value, *weights)


LAYERS = {
    **dict.fromkeys(_GATES, recurrent_layer),
    "Bidirectional": bidirectional, "RNN": generic_rnn, "TimeDistributed": time_distributed,
    "MultiHeadAttention": multi_head_attention, "GroupedQueryAttention": grouped_attention,
    "GroupQueryAttention": grouped_attention,
    "Attention": dot_attention, "AdditiveAttention": additive_attention,
}  # fmt: skip
