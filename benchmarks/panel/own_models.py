"""Models of the panel's own users: small, plain, and countable by hand."""

from __future__ import annotations

import itertools

import torch
from own_newer_models import (
    deep_factors,
    dilated,
    edge_attention,
    gated_frames,
    patch_mixer,
    twin_critic,
)
from torch import nn

__all__ = [
    "deep_factors",
    "dilated",
    "edge_attention",
    "gated_frames",
    "patch_mixer",
    "twin_critic",
]


def perceptron() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Three layers: 784 to 1,024 to 2,048 to 100."""
    layers = nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 100)
    )
    return layers, (torch.zeros(2, 784),)


class SmallCnn(nn.Module):
    """Four convolutions over 64×64 pictures, and a head."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 64, 128, 256, 256)
        self.stages = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)
                )
                for a, b in itertools.pairwise(widths)
            )
        )
        self.head = nn.Linear(256 * 4 * 4, 10)

    def example_inputs(self) -> tuple[torch.Tensor, ...]:
        """Two pictures."""
        return (torch.zeros(2, 3, 64, 64),)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Class scores of pictures."""
        return self.head(self.stages(pictures).flatten(1))


def small_transformer() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Twelve encoder layers of width 576 over 512 positions: 48 M parameters."""
    layer = nn.TransformerEncoderLayer(576, 9, 2304, batch_first=True)
    return nn.TransformerEncoder(layer, 12), (torch.zeros(2, 512, 576),)


class Factorisation(nn.Module):
    """A million users and a hundred thousand items, 64 factors each."""

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.Embedding(1_000_000, 64)
        self.items = nn.Embedding(100_000, 64)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """Scores of pairs."""
        return (self.users(users) * self.items(items)).sum(-1)


def factorisation() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and two pairs."""
    pair = torch.zeros(2, dtype=torch.long)
    return Factorisation(), (pair, pair.clone())


def giant() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two layers of a thousand million parameters each, without memory behind them."""
    with torch.device("meta"):
        layers = nn.Sequential(nn.Linear(32000, 32000), nn.Linear(32000, 32000))
    return layers, (torch.zeros(2, 32000, device="meta"),)


class Lstm(nn.Module):
    """One layer of 256 over 200 steps of 128 features."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(128, 256, batch_first=True)
        self.head = nn.Linear(256, 2)

    def forward(self, steps: torch.Tensor) -> torch.Tensor:
        """Scores of the last step."""
        return self.head(self.cell(steps)[0][:, -1])


def lstm() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and two sequences."""
    return Lstm(), (torch.zeros(2, 200, 128),)


def broken() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Fails, as a first try does."""
    raise ValueError("my data folder is missing")


class MessagePassing(nn.Module):
    """Two layers of messages over a million edges between a hundred thousand nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(128, 128), nn.Linear(128, 128)])
        self.head = nn.Linear(128, 40)

    def forward(
        self, nodes: torch.Tensor, source: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """Class scores of nodes."""
        for layer in self.layers:
            messages = layer(nodes)[source]
            nodes = torch.zeros_like(nodes).index_add(0, target, messages).relu()
        return self.head(nodes)


def message_passing() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and one graph."""
    edges = torch.zeros(1_000_000, dtype=torch.long)
    return MessagePassing(), (torch.zeros(100_000, 128), edges, edges.clone())


class Recommender(nn.Module):
    """Twenty-six tables of a hundred thousand rows, and two perceptrons."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(100_000, 64) for _ in range(26)])
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, 64))
        self.top = nn.Sequential(nn.Linear(27 * 64, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, numbers: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Scores of visits."""
        looked_up = [table(words[:, i]) for i, table in enumerate(self.tables)]
        return self.top(torch.cat([self.bottom(numbers), *looked_up], 1))


def recommender() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and two visits."""
    return Recommender(), (torch.zeros(2, 13), torch.zeros(2, 26, dtype=torch.long))


class PlainAttention(nn.Module):
    """Six layers of attention as a course writes it: eight heads of 64 over 1,024 positions."""

    def __init__(self) -> None:
        super().__init__()
        self.mixes = nn.ModuleList([nn.Linear(512, 3 * 512) for _ in range(6)])
        self.outs = nn.ModuleList([nn.Linear(512, 512) for _ in range(6)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Positions after six layers."""
        for mix, out in zip(self.mixes, self.outs, strict=True):
            parts = mix(x).unflatten(-1, (3, 8, 64)).permute(2, 0, 3, 1, 4)
            query, key, value = parts[0], parts[1], parts[2]
            weights = (query @ key.transpose(-1, -2) / 8.0).softmax(-1)
            x = x + out((weights @ value).transpose(1, 2).flatten(2))
        return x


def plain_attention() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and two sequences."""
    return PlainAttention(), (torch.zeros(2, 1024, 512),)


class TabularTransformer(nn.Module):
    """A hundred features of a table row, each a token of width 192; three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(100, 192))
        self.bias = nn.Parameter(torch.zeros(100, 192))
        layer = nn.TransformerEncoderLayer(192, 8, 256, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3)
        self.head = nn.Linear(192, 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """A score of each row."""
        tokens = features.unsqueeze(-1) * self.weight + self.bias
        return self.head(self.encoder(tokens).mean(1))


def tabular() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and two rows."""
    return TabularTransformer(), (torch.zeros(2, 100),)


class VideoCnn(nn.Module):
    """Four 3-D convolutions over sixteen frames of 112×112."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 128, 256)
        self.stages = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv3d(a, b, 3, padding=1), nn.BatchNorm3d(b), nn.ReLU(), nn.MaxPool3d(2)
                )
                for a, b in itertools.pairwise(widths)
            )
        )
        self.head = nn.Linear(256, 20)

    def forward(self, clips: torch.Tensor) -> torch.Tensor:
        """Class scores of clips."""
        return self.head(self.stages(clips).mean((2, 3, 4)))


def video() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and two clips."""
    return VideoCnn(), (torch.zeros(2, 3, 16, 112, 112),)


class GraphAttention(nn.Module):
    """Two layers of four heads of 32 over half a million edges between fifty thousand nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.mixes = nn.ModuleList([nn.Linear(128, 128), nn.Linear(128, 128)])
        self.scores = nn.ParameterList([nn.Parameter(torch.zeros(4, 32)) for _ in range(2)])

    def forward(
        self, nodes: torch.Tensor, source: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        """Features of nodes after both layers."""
        for mix, score in zip(self.mixes, self.scores, strict=True):
            mixed = mix(nodes).unflatten(-1, (4, 32))
            weight = ((mixed * score).sum(-1)[source] + (mixed * score).sum(-1)[target]).exp()
            total = torch.zeros(nodes.shape[0], 4).index_add(0, target, weight)
            messages = mixed[source] * (weight / total[target]).unsqueeze(-1)
            nodes = torch.zeros_like(mixed).index_add(0, target, messages).flatten(1).relu()
        return nodes


def graph_attention() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and one graph."""
    edges = torch.zeros(500_000, dtype=torch.long)
    return GraphAttention(), (torch.zeros(50_000, 128), edges, edges.clone())


class ActorCritic(nn.Module):
    """Two small perceptrons beside each other, as for a walker of seventeen joints."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 6)
        )
        self.critic = nn.Sequential(
            nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
        )

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """Means of actions, and values."""
        return torch.cat([self.actor(seen), self.critic(seen)], -1)


def actor_critic() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and two observations."""
    return ActorCritic(), (torch.zeros(2, 17),)


class Unrolled(nn.Module):
    """Twenty steps of one residual layer, as a solver of an equation takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Linear(256, 256)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """The state after twenty steps."""
        for _ in range(20):
            state = state + 0.05 * torch.tanh(self.field(state))
        return state


def unrolled() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model and two states."""
    return Unrolled(), (torch.zeros(2, 256),)


def wide_perceptron() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """784 to 4,096 to 4,096 to 10: 20 M parameters."""
    layers = nn.Sequential(
        nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 10)
    )
    return layers, (torch.zeros(2, 784),)


class Tagger(nn.Module):
    """A tagger of words: 256-wide embeddings, two LSTM layers of 512 in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30_000, 256)
        self.layers = nn.LSTM(256, 512, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(1024, 20)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores of 20 tags at each of 128 words."""
        return self.tags(self.layers(self.words(words))[0])


def tagger() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two sentences of 128 words."""
    return Tagger(), (torch.zeros(2, 128, dtype=torch.long),)


def autoencoder() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Four strided convolutions down to 8×8, a code of 128, and the same way back."""
    widths = (3, 32, 64, 128, 256)
    down = [
        layer
        for a, b in itertools.pairwise(widths)
        for layer in (nn.Conv2d(a, b, 4, 2, 1), nn.ReLU())
    ]
    up = [
        layer
        for a, b in itertools.pairwise(widths[::-1])
        for layer in (nn.ReLU(), nn.ConvTranspose2d(a, b, 4, 2, 1))
    ]
    code = [nn.Flatten(), nn.Linear(256 * 64, 128), nn.Linear(128, 256 * 64)]
    model = nn.Sequential(*down, *code, nn.Unflatten(1, (256, 8, 8)), *up)
    return model, (torch.zeros(2, 3, 128, 128),)


def field_of_light() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Colour and density of points in space: 63 numbers, seven layers of 256, four numbers."""
    hidden = [layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.ReLU())]
    return nn.Sequential(nn.Linear(63, 256), nn.ReLU(), *hidden, nn.Linear(256, 4)), (
        torch.zeros(2, 63),
    )


class Dilations(nn.Module):
    """Three pairs of convolutions of one width, the first of each dilated, each pair added."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(
            nn.Sequential(
                nn.LeakyReLU(0.1),
                nn.Conv1d(channels, channels, width, padding="same", dilation=dilation),
                nn.LeakyReLU(0.1),
                nn.Conv1d(channels, channels, width, padding="same"),
            )
            for dilation in (1, 3, 5)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Signals after three pairs."""
        for pair in self.pairs:
            x = x + pair(x)
        return x


class Vocoder(nn.Module):
    """The generator of HiFi-GAN V1: 80 bands at 86 a second become 22,050 samples a second."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(80, 512, 7, padding=3)
        widths = (512, 256, 128, 64, 32)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(a, b, 2 * step, step, padding=step // 2)
            for (a, b), step in zip(itertools.pairwise(widths), (8, 8, 2, 2), strict=True)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(Dilations(width, kernel) for kernel in (3, 7, 11)) for width in widths[1:]
        )
        self.last = nn.Conv1d(32, 1, 7, padding=3)

    def forward(self, bands: torch.Tensor) -> torch.Tensor:
        """Samples of sound."""
        x = self.first(bands)
        for up, blocks in zip(self.ups, self.blocks, strict=True):
            x = up(nn.functional.leaky_relu(x, 0.1))
            x = sum(block(x) for block in blocks) / 3
        return torch.tanh(self.last(nn.functional.leaky_relu(x)))


def vocoder() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The generator and two seconds of bands, each for itself."""
    return Vocoder(), (torch.zeros(2, 80, 86),)


class Translator(nn.Module):
    """The Transformer of 2017, base size, with 32,000 words: 93 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(32_000, 512), nn.Embedding(32_000, 512)
        self.layers = nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)
        self.words = nn.Linear(512, 32_000)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Scores of words at each place of the target."""
        return self.words(self.layers(self.source(source), self.target(target)))


def translator() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two pairs of sentences of 64 words."""
    words = torch.zeros(2, 64, dtype=torch.long)
    return Translator(), (words, words.clone())


def mixer() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Forecasts of series: twelve layers that mix 512 steps, then 64 channels."""

    class Mix(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps, self.channels = nn.Linear(512, 512), nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.steps(x.transpose(1, 2)).relu().transpose(1, 2)
            return x + self.channels(x).relu()

    return nn.Sequential(*(Mix() for _ in range(12))), (torch.zeros(2, 512, 64),)


def _encoder(width: int, layers: int) -> nn.Module:
    """Words to vectors, as BERT reads them."""
    layer = nn.TransformerEncoderLayer(
        width, width // 64, 4 * width, activation="gelu", batch_first=True
    )
    return nn.Sequential(
        nn.Embedding(30_000, width),
        nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
    )


class Distillation(nn.Module):
    """A student of six layers that is taught by a frozen encoder of twelve."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.student = _encoder(768, 12), _encoder(384, 6)
        self.teacher.requires_grad_(False)
        self.widen = nn.Linear(384, 768)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """How far the student is from its teacher."""
        with torch.no_grad():
            wanted = self.teacher(words)
        return (self.widen(self.student(words)) - wanted).square().mean()


def distillation() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two sequences of 128 words."""
    return Distillation(), (torch.zeros(2, 128, dtype=torch.long),)


class LateInteraction(nn.Module):
    """ColBERT: each word of a question finds its nearest word of a passage."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.narrow = _encoder(768, 12), nn.Linear(768, 128)

    def forward(self, question: torch.Tensor, passage: torch.Tensor) -> torch.Tensor:
        """A score of each pair."""
        asked, told = (self.narrow(self.encoder(words)) for words in (question, passage))
        return (asked @ told.transpose(1, 2)).amax(2).sum(1)


def late_interaction() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two questions of 32 words and passages of 180."""
    return LateInteraction(), tuple(torch.zeros(2, n, dtype=torch.long) for n in (32, 180))


def _twice(inside: int, outside: int, stride: int = 1) -> nn.Module:
    """Two convolutions of voxels with their norms."""

    def one(inside: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv3d(inside, outside, 3, stride, 1)
        return [convolution, nn.InstanceNorm3d(outside, affine=True), nn.LeakyReLU(inplace=True)]

    return nn.Sequential(*one(inside, stride), *one(outside, 1))


class VolumeSegmenter(nn.Module):
    """A 3-D U-Net as nnU-Net plans it: 32 to 320 channels in six stages."""

    def __init__(self) -> None:
        super().__init__()
        widths = [32, 64, 128, 256, 320, 320]
        self.down = nn.ModuleList(
            _twice(a, b, 1 if a == 1 else 2) for a, b in itertools.pairwise([1, *widths])
        )
        steps = list(itertools.pairwise(reversed(widths)))
        self.up = nn.ModuleList(nn.ConvTranspose3d(a, b, 2, 2) for a, b in steps)
        self.join = nn.ModuleList(_twice(2 * b, b) for _, b in steps)
        self.head = nn.Conv3d(32, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of four kinds of tissue at each voxel."""
        kept = []
        for stage in self.down:
            x = stage(x)
            kept.append(x)
        for up, join, beside in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([up(x), beside], 1))
        return self.head(x)


def volume_segmenter() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two patches of 128 voxels a side."""
    return VolumeSegmenter(), (torch.zeros(2, 1, 128, 128, 128),)


class Locomotion(nn.Module):
    """Actor and critic of a MuJoCo walker: two layers of 64 each."""

    def __init__(self) -> None:
        super().__init__()

        def head(outputs: int) -> nn.Module:
            return nn.Sequential(
                nn.Linear(376, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
            )

        self.actor, self.critic = head(17), head(1)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        """What is done, beside what it is held to be worth."""
        return torch.cat([self.actor(seen), self.critic(seen)], 1)


def locomotion() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two moments."""
    return Locomotion(), (torch.zeros(2, 376),)


def table_perceptron() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A table of 100 columns, five layers of 512 with batch norms."""
    widths = [100, 512, 512, 512, 512, 512]
    layers = [
        layer
        for a, b in itertools.pairwise(widths)
        for layer in (nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Dropout(0.1))
    ]
    return nn.Sequential(*layers, nn.Linear(512, 1)), (torch.zeros(2, 100),)


class Heart(nn.Module):
    """Twelve leads of a heart through four stages of two residual blocks each."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(12, 32, 15, 2, 7), nn.BatchNorm1d(32), nn.ReLU())
        sizes = [(32, 32, 1), (32, 64, 2), (64, 128, 2), (128, 256, 2)]
        self.stages = nn.Sequential(
            *[b for a, w, s in sizes for b in (HeartBlock(a, w, s), HeartBlock(w, w, 1))]
        )
        self.head = nn.Linear(256, 5)

    def forward(self, leads: torch.Tensor) -> torch.Tensor:
        """Logits of five diagnoses."""
        return self.head(self.stages(self.stem(leads)).mean(-1))


class HeartBlock(nn.Module):
    """Two convolutions over seven moments beside a way around them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(inputs, width, 7, stride, 3), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Conv1d(width, width, 7, 1, 3), nn.BatchNorm1d(width),
        )  # fmt: skip
        self.around = nn.Conv1d(inputs, width, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same length, or a half of it."""
        return torch.relu(self.layers(x) + self.around(x))


def heart() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two recordings of 4,096 moments."""
    return Heart(), (torch.zeros(2, 12, 4096),)
