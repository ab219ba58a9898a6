"""Stand-ins for functions that a CPU takes apart otherwise than an accelerator does.

Standard library and torch only. Attention, recurrent layers, dropout and fused RMS norms are one
row each way, and save for backward what the accelerator's kernel saves.
"""

import torch
from torch.overrides import TorchFunctionMode
from torch_tracing import waits


class Canonical(TorchFunctionMode):
    """Replace functions whose CPU decomposition is not what an accelerator runs."""

    def __init__(self, recorder):
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        stand_in = _STAND_INS.get(func)
        if stand_in is not None:
            result = stand_in(self._recorder, *args, **kwargs)
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)


class _Attention(torch.autograd.Function):
    """Scaled-dot-product attention that saves what a flash kernel saves."""

    @staticmethod
    def forward(ctx, recorder, query, key, value, mask, dropout_p, is_causal):
        with recorder.paused():
            output = _attended(query, value.shape[-1])
            lse = torch.empty(query.shape[:-1], dtype=torch.float32, device=query.device)
        ctx.recorder, ctx.attributes = recorder, [int(is_causal), int(dropout_p > 0)]
        inputs = [query, key, value] if mask is None else [query, key, value, mask]
        recorder.record("paceline::attention", inputs, [output, lse], ctx.attributes)
        ctx.save_for_backward(*([*inputs, output, lse]))
        ctx.has_mask = mask is not None
        return output

    @staticmethod
    def backward(ctx, grad):
        """One kernel for query, key and value."""
        saved = ctx.saved_tensors
        with ctx.recorder.paused():
            grads = [_like_transposed(t, t.shape[-1]) for t in saved[:3]]
            if ctx.has_mask and ctx.needs_input_grad[4]:
                grads.append(torch.empty_like(saved[3]))
        ctx.recorder.record(
            "paceline::attention_backward", [*list(saved[:3]), grad, *list(saved[3:])], grads,
            ctx.attributes,
        )  # fmt: skip
        mask_grad = grads[3] if len(grads) > 3 else None
        return (None, grads[0], grads[1], grads[2], mask_grad, None, None)


def _attended(query, head_size):
    """The result, laid out as the query is where the kernel makes it by ``empty_like``.

    Source: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, `mha_fwd`.
    """
    if head_size == query.shape[-1]:
        return torch.empty_like(query)
    return _like_transposed(query, head_size)


def _like_transposed(tensor, head_size):
    """Uninitialised (batch, heads, length, head size) laid out as (batch, length, heads, …)."""
    shape = (*tuple(tensor.shape[:-1]), head_size)
    if len(shape) < 3:
        return torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    swapped = (*shape[:-3], shape[-2], shape[-3], shape[-1])
    return torch.empty(swapped, dtype=tensor.dtype, device=tensor.device).transpose(-2, -3)


def _attention(
    recorder, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    if not query.is_meta:
        return NotImplemented
    return _Attention.apply(recorder, query, key, value, attn_mask, dropout_p, is_causal)


def _dropout(recorder, input, p=0.5, training=True, inplace=False):
    if not training or p == 0 or inplace or not input.is_meta:
        return NotImplemented
    return torch.native_dropout(input, p, True)[0]


def _dropout_c(recorder, input, p, train):
    return _dropout(recorder, input, p, train)


def _by_rows(function, position):
    """A lookup whose gradients are of rows, ``sparse=True``, as one whose backward is recorded so.

    Args:
        function: Of the library.
        position: Of ``sparse`` among its arguments.
    """

    def look_up(recorder, *args, **kwargs):
        """The same lookup with a dense gradient, as sparse tensors have no storage to count."""
        if not (args[position] if position < len(args) else kwargs.get("sparse", False)):
            return NotImplemented
        recorder.keeps_rows = True
        if position < len(args):
            args = (*args[:position], False, *args[position + 1 :])
        else:
            kwargs = {**kwargs, "sparse": False}
        return function(*args, **kwargs)

    return look_up


def _multi_head_attention(recorder, *args, **kwargs):
    """The library's function, with stand-ins for what it calls by name, where no mode looks."""
    module = torch.nn.functional
    plain = {"scaled_dot_product_attention": _attention, "dropout": _dropout}
    plain = {name: (getattr(module, name), stand_in) for name, stand_in in plain.items()}

    def replaced(function, stand_in):
        """A function whose stand-in is asked first."""

        def call(*arguments, **named):
            result = stand_in(recorder, *arguments, **named)
            return function(*arguments, **named) if result is NotImplemented else result

        return call

    for name, (function, stand_in) in plain.items():
        setattr(module, name, replaced(function, stand_in))
    try:
        return module.multi_head_attention_forward(*args, **kwargs)
    finally:
        for name, (function, _) in plain.items():
            setattr(module, name, function)


class _RmsNorm(torch.autograd.Function):
    """The fused kernel of PyTorch 2.9 and later, which a CPU would decompose."""

    @staticmethod
    def forward(ctx, recorder, data, weight, num_dims):
        with recorder.paused():
            output = torch.empty_like(data)
            rstd = torch.empty(data.shape[: data.dim() - num_dims], device=data.device)
        inputs = [data] if weight is None else [data, weight]
        recorder.record("aten::_fused_rms_norm|", inputs, [output, rstd], [])
        ctx.recorder, ctx.has_weight = recorder, weight is not None
        ctx.save_for_backward(*inputs, rstd)
        return output

    @staticmethod
    def backward(ctx, grad):
        """One kernel for the data and its weight."""
        saved = ctx.saved_tensors
        with ctx.recorder.paused():
            made = [torch.empty_like(t) for t in saved[:-1]]
        ctx.recorder.record("aten::_fused_rms_norm_backward|", [grad, *saved], made, [])
        return (None, made[0], made[1] if ctx.has_weight else None, None)


def _rms_norm(recorder, input, normalized_shape, weight=None, eps=None):
    if not input.is_meta or not hasattr(torch.ops.aten, "_fused_rms_norm"):
        return NotImplemented
    return _RmsNorm.apply(recorder, input, weight, len(normalized_shape))


class _Recurrent(torch.autograd.Function):
    """All layers and time steps of a recurrent network as one op each way (as cuDNN does)."""

    @staticmethod
    def forward(ctx, recorder, spec, data, *rest):
        gates, num_layers, num_directions, hidden, output_shape, num_states, is_training = spec
        rows = 1
        for extent in output_shape[:-1]:
            rows *= extent
        with recorder.paused():
            output = data.new_empty(output_shape)
            states = [torch.empty_like(s) for s in rest[:num_states]]
            width = num_layers * num_directions * hidden * (gates + 2)
            reserve = data.new_empty((rows, width)) if is_training else data.new_empty((0, width))
        ctx.recorder, ctx.num_states = recorder, num_states
        ctx.attributes = [gates, num_layers, num_directions, hidden]
        inputs = [data, *list(rest)]
        recorder.record("paceline::recurrent", inputs, [output, reserve, *states], ctx.attributes)
        ctx.save_for_backward(*([*inputs, output, reserve]))
        return (output, *tuple(states))

    @staticmethod
    def backward(ctx, *grads):
        """One call for all layers, steps and weights."""
        saved = ctx.saved_tensors
        needed = ctx.needs_input_grad[2:]
        with ctx.recorder.paused():
            results = [torch.empty_like(t) if n else None for t, n in zip(saved, needed)]
        inputs = list(saved) + [g for g in grads if g is not None]
        outputs = [r for r in results if r is not None]
        ctx.recorder.record("paceline::recurrent_backward", inputs, outputs, ctx.attributes)
        return (None, None, *tuple(results))


def _recurrent(gates, has_cell):
    def stand_in(recorder, data, *arguments):
        """One op for all layers and directions; packed sequences hand over their lengths first."""
        if not data.is_meta:
            return NotImplemented
        is_packed = (
            isinstance(arguments[0], torch.Tensor) and isinstance(arguments[2], bool) is False
        )
        is_packed = is_packed and arguments[0].dtype == torch.int64
        if is_packed:
            _, states, weights, _, num_layers, _, training, bidirectional = arguments[:8]
        else:
            states, weights, _, num_layers, _, training, bidirectional = arguments[:7]
        states = list(states) if has_cell else [states]
        hidden = weights[1].shape[1]
        num_directions = 2 if bidirectional else 1
        width = states[0].shape[-1] * num_directions
        shape = (*tuple(data.shape[:-1]), width)
        spec = (gates, num_layers, num_directions, hidden, shape, len(states), training)
        return _Recurrent.apply(recorder, spec, data, *(states + list(weights)))

    return stand_in


_STAND_INS = {
    torch.nn.functional.scaled_dot_product_attention: _attention,
    torch.nn.functional.multi_head_attention_forward: _multi_head_attention,
    torch.nn.functional.dropout: _dropout,
    torch.nn.functional.embedding: _by_rows(torch.nn.functional.embedding, 6),
    torch.nn.functional.embedding_bag: _by_rows(torch.nn.functional.embedding_bag, 7),
    torch.dropout: _dropout_c,
    getattr(torch.nn.functional, "rms_norm", None): _rms_norm,
    getattr(torch, "rms_norm", None): _rms_norm,
    torch.lstm: _recurrent(4, True),
    torch.gru: _recurrent(3, False),
    torch.rnn_tanh: _recurrent(1, False),
    torch.rnn_relu: _recurrent(1, False),
    # As exported programs name them.
    torch.ops.aten.scaled_dot_product_attention.default: _attention,
    torch.ops.aten.dropout.default: _dropout_c,
    torch.ops.aten.lstm.input: _recurrent(4, True),
    torch.ops.aten.gru.input: _recurrent(3, False),
    torch.ops.aten.rnn_tanh.input: _recurrent(1, False),
    torch.ops.aten.rnn_relu.input: _recurrent(1, False),
    **waits.STAND_INS,
}
