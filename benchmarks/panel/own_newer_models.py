"""More models of the panel's own users, counted by hand like those of `own_models`."""

from __future__ import annotations

import torch
from torch import nn


class DilatedBlock(nn.Module):
    """A gated convolution over two moments far apart, beside a way around it."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.gates = nn.Conv1d(64, 128, 2, dilation=dilation, padding=dilation)
        self.out = nn.Conv1d(64, 64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same length."""
        signal, gate = self.gates(x)[..., : x.shape[-1]].chunk(2, 1)
        return x + self.out(torch.tanh(signal) * torch.sigmoid(gate))


def dilated() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Twenty blocks over a second of sound at 16 kHz."""
    blocks = [DilatedBlock(2 ** (i % 10)) for i in range(20)]
    layers = nn.Sequential(nn.Conv1d(1, 64, 1), *blocks, nn.Conv1d(64, 256, 1))
    return layers, (torch.zeros(2, 1, 16000),)


class TwinCritic(nn.Module):
    """Two values of a state with an action, as soft actor-critic learns them."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.ModuleList(
            nn.Sequential(
                nn.Linear(28, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
            )
            for _ in range(2)
        )

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Both values."""
        return torch.cat([value(seen) for value in self.values], 1)


def twin_critic() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two states of 20 numbers with actions of eight."""
    return TwinCritic(), (torch.zeros(2, 28),)


class DeepFactors(nn.Module):
    """Ten million rows of 16 factors read by 26 fields, and a perceptron above them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(10_000_000, 16)
        self.deep = nn.Sequential(
            nn.Linear(416, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 1)
        )

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        """A score of each item."""
        read = self.rows(fields)
        pairs = 0.5 * (read.sum(1).square() - read.square().sum(1)).sum(1, keepdim=True)
        return self.deep(read.flatten(1)) + pairs


def deep_factors() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two items of 26 fields."""
    return DeepFactors(), (torch.zeros(2, 26, dtype=torch.long),)


class GatedFrames(nn.Module):
    """A convolutional GRU over twelve frames of 64×64, 64 channels wide."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Conv2d(128, 128, 3, padding=1)
        self.new = nn.Conv2d(128, 64, 3, padding=1)
        self.first, self.last = nn.Conv2d(1, 64, 1), nn.Conv2d(64, 1, 1)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """The next frame after each."""
        state = torch.zeros_like(self.first(frames[:, 0]))
        seen = []
        for i in range(12):
            frame = self.first(frames[:, i])
            update, reset = torch.sigmoid(self.gates(torch.cat([frame, state], 1))).chunk(2, 1)
            new = torch.tanh(self.new(torch.cat([frame, reset * state], 1)))
            state = (1 - update) * state + update * new
            seen.append(self.last(state))
        return torch.stack(seen, 1)


def gated_frames() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two sequences."""
    return GatedFrames(), (torch.zeros(2, 12, 1, 64, 64),)


class EdgeAttention(nn.Module):
    """Two layers of four heads over 800,000 edges between 50,000 nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.ModuleList(nn.Linear(128, 128) for _ in range(2))
        self.scores = nn.ModuleList(nn.Linear(128, 8) for _ in range(2))
        self.head = nn.Linear(128, 47)

    def forward(
        self, nodes: torch.Tensor, source: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """Class scores of nodes."""
        for values, scores in zip(self.values, self.scores, strict=True):
            ours, theirs = scores(nodes).chunk(2, 1)
            weight = nn.functional.leaky_relu(ours[source] + theirs[target], 0.2).exp()
            whole = torch.zeros_like(ours).index_add(0, target, weight)
            sent = values(nodes)[source].view(-1, 4, 32) * weight.unsqueeze(-1)
            heard = torch.zeros_like(nodes).index_add(0, target, sent.flatten(1))
            nodes = (heard.view(-1, 4, 32) / (whole.unsqueeze(-1) + 1e-9)).flatten(1).relu()
        return self.head(nodes)


def edge_attention() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and one graph."""
    edges = torch.zeros(800_000, dtype=torch.long)
    return EdgeAttention(), (torch.zeros(50_000, 128), edges, edges.clone())


class MixerBlock(nn.Module):
    """Places mix, then channels, each by two layers beside a way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(512), nn.LayerNorm(512)])
        self.places = nn.Sequential(nn.Linear(196, 256), nn.GELU(), nn.Linear(256, 196))
        self.channels = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As many places and channels."""
        x = x + self.places(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


class Mixer(nn.Module):
    """Eight blocks over 14×14 patches of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 512, 16, 16)
        self.blocks = nn.Sequential(*(MixerBlock() for _ in range(8)))
        self.head = nn.Linear(512, 1000)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Class scores."""
        return self.head(self.blocks(self.stem(pictures).flatten(2).transpose(1, 2)).mean(1))


def patch_mixer() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two pictures."""
    return Mixer(), (torch.zeros(2, 3, 224, 224),)


def _convolved_twice(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1),
        nn.ReLU(),
    )


class PlainUNet(nn.Module):
    """The U-Net of 2015 with padded convolutions: five widths, no normalisation."""

    def __init__(self) -> None:
        super().__init__()
        widths = [64, 128, 256, 512, 1024]
        self.down = nn.ModuleList(map(_convolved_twice, [3, *widths[:-1]], widths))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(w, w // 2, 2, stride=2) for w in reversed(widths[1:])
        )
        self.joined = nn.ModuleList(_convolved_twice(w, w // 2) for w in reversed(widths[1:]))
        self.classes = nn.Conv2d(64, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two classes of each pixel."""
        skips = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for up, joined, skip in zip(self.up, self.joined, reversed(skips[:-1]), strict=True):
            x = joined(torch.cat([skip, up(x)], 1))
        return self.classes(x)


def plain_unet() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two pictures of 256 by 256 pixels."""
    return PlainUNet(), (torch.zeros(2, 3, 256, 256),)
