"""What pictures are made with beside a denoiser: encoders of the text, decoders of latents.

Radford et al. 2021 (CLIP, arXiv:2103.00020), Cherti et al. 2022 (OpenCLIP, arXiv:2212.07143),
Raffel et al. 2019 (T5, arXiv:1910.10683; version 1.1 with gates: Shazeer 2020, arXiv:2002.05202),
and the decoder of Rombach et al. 2022 (arXiv:2112.10752), with the sizes of the releases' configs.
Language models that encode a text run as they read a prompt, without their head.
"""

import torch
import torch.nn.functional as F
from torch import nn


class _Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, head_size, bias):
        super().__init__()
        self.is_grouped, self.head_size = heads != kv_heads, head_size
        self.q = nn.Linear(width, heads * head_size, bias=bias)
        self.k = nn.Linear(width, kv_heads * head_size, bias=bias)
        self.v = nn.Linear(width, kv_heads * head_size, bias=bias)
        self.o = nn.Linear(heads * head_size, width, bias=bias)

    def forward(self, x, causal):
        batch, length, _ = x.shape
        q, k, v = (
            one(x).view(batch, length, -1, self.head_size).transpose(1, 2)
            for one in (self.q, self.k, self.v)
        )
        h = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=self.is_grouped)
        return self.o(h.transpose(1, 2).reshape(batch, length, -1))


class _Layer(nn.Module):
    def __init__(self, width, inner, attention, gated, bias, norm):
        super().__init__()
        self.norm1, self.norm2 = norm(width), norm(width)
        self.attention = attention
        self.wide = nn.Linear(width, inner, bias=bias)
        self.gate = nn.Linear(width, inner, bias=False) if gated else None
        self.narrow = nn.Linear(inner, width, bias=bias)

    def forward(self, x, causal):
        x = x + self.attention(self.norm1(x), causal)
        y = self.norm2(x)
        h = F.gelu(self.wide(y))
        return x + self.narrow(h if self.gate is None else h * self.gate(y))


class TextEncoder(nn.Module):
    """A text as states of its tokens.

    Args:
        layers: How many.
        width: Of a state.
        inner: Of the feed-forward.
        heads: Of attention.
        kv_heads: Of keys and values; as many as heads if None.
        head_size: Numbers of a head.
        vocab: Tokens known.
        positions: Of the learned table; None where positions turn or are relative.
        is_llama: Gates, norms without means and no biases, as T5 1.1 and later language models.
        causal: Whether tokens see those before them only.
    """

    def __init__(
        self, layers, width, inner, heads, vocab, *, kv_heads=None, head_size=64, positions=None,
        is_llama=True, causal=False,
    ):  # fmt: skip
        super().__init__()
        norm = nn.RMSNorm if is_llama else nn.LayerNorm
        self.words, self.causal = nn.Embedding(vocab, width), causal
        self.places = nn.Embedding(positions, width) if positions else None
        self.layers = nn.ModuleList(
            _Layer(
                width, inner, _Attention(width, heads, kv_heads or heads, head_size, not is_llama),
                is_llama, not is_llama, norm,
            )
            for _ in range(layers)
        )  # fmt: skip
        self.norm, self.positions = norm(width), positions

    def inputs(self, batch, seq=None):
        """Tokens: of the one length that a table of positions has, or of any."""
        return torch.empty(batch, self.positions or seq, dtype=torch.int64)

    def loss(self, output, _inputs):
        """Squared error of the states."""
        return F.mse_loss(output, torch.empty_like(output))

    def forward(self, text):
        x = self.words(text)
        if self.places is not None:
            x = x + self.places.weight
        for layer in self.layers:
            x = layer(x, self.causal)
        return self.norm(x)


class _Clip(TextEncoder):
    """A text encoder of CLIP: 77 tokens, each of which sees those before it."""

    described = "texts of 77 tokens"

    def __init__(self, layers, width, heads):
        super().__init__(
            layers, width, 4 * width, heads, 49_408, head_size=width // heads, positions=77,
            is_llama=False, causal=True,
        )  # fmt: skip

    def inputs(self, batch):
        """Padded texts."""
        return super().inputs(batch)


class _Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = (
            nn.GroupNorm(32, outputs),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class _Whole(nn.Module):
    """Attention of one head over all pixels of the latent picture."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(32, width)
        self.attention = _Attention(width, 1, 1, width, True)

    def forward(self, x):
        flat = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(flat, False).transpose(1, 2).reshape(x.shape)


class PictureDecoder(nn.Module):
    """Pictures from latents of an eighth of their side, as AutoencoderKL decodes them.

    49,490,179 parameters with the convolution behind the latents of four channels.
    """

    side, multiple = 512, 8

    def __init__(self, channels=4, widths=(128, 256, 512, 512)):
        super().__init__()
        width = widths[-1]
        self.channels = channels
        self.latent = nn.Conv2d(channels, channels, 1)
        self.inward = nn.Conv2d(channels, width, 3, padding=1)
        self.middle = nn.Sequential(_Residual(width, width), _Whole(width), _Residual(width, width))
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for number, outputs in reversed(list(enumerate(widths))):
            inputs = [width, outputs, outputs]
            self.up.append(nn.Sequential(*(_Residual(one, outputs) for one in inputs)))
            width = outputs
            if number:
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm, self.outward = nn.GroupNorm(32, width), nn.Conv2d(width, 3, 3, padding=1)

    def inputs(self, batch):
        """Latents."""
        return torch.empty(batch, self.channels, self.side // 8, self.side // 8)

    def loss(self, output, _inputs):
        """Squared error of the pixels."""
        return F.mse_loss(output, torch.empty_like(output))

    def forward(self, latents):
        x = self.middle(self.inward(self.latent(latents)))
        for number, level in enumerate(self.up):
            x = level(x)
            if number < len(self.grow):
                x = self.grow[number](F.interpolate(x, scale_factor=2.0))
        return self.outward(F.silu(self.norm(x)))


def _llama(layers, width, inner, heads, kv_heads, vocab, head_size=128):
    return lambda: TextEncoder(
        layers, width, inner, heads, vocab, kv_heads=kv_heads, head_size=head_size, causal=True
    )


MODELS = {
    "text_clip_l": lambda: _Clip(12, 768, 12),
    "text_clip_h": lambda: _Clip(23, 1024, 16),
    "text_clip_bigg": lambda: _Clip(32, 1280, 20),
    "text_t5_xxl": lambda: TextEncoder(24, 4096, 10_240, 64, 32_128),
    "text_umt5_xxl": lambda: TextEncoder(24, 4096, 10_240, 64, 256_384),
    "text_gemma2_2b": _llama(26, 2304, 9216, 8, 4, 256_000, 256),
    "text_llama3_8b": _llama(32, 4096, 14_336, 32, 8, 128_256),
    "text_mistral_24b": _llama(40, 5120, 32_768, 32, 8, 131_072),
    "text_qwen3_4b": _llama(36, 2560, 9728, 32, 8, 151_936),
    "text_qwen3_8b": _llama(36, 4096, 12_288, 32, 8, 151_936),
    "text_qwen25_7b": _llama(28, 3584, 18_944, 28, 4, 152_064),
    "kl_decoder": PictureDecoder,
}
