"""Transformers of diffusion whose text goes through the blocks beside the picture.

Esser et al. 2024 (arXiv:2403.03206, MM-DiT) and the models of
huggingface/diffusers that follow it: transformer_sd3.py, transformer_flux.py,
transformer_hunyuan_video.py, cogvideox_transformer_3d.py (read 2026-11-21).
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch_networks.denoisers import RmsNorm, turned

#: What normalises the queries and keys of a head.
HEAD_NORMS = {"rms": RmsNorm, "layer": nn.LayerNorm, "none": lambda _size: nn.Identity()}


class _Stream(nn.Module):
    """What one kind of token passes in a block.

    Args:
        width: Hidden size.
        heads: Of the attention.
        inner: Width of the feed-forward; 0 for a stream that ends with the attention's input.
        norm: Of the queries and keys of a head.
        conditions: Width of the vector that scales and shifts follow from.
        num_scales: Scales, shifts and gates.
    """

    def __init__(self, width, heads, inner, norm, conditions, num_scales):
        super().__init__()
        self.heads, self.num_scales = heads, num_scales
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = nn.Linear(conditions, num_scales * width)
        self.norms = nn.ModuleList([HEAD_NORMS[norm](width // heads) for _ in range(2)])
        self.qkv = nn.Linear(width, 3 * width)
        if inner:
            self.out = nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def scales(self, vector):
        """Of each kind, (batch, 1, width)."""
        return self.modulation(F.silu(vector))[:, None].chunk(self.num_scales, -1)

    def attention_inputs(self, x, shift, scale):
        """Queries, keys, values of every head."""
        q, k, v = (
            one.view(one.shape[0], one.shape[1], self.heads, -1).transpose(1, 2)
            for one in self.qkv(self.norm(x) * (1 + scale) + shift).chunk(3, -1)
        )
        return self.norms[0](q), self.norms[1](k), v

    def finished(self, x, attended, gate, rest):
        """With what was attended to, through the feed-forward."""
        x = x + gate * self.out(attended)
        shift, scale, gate = rest
        hidden = F.gelu(self.up(self.norm(x) * (1 + scale) + shift), approximate="tanh")
        return x + gate * self.down(hidden)


class _Own(nn.Module):
    """Attention of the patches to themselves, beside that of patches and text together."""

    def __init__(self, width, heads, norm):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([HEAD_NORMS[norm](width // heads) for _ in range(2)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (
            one.view(one.shape[0], one.shape[1], self.heads, -1).transpose(1, 2)
            for one in self.qkv(x).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(self.norms[0](q), self.norms[1](k), v)
        return self.out(y.transpose(1, 2).flatten(2))


class JointBlock(nn.Module):
    """Attention of picture and text together, with weights of their own or in common.

    Args:
        width: Hidden size.
        heads: Of the attention.
        inner: Width of the feed-forward.
        norm: Of the queries and keys of a head.
        conditions: Width of the vector that scales and shifts follow from.
        has_rotary: Positions turn queries and keys.
        text: ``own`` weights, those of the picture (``common``), or ``last``: own ones as far as
            the attention, after which the text is not needed any more.
        num_scales: Three for attention and feed-forward together, six for each of them, twelve
            where those of the text are others.
        has_dual: The patches attend to themselves a second time.
    """

    def __init__(
        self, width, heads, inner, norm, conditions, has_rotary, text="own",
        num_scales=6, has_dual=False,
    ):  # fmt: skip
        super().__init__()
        num_scales += 3 * has_dual
        self.picture = _Stream(width, heads, inner, norm, conditions, num_scales)
        self.dual = _Own(width, heads, norm) if has_dual else None
        self.text, self.has_rotary = None, has_rotary
        if text == "own":
            self.text = _Stream(width, heads, inner, norm, conditions, 6)
        elif text == "last":
            self.text = _Stream(width, heads, 0, norm, conditions, 2)

    def forward(self, x, text, vector):
        if self.text is None:
            joined = self._through([(self.picture, torch.cat((x, text), 1))], vector)[0]
            return joined.split((x.shape[1], text.shape[1]), 1)
        return self._through([(self.picture, x), (self.text, text)], vector)

    def _through(self, streams, vector):
        scales = [stream.scales(vector) for stream, _ in streams]
        given = [
            stream.attention_inputs(x, of[0], of[1]) for (stream, x), of in zip(streams, scales)
        ]
        q, k, v = (torch.cat(parts, 2) if len(parts) > 1 else parts[0] for parts in zip(*given))
        if self.has_rotary:
            q, k = turned(q), turned(k)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        found = y.split([x.shape[1] for _, x in streams], 1)
        return [
            self._finished(stream, x, part, of)
            for (stream, x), part, of in zip(streams, found, scales)
        ]

    def _finished(self, stream, x, attended, scales):
        if len(scales) == 2:
            return x
        if stream is self.picture and self.dual is not None:
            shift, scale, gate = scales[6:]
            x = x + gate * self.dual(stream.norm(x) * (1 + scale) + shift)
        rest = scales if len(scales) == 3 else scales[3:6]
        return stream.finished(x, attended, scales[2], rest)


class OfPatches:
    """What models on patches of 16×16 pixels are given: a square picture, or a film of its own.

    Attributes:
        side: Of a picture; another may be asked for. None of a film.
        multiple: What a side is a multiple of.
        least: Two patches: one is copied less often than any more are.
    """

    multiple, least = 16, 32

    def show(self, tokens, film=""):
        """An item of so many patches: a square picture unless it is a film."""
        self.film, self._tokens = film, tokens
        self.side = None if film else self.multiple * math.isqrt(tokens)

    @property
    def has_one_size(self):
        """Whether no other size can be asked for."""
        return self.side is None

    @property
    def num_patches(self):
        """Of one item."""
        return (self.side // self.multiple) ** 2 if self.side else self._tokens

    @property
    def described(self):
        """As printed."""
        return self.film or "pictures of %d×%d" % (self.side, self.side)


class JointTransformer(OfPatches, nn.Module):
    """One denoising step on latent patches, of one picture or film and its text.

    Time embedding, text encoders and the decoder of latents are not counted: they run once, or on
    one vector.

    Args:
        blocks: Functions that make a block each, in order.
        width: Hidden size.
        tokens: Patches of one item.
        words: Tokens of the prompt.
        conditions: Width of the vector that scales and shifts follow from.
        guided: Passes per item: two where guidance needs the item without its prompt.
        text: Width of the encoded prompt.
        film: What an item is in words, where it is no picture.
    """

    taken = "a sample is one denoising step"

    def __init__(
        self, blocks, width, tokens, words, conditions, guided=2, text=4096, film=""
    ):  # fmt: skip
        super().__init__()
        self.patch, self.head = nn.Linear(64, width), nn.Linear(width, 64)
        self.prompt = nn.Linear(text, width)
        self.last = nn.Linear(conditions, 2 * width)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.blocks = nn.ModuleList([make() for make in blocks])
        self.sizes = (words, text, conditions, guided)
        self.show(tokens, film)

    def inputs(self, batch):
        """Patches, the encoded prompt, the vector of time and conditions."""
        words, text, conditions, guided = self.sizes
        items = guided * batch
        return (
            torch.empty(items, self.num_patches, 64),
            torch.empty(items, words, text),
            torch.empty(items, conditions),
        )

    def loss(self, output, _inputs):
        """Mean squared error against the noise."""
        return F.mse_loss(output, torch.empty_like(output))

    def forward(self, patches, prompt, vector):
        x, text = self.patch(patches), self.prompt(prompt)
        for block in self.blocks:
            x, text = block(x, text, vector)
        shift, scale = self.last(F.silu(vector))[:, None].chunk(2, -1)
        return self.head(self.norm(x) * (1 + scale) + shift)


def stable_diffusion_3(layers, width, heads, norm, dual=0):
    """Stable Diffusion 3 and 3.5 at 1024 × 1024: blocks with two streams, 333 tokens of text."""
    sizes = (width, heads, 4 * width, norm, width, False)
    texts = ["own"] * (layers - 1) + ["last"]
    blocks = [
        lambda text=text, has_dual=number < dual: JointBlock(*sizes, text, has_dual=has_dual)
        for number, text in enumerate(texts)
    ]
    return JointTransformer(blocks, width, 4096, 333, width)


def two_streams_then_one(double, single, tokens, words, film=""):
    """FLUX.1 and HunyuanVideo, of width 3072: so many blocks with two streams, so many with one."""
    sizes = (3072, 24, 12_288, "rms", 3072, True)
    blocks = [lambda: JointBlock(*sizes)] * double
    blocks += [lambda: JointBlock(*sizes, "common", num_scales=3)] * single
    return JointTransformer(blocks, 3072, tokens, words, 3072, guided=1, film=film)


def two_streams(layers, tokens, words, text):
    """Qwen-Image, of width 3072 (arXiv:2508.02324, table 1): blocks with two streams alone."""
    sizes = (3072, 24, 12_288, "rms", 3072, True)
    return JointTransformer(
        [lambda: JointBlock(*sizes)] * layers, 3072, tokens, words, 3072, text=text
    )


def one_stream(layers, width, heads, tokens, words, has_rotary, film):
    """CogVideoX: weights in common, scales of picture and of text from a vector of 512."""

    def block():
        return JointBlock(
            width, heads, 4 * width, "layer", 512, has_rotary, "common", num_scales=12
        )

    return JointTransformer([block] * layers, width, tokens, words, 512, film=film)
