"""The zoo's own PyTorch models: shapes exact, weights absent.

Standard library and torch only. Architectures follow the papers and the reference code named in
the zoo's table; parameter counts are asserted by the zoo's tests.
"""

import torch
import torch.nn.functional as F
from torch import nn


class MnistCnn(nn.Module):
    """The 28×28×1 CNN of the Keras examples: two convolutions, two poolings, one dense layer."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.5)
        self.dense = nn.Linear(1600, 10)

    def forward(self, images):
        """Logits of ten digits, [batch, 10], of images [batch, 1, 28, 28]."""
        x = self.pool(F.relu(self.conv1(images)))
        x = self.pool(F.relu(self.conv2(x)))
        return self.dense(self.dropout(x.flatten(1)))


class RecurrentClassifier(nn.Module):
    """Embedding, one recurrent layer, one dense layer: text classification."""

    def __init__(self, cell="lstm", vocabulary=20_000, width=128, hidden=128, classes=2):
        super().__init__()
        kinds = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
        self.embedding = nn.Embedding(vocabulary, width)
        self.recurrent = kinds[cell](width, hidden, batch_first=True)
        self.dense = nn.Linear(hidden, classes)

    def forward(self, tokens):
        """Logits after the last token, [batch, classes], of token numbers [batch, seq]."""
        output, _ = self.recurrent(self.embedding(tokens))
        return self.dense(output[:, -1])


class Attention(nn.Module):
    """Multi-head attention with grouped keys and values, rotary positions and a cache, or not."""

    def __init__(self, spec):
        super().__init__()
        hidden, head_size = spec["hidden"], spec["head_size"]
        self.spec = spec
        self.q = nn.Linear(hidden, spec["heads"] * head_size, bias=spec["attention_bias"])
        self.k = nn.Linear(hidden, spec["kv_heads"] * head_size, bias=spec["attention_bias"])
        self.v = nn.Linear(hidden, spec["kv_heads"] * head_size, bias=spec["attention_bias"])
        self.o = nn.Linear(spec["heads"] * head_size, hidden, bias=spec["bias"])

    def forward(self, x, rotary, cache):
        """The same shape as ``x``.

        Args:
            x: Hidden states, [batch, seq, hidden].
            rotary: Cosines and sines, [seq, head_size] each; None without rotary positions.
            cache: Keys and values, [batch, kv_heads, length, head_size] each, whose last ``seq``
                places are overwritten; None to attend among ``x`` alone.
        """
        spec, head_size = self.spec, self.spec["head_size"]
        q = self._heads(self.q(x), spec["heads"])
        k = self._heads(self.k(x), spec["kv_heads"])
        v = self._heads(self.v(x), spec["kv_heads"])
        if rotary is not None:
            q, k = _rotate(q, rotary), _rotate(k, rotary)
        if cache is not None:
            length = k.shape[2]
            cache[0][:, :, -length:].copy_(k)
            cache[1][:, :, -length:].copy_(v)
            k, v = cache
        is_causal = bool(spec["causal"]) and q.shape[2] > 1
        x = F.scaled_dot_product_attention(
            q, k, v, dropout_p=spec["dropout"] if self.training else 0.0, is_causal=is_causal,
            enable_gqa=spec["kv_heads"] != spec["heads"],
        )  # fmt: skip
        return self.o(x.transpose(1, 2).reshape(x.shape[0], x.shape[2], spec["heads"] * head_size))

    def _heads(self, x, num_heads):
        return x.view(x.shape[0], x.shape[1], num_heads, self.spec["head_size"]).transpose(1, 2)


class FeedForward(nn.Module):
    """Two dense layers, or three with a gate."""

    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        self.up = nn.Linear(spec["hidden"], spec["ffn"], bias=spec["bias"])
        self.down = nn.Linear(spec["ffn"], spec["hidden"], bias=spec["bias"])
        if spec["gated"]:
            self.gate = nn.Linear(spec["hidden"], spec["ffn"], bias=spec["bias"])

    def forward(self, x):
        """The same shape as ``x``, [..., hidden]."""
        if self.spec["gated"]:
            return self.down(F.silu(self.gate(x)) * self.up(x))
        return self.down(F.gelu(self.up(x)))


class Experts(nn.Module):
    """Feed-forward layers of which each token takes a few, as grouped products."""

    def __init__(self, spec):
        super().__init__()
        num_experts, hidden, ffn = spec["experts"], spec["hidden"], spec["expert_ffn"]
        self.spec = spec
        self.router = nn.Linear(hidden, num_experts, bias=False)
        self.up = nn.Parameter(torch.empty(num_experts, hidden, ffn * (1 + bool(spec["gated"]))))
        self.down = nn.Parameter(torch.empty(num_experts, ffn, hidden))

    def forward(self, x):
        """The same shape as ``x``, [..., hidden]."""
        rows = x.reshape(-1, self.spec["hidden"])
        scores, chosen = torch.topk(self.router(rows), self.spec["top_k"], dim=-1)
        out = routed(rows, self._run, chosen, self.spec["experts"])
        weights = scores.float().softmax(-1).to(out.dtype)
        return (out * weights[..., None]).sum(1).view(x.shape)

    def _run(self, rows, bounds):
        inner = torch._grouped_mm(rows, self.up, offs=bounds)
        if self.spec["gated"]:
            gate, inner = inner.chunk(2, dim=-1)
            inner = F.silu(gate) * inner
        else:
            inner = F.gelu(inner)
        return torch._grouped_mm(inner, self.down, offs=bounds)


def routed(rows, run, chosen, num_experts):
    """Rows of tokens through the experts that each chose, [n, k, hidden].

    Args:
        rows: Tokens, [n, hidden].
        run: Function of (rows in the order of their experts, bounds of the experts' groups).
        chosen: Experts of each token, [n, k].
        num_experts: How many there are.
    """
    order = torch.sort(chosen.reshape(-1))[1]
    counts = torch.histc(chosen.reshape(-1).int(), bins=num_experts, min=0, max=num_experts - 1)
    bounds = torch.cumsum(counts, dim=0, dtype=torch.int32)
    out = run(rows[order // chosen.shape[-1]], bounds)
    back = torch.empty_like(order)
    return out[back].reshape(*chosen.shape, -1)


class Block(nn.Module):
    """Attention and feed-forward, each with a residual; normalised before or after."""

    def __init__(self, spec):
        super().__init__()
        self.attention = Attention(spec)
        self.ffn = Experts(spec) if spec["experts"] else FeedForward(spec)
        self.norm1 = _norm(spec)
        self.norm2 = _norm(spec)
        self.dropout = nn.Dropout(spec["dropout"])
        self.is_post_norm = spec["post_norm"]

    def forward(self, x, rotary, cache):
        """The same shape as ``x``, [batch, seq, hidden]; arguments as of `Attention.forward`."""
        if self.is_post_norm:
            x = self.norm1(x + self.dropout(self.attention(x, rotary, cache)))
            return self.norm2(x + self.dropout(self.ffn(x)))
        x = x + self.dropout(self.attention(self.norm1(x), rotary, cache))
        return x + self.dropout(self.ffn(self.norm2(x)))


class Transformer(nn.Module):
    """A decoder (language model) or an encoder (with a pooled classifier), from its numbers."""

    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        hidden = spec["hidden"]
        self.embedding = nn.Embedding(spec["vocab"], hidden)
        if spec["positions"]:
            self.position = nn.Embedding(spec["positions"], hidden)
        if spec["token_types"]:
            self.token_type = nn.Embedding(spec["token_types"], hidden)
        self.dropout = nn.Dropout(spec["dropout"])
        self.layers = nn.ModuleList([Block(spec) for _ in range(spec["layers"])])
        self.norm = _norm(spec)
        if spec["classes"]:
            self.pooler = nn.Linear(hidden, hidden)
            self.classifier = nn.Linear(hidden, spec["classes"])
        else:
            self.head = nn.Linear(hidden, spec["vocab"], bias=False)
            if spec["tied"]:
                self.head.weight = self.embedding.weight

    def forward(self, tokens, caches=None, num_past=0, last_only=False):
        """Logits of the next tokens, [batch, seq, vocab], or of a text's class, [batch, classes].

        Args:
            tokens: Their numbers, [batch, seq].
            caches: Keys and values of each layer, as `Attention.forward` has them; None without.
            num_past: Tokens that the caches hold before these.
            last_only: Tell only the token after the last one, [batch, 1, vocab].
        """
        x = self._embed(tokens, num_past)
        rotary = None if self.spec["positions"] else self._angles(tokens, num_past)
        for number, layer in enumerate(self.layers):
            x = layer(x, rotary, None if caches is None else caches[number])
        if self.spec["classes"]:
            pooled = torch.tanh(self.pooler(x[:, 0]))
            return self.classifier(self.dropout(pooled))
        x = self.norm(x[:, -1:] if last_only else x)
        return self.head(x)

    def _embed(self, tokens, num_past):
        x = self.embedding(tokens)
        length = tokens.shape[1]
        if self.spec["positions"]:
            positions = torch.arange(num_past, num_past + length, device=tokens.device)
            x = x + self.position(positions)
        if self.spec["token_types"]:
            x = x + self.token_type(torch.zeros_like(tokens))
        if self.spec["post_norm"]:
            x = self.norm(x)
        return self.dropout(x)

    def _angles(self, tokens, num_past):
        half = self.spec["head_size"] // 2
        positions = torch.arange(num_past, num_past + tokens.shape[1], device=tokens.device)
        frequencies = torch.empty(half, device=tokens.device)
        angles = positions[:, None] * frequencies[None, :]
        angles = torch.cat((angles, angles), dim=-1)
        dtype = self.embedding.weight.dtype
        return angles.cos().to(dtype), angles.sin().to(dtype)


class RmsNorm(nn.Module):
    """Op by op, as the published code of Llama and transformers compute it."""

    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        """Normalise the last axis of ``x``, of any shape."""
        squares = x.pow(2)
        spread = squares.mean(-1, keepdim=True).add_(self.eps)
        inverse = torch.rsqrt(spread)
        del squares, spread
        return x * inverse * self.weight


def _norm(spec):
    if spec["norm"] == "rms":
        return RmsNorm(spec["hidden"])
    return nn.LayerNorm(spec["hidden"])


def _rotate(x, rotary):
    cos, sin = rotary
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + rotated * sin


_DEFAULTS = {
    "layers": 12, "hidden": 768, "heads": 12, "kv_heads": 0, "head_size": 0, "ffn": 0,
    "vocab": 50257, "gated": 0, "norm": "layer", "bias": 1, "attention_bias": -1, "positions": 0,
    "token_types": 0, "dropout": 0.0, "post_norm": 0, "causal": True, "tied": 0, "classes": 0,
    "experts": 0, "top_k": 2, "expert_ffn": 0,
}  # fmt: skip


#: More layers than any transformer has; a million would be built for hours.
_MOST_LAYERS = 4_096


def sizes_taken(given):
    """The sizes of `transformer` that were not given, as taken: ``hidden=768, heads=12``."""
    spec = dict(_DEFAULTS, **given)
    spec["ffn"] = spec["ffn"] or 4 * spec["hidden"]
    needed = ["layers", "hidden", "heads", "ffn", "vocab"]
    if spec["experts"]:
        needed[3:4] = ["expert_ffn"] if "ffn" not in given else []
        needed.append("top_k")
        spec["expert_ffn"] = spec["expert_ffn"] or spec["ffn"]
    left = [name for name in needed if name not in given]
    return ", ".join("%s=%s" % (name, spec[name]) for name in left)


def transformer(**given):
    """A transformer from its hyperparameters; what is not given follows from the rest."""
    unknown = sorted(set(given) - set(_DEFAULTS))
    if unknown:
        raise ValueError(
            "unknown hyperparameter %s; known are %s" % (", ".join(unknown), ", ".join(_DEFAULTS))
        )
    spec = dict(_DEFAULTS, **given)
    for name, most in (("layers", _MOST_LAYERS), ("hidden", None), ("heads", None)):
        if type(spec[name]) is not int or not 1 <= spec[name] <= (most or spec[name]):
            bound = "1 to %d" % most if most else "1 or more"
            raise ValueError("%s=%s is not %s" % (name, spec[name], bound))
    if spec["hidden"] % spec["heads"] and not spec["head_size"]:
        raise ValueError(
            "hidden=%d is not a multiple of heads=%d" % (spec["hidden"], spec["heads"])
        )
    spec["kv_heads"] = spec["kv_heads"] or spec["heads"]
    spec["head_size"] = spec["head_size"] or spec["hidden"] // spec["heads"]
    spec["ffn"] = spec["ffn"] or 4 * spec["hidden"]
    spec["attention_bias"] = spec["bias"] if spec["attention_bias"] < 0 else spec["attention_bias"]
    if not spec["experts"]:
        return Transformer(spec)
    if not 0 < spec["top_k"] <= spec["experts"]:
        raise ValueError("top_k=%d of experts=%d" % (spec["top_k"], spec["experts"]))
    spec["expert_ffn"] = spec["expert_ffn"] or spec["ffn"]
    # Kernels of grouped products take BF16 alone.
    return Transformer(spec).to(torch.bfloat16)


def llama(layers, hidden, heads, kv_heads, ffn, vocab):
    """A Llama-class decoder."""
    return transformer(
        layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, vocab=vocab,
        gated=1, norm="rms", bias=0,
    )  # fmt: skip


def gpt2(layers, hidden, heads):
    """A GPT-2 decoder: learned positions, tied embedding, dropout 0.1."""
    return transformer(
        layers=layers, hidden=hidden, heads=heads, vocab=50257, positions=1024, dropout=0.1, tied=1
    )


def bert(layers, hidden, heads, classes=2):
    """A BERT encoder with its pooler and a sequence classifier."""
    return transformer(
        layers=layers, hidden=hidden, heads=heads, vocab=30522, positions=512, token_types=2,
        dropout=0.1, post_norm=1, causal=0, classes=classes,
    )  # fmt: skip


def torchvision_classifier(name):
    """A torchvision classification model without weights."""
    return lambda: getattr(import_torchvision().models, name)(weights=None)


def video_classifier(name):
    """A torchvision video classification model without weights."""
    return lambda: getattr(import_torchvision().models.video, name)(weights=None)


_LIBRARIES = []


def import_torchvision():
    """Torchvision, also where its compiled operators do not load beside this torch."""
    import sys

    if "torchvision" not in sys.modules and not _LIBRARIES:
        try:
            import torchvision
        except RuntimeError:
            for name in [n for n in sys.modules if n.split(".")[0] == "torchvision"]:
                del sys.modules[name]
            library = torch.library.Library("torchvision", "DEF")
            library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _LIBRARIES.append(library)
    import torchvision
    import torchvision.models

    return torchvision


def mends_torchvision():
    """Load torchvision without its operators; whether that was needed and has not been done."""
    import importlib.util

    if _LIBRARIES or importlib.util.find_spec("torchvision") is None:
        return False
    import_torchvision()
    return bool(_LIBRARIES)


#: name -> (builder, what one item is, settings)
ZOO = {
    "alexnet": (torchvision_classifier("alexnet"), "image", {"shape": (3, 224, 224)}),
    "googlenet": (torchvision_classifier("googlenet"), "image", {"shape": (3, 224, 224)}),
    "resnet50": (torchvision_classifier("resnet50"), "image", {"shape": (3, 224, 224)}),
    "vgg16": (torchvision_classifier("vgg16"), "image", {"shape": (3, 224, 224)}),
    "r3d_18": (video_classifier("r3d_18"), "image", {"shape": (3, 16, 112, 112)}),
    "mnist-cnn": (MnistCnn, "image", {"shape": (1, 28, 28)}),
    "lstm": (RecurrentClassifier, "text", {}),
    "bert-base": (lambda: bert(12, 768, 12), "text", {}),
    "gru": (lambda: RecurrentClassifier("gru"), "text", {}),
    "rnn": (lambda: RecurrentClassifier("rnn"), "text", {}),
    "bert-large": (lambda: bert(24, 1024, 16), "text", {}),
    "gpt2-xl": (lambda: gpt2(48, 1600, 25), "language", {}),
    "gpt2": (lambda: gpt2(12, 768, 12), "language", {}),
    "llama-3-8b": (lambda: llama(32, 4096, 32, 8, 14336, 128256), "language", {}),
    "llama-3-70b": (lambda: llama(80, 8192, 64, 8, 28672, 128256), "language", {}),
    "llama-3.1-405b": (lambda: llama(126, 16384, 128, 8, 53248, 128256), "language", {}),
}
