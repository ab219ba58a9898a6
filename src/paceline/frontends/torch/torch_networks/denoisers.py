"""Transformers of diffusion from their numbers: ``denoiser:double=19,single=38,hidden=3072``.

Standard library and torch only. A sample is one denoising step on so many latent patches, as a
trainer takes it: text encoders and the decoder of latents have run before and are not counted.
Blocks are those of huggingface/diffusers 0.42 (models/transformers, read 2026-11-23): ``double``
has weights of its own for patches and for text (SD3, FLUX.1, Qwen-Image), ``single`` runs both as
one sequence, ``parallel`` the same with its feed-forward beside the attention (FLUX.1, AuraFlow),
and ``cross`` lets patches attend to themselves and then to the text (PixArt, Wan, LTX, Cosmos).
"""

import torch
import torch.nn.functional as F
from torch import nn

_DEFAULTS = {
    "double": 0, "single": 0, "parallel": 0, "cross": 0, "hidden": 1152, "heads": 16,
    "kv_heads": 0, "head_size": 0, "ffn": 0, "gated": 0, "bias": 1, "words": 256, "text": 4096,
    "channels": 64, "modulation": "own", "norm": "rms", "rotary": 1,
    "patches": 0,
}  # fmt: skip
#: Of these there is at least one block.
_BLOCKS = ("double", "single", "parallel", "cross")
_MODULATIONS = ("own", "shared", "none")


class RmsNorm(nn.Module):
    """As diffusers spells it (models/normalization.py, `RMSNorm`): op by op."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        """Normalise the last axis of ``x``, of any shape; the mean square is taken in FP32."""
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(variance + 1e-6) * self.weight


def turned(x):
    """Queries or keys with rotary positions, in FP32 as the libraries do."""
    half, wide = x.shape[-1] // 2, x.float()
    angles = wide.new_empty(x.shape[-2], x.shape[-1])
    turned = torch.cat((-wide[..., half:], wide[..., :half]), -1)
    return (wide * angles + turned * angles).to(x.dtype)


class _Attention(nn.Module):
    """Queries, keys and values of one kind of token, and the product after attention."""

    def __init__(self, spec, source=0):
        super().__init__()
        hidden, size, bias = spec["hidden"], spec["head_size"], bool(spec["bias"])
        inner, narrow = spec["heads"] * size, spec["kv_heads"] * size
        self.spec, self.is_self = spec, not source
        self.q = nn.Linear(hidden, inner, bias=bias)
        self.k = nn.Linear(source or hidden, narrow, bias=bias)
        self.v = nn.Linear(source or hidden, narrow, bias=bias)
        self.o = nn.Linear(inner, hidden, bias=bias)
        makes = {"rms": lambda: RmsNorm(size), "layer": lambda: nn.LayerNorm(size)}
        make = makes.get(spec["norm"], nn.Identity)
        self.norm_q, self.norm_k = make(), make()

    def parts(self, x, source=None):
        """Queries, keys and values of every head."""
        source = x if source is None else source
        q, k, v = (self._heads(part) for part in (self.q(x), self.k(source), self.v(source)))
        return self.norm_q(q), self.norm_k(k), v

    def _heads(self, x):
        return x.view(x.shape[0], x.shape[1], -1, self.spec["head_size"]).transpose(1, 2)

    def forward(self, x, source=None):
        return self.o(self.attended(*self.parts(x, source), is_self=source is None))

    def attended(self, q, k, v, is_self=True):
        """What is read, heads joined."""
        if self.spec["rotary"] and is_self:
            q, k = turned(q), turned(k)
        grouped = self.spec["kv_heads"] != self.spec["heads"]
        read = F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped)
        return read.transpose(1, 2).flatten(2)


class _FeedForward(nn.Module):
    """Two dense layers, or three with a gate."""

    def __init__(self, spec):
        super().__init__()
        hidden, inner, bias = spec["hidden"], spec["ffn"], bool(spec["bias"])
        self.up, self.down = (
            nn.Linear(hidden, inner, bias=bias),
            nn.Linear(inner, hidden, bias=bias),
        )
        self.gate = nn.Linear(hidden, inner, bias=bias) if spec["gated"] else None

    def forward(self, x):
        if self.gate is not None:
            return self.down(F.silu(self.gate(x)) * self.up(x))
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class _Scales(nn.Module):
    """Shifts, scales and gates of a block: of its own dense layer, of a shared one, or none."""

    def __init__(self, spec, count):
        super().__init__()
        self.count, self.how, hidden = count, spec["modulation"], spec["hidden"]
        if self.how == "own":
            self.dense = nn.Linear(hidden, count * hidden)
        elif self.how == "shared":
            self.table = nn.Parameter(torch.empty(count, hidden))

    def forward(self, vector, shared):
        if self.how == "own":
            return self.dense(F.silu(vector))[:, None].chunk(self.count, -1)
        if self.how == "shared":
            return (self.table + shared[:, : self.count]).chunk(self.count, 1)
        return (None,) * self.count


def _moved(x, shift, scale):
    return x if scale is None else x * (1 + scale) + shift


def _gated(x, gate):
    return x if gate is None else gate * x


class _Stream(nn.Module):
    """Attention and feed-forward of one kind of token, each normalised and moved before."""

    def __init__(self, spec):
        super().__init__()
        self.attention, self.ffn = _Attention(spec), _FeedForward(spec)
        self.norm1, self.norm2 = (
            nn.LayerNorm(spec["hidden"], elementwise_affine=False) for _ in range(2)
        )
        self.scales = _Scales(spec, 6)

    def before(self, x, scales):
        """Queries, keys and values."""
        return self.attention.parts(_moved(self.norm1(x), scales[0], scales[1]))

    def after(self, x, read, scales):
        """With what was read, through the feed-forward."""
        x = x + _gated(self.attention.o(read), scales[2])
        return x + _gated(self.ffn(_moved(self.norm2(x), scales[3], scales[4])), scales[5])


class _Double(nn.Module):
    """Patches and text with weights of their own, which attend to each other."""

    def __init__(self, spec):
        super().__init__()
        self.patches, self.words = _Stream(spec), _Stream(spec)

    def forward(self, x, text, vector, shared):
        streams = ((self.patches, x), (self.words, text))
        scales = [stream.scales(vector, shared) for stream, _ in streams]
        parts = [
            stream.before(one, of) for (stream, one), of in zip(streams, scales)
        ]  # fmt: skip
        q, k, v = (torch.cat(pair, 2) for pair in zip(*parts))
        read = self.patches.attention.attended(q, k, v).split([x.shape[1], text.shape[1]], 1)
        return tuple(
            stream.after(one, part, of)
            for (stream, one), part, of in zip(streams, read, scales)
        )  # fmt: skip


class _Single(nn.Module):
    """Patches and text as one sequence."""

    def __init__(self, spec):
        super().__init__()
        self.stream = _Stream(spec)

    def forward(self, x, text, vector, shared):
        joined, scales = torch.cat((x, text), 1), self.stream.scales(vector, shared)
        read = self.stream.attention.attended(*self.stream.before(joined, scales))
        joined = self.stream.after(joined, read, scales)
        return joined.split([x.shape[1], text.shape[1]], 1)


class _Parallel(nn.Module):
    """One sequence, whose feed-forward stands beside the attention; both end in one product."""

    def __init__(self, spec):
        super().__init__()
        self.attention, hidden = _Attention(spec), spec["hidden"]
        self.attention.o = None
        self.up = nn.Linear(hidden, spec["ffn"])
        self.o = nn.Linear(spec["heads"] * spec["head_size"] + spec["ffn"], hidden)
        self.norm, self.scales = nn.LayerNorm(hidden, elementwise_affine=False), _Scales(spec, 3)

    def forward(self, x, text, vector, shared):
        joined = torch.cat((x, text), 1)
        shift, scale, gate = self.scales(vector, shared)
        moved = _moved(self.norm(joined), shift, scale)
        hidden = F.gelu(self.up(moved), approximate="tanh")
        read = self.attention.attended(*self.attention.parts(moved))
        joined = joined + _gated(self.o(torch.cat((read, hidden), 2)), gate)
        return joined.split([x.shape[1], text.shape[1]], 1)


class _Cross(nn.Module):
    """Patches attend to themselves, then to the text."""

    def __init__(self, spec):
        super().__init__()
        self.stream, self.text = _Stream(spec), _Attention(spec, source=spec["hidden"])

    def forward(self, x, text, vector, shared):
        stream = self.stream
        scales = stream.scales(vector, shared)
        read = stream.attention.attended(*stream.before(x, scales))
        x = x + _gated(stream.attention.o(read), scales[2])
        x = x + self.text(x, text)
        moved = _moved(stream.norm2(x), scales[3], scales[4])
        return x + _gated(stream.ffn(moved), scales[5]), text


class Denoiser(nn.Module):
    """One denoising step on patches, the encoded prompt and the vector of time."""

    taken = "a sample is one denoising step; its length is in latent patches"

    def __init__(self, spec):
        super().__init__()
        self.spec, hidden = spec, spec["hidden"]
        self.patch, self.head = (
            nn.Linear(spec["channels"], hidden),
            nn.Linear(hidden, spec["channels"]),
        )
        self.prompt = nn.Linear(spec["text"], hidden)
        self.time = nn.Sequential(nn.Linear(256, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        is_shared = spec["modulation"] == "shared"
        self.shared = nn.Linear(hidden, 6 * hidden) if is_shared else None
        kinds = {"double": _Double, "single": _Single, "parallel": _Parallel, "cross": _Cross}
        self.layers = nn.ModuleList(
            [make(spec) for name, make in kinds.items() for _ in range(spec[name])]
        )
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False)

    def inputs(self, batch, seq):
        """Patches, the encoded prompt, waves of the time."""
        return (
            torch.empty(batch, seq, self.spec["channels"]),
            torch.empty(batch, self.spec["words"], self.spec["text"]),
            torch.empty(batch, 256),
        )

    def loss(self, output, _inputs):
        """Mean squared error against the noise, in FP32."""
        return F.mse_loss(output.float(), torch.empty_like(output, dtype=torch.float32))

    def forward(self, patches, prompt, waves):
        """The noise that is told, [batch, seq, channels].

        Args:
            patches: Latent patches, [batch, seq, channels].
            prompt: The encoded text, [batch, words, text].
            waves: Of the time, [batch, 256].
        """
        x, text, vector = self.patch(patches), self.prompt(prompt), self.time(waves)
        shared = None
        if self.shared is not None:
            shared = self.shared(F.silu(vector)).unflatten(1, (6, -1))
        for layer in self.layers:
            x, text = layer(x, text, vector, shared)
        return self.head(self.norm(x))


def denoiser(**given):
    """A denoiser from its numbers; what is not given follows from the rest.

    Raises:
        ValueError: A number that there is not, or blocks of no kind.
    """
    unknown = sorted(set(given) - set(_DEFAULTS))
    if unknown:
        raise ValueError(
            "unknown size %s of a denoiser; known are %s"
            % (", ".join(unknown), ", ".join(_DEFAULTS))
        )
    spec = dict(_DEFAULTS, **given)
    if not any(spec[name] for name in _BLOCKS):
        raise ValueError("it has no blocks; give one of %s" % ", ".join(_BLOCKS))
    if spec["modulation"] not in _MODULATIONS:
        raise ValueError("modulation is one of %s" % ", ".join(_MODULATIONS))
    spec["head_size"] = spec["head_size"] or spec["hidden"] // spec["heads"]
    spec["kv_heads"] = spec["kv_heads"] or spec["heads"]
    spec["ffn"] = spec["ffn"] or 4 * spec["hidden"]
    return Denoiser(spec)
