"""Small models as people write them, for the loop's tests."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, width)
        self.conv1 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.norm2 = nn.GroupNorm(4, 2 * width)
        self.conv2 = nn.Conv2d(2 * width, width, 3, padding=1)

    def forward(self, x):
        x_in = self.conv1(functional.relu(self.norm1(x)))
        return x + self.conv2(functional.relu(self.norm2(x_in)))


class CNN(nn.Module):
    """Residual blocks with GroupNorm; the class count does not divide by four."""

    def __init__(self, width=8, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.ModuleList([Block(width) for _ in range(4)])
        self.norm = nn.GroupNorm(4, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(functional.relu(self.norm(x)).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, _ = x.shape
        split = (batch, length, self.heads, -1)
        q, k, v = (
            part(x).view(split).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A small causal language model; its head is its own, or the table of its tokens."""

    def __init__(self, tokens=61, width=16, heads=4, layers=4, length=12, is_tied=False):
        super().__init__()
        self.tokens = nn.Embedding(tokens, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.1)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)
        if is_tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Adapted(nn.Module):
    """A linear layer that is frozen, and the product of two small ones beside it."""

    def __init__(self, inner, rank=2):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down = nn.Linear(inner.in_features, rank, bias=False)
        self.up = nn.Linear(rank, inner.out_features, bias=False)

    def forward(self, x):
        return self.inner(x) + self.up(self.down(x))


def headed(classes=10):
    """A frozen CNN with a new head."""
    model = CNN(classes=classes).requires_grad_(False)
    model.head = nn.Linear(model.head.in_features, classes)
    return model


def late():
    """A GPT of which the first two layers and its tables are frozen."""
    model = GPT()
    for part in (model.tokens, *model.layers[:2]):
        part.requires_grad_(False)
    model.places.requires_grad_(False)
    return model


def adapted():
    """A frozen GPT with adapters beside query and value of every layer."""
    model = GPT().requires_grad_(False)
    for layer in model.layers:
        layer.attention.query = Adapted(layer.attention.query)
        layer.attention.value = Adapted(layer.attention.value)
    return model


def loss_of(outputs, targets):
    """Mean cross entropy over samples and, of texts, tokens."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def samples(kind, count, generator):
    """Inputs and targets of a kind of model."""
    if kind in ("cnn", "headed"):
        images = torch.randn(count, 3, 8, 8, generator=generator, dtype=torch.float64)
        return images, torch.randint(0, 10, (count,), generator=generator)
    ids = torch.randint(0, 61, (count, 13), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
