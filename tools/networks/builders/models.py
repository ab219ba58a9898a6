"""Answers in texts, sound, clicks and cells, as published measurements ran them."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_networks import zoo


class BertForAnswers(nn.Module):
    """BERT with a start and an end score per token, as fine-tuned on SQuAD."""

    def __init__(self, layers, hidden, heads):
        super().__init__()
        self.bert = zoo.bert(layers, hidden, heads)
        self.answers = nn.Linear(hidden, 2)

    def forward(self, tokens):
        x = self.bert._embed(tokens, 0)
        for layer in self.bert.layers:
            x = layer(x, None, None)
        return self.answers(x).transpose(1, 2)


class _WaveNet(nn.Module):
    """The coupling network of WaveGlow: eight gated dilated convolutions."""

    def __init__(self, channels=512, layers=8, mels=640):
        super().__init__()
        self.start = nn.Conv1d(4, channels, 1)
        self.condition = nn.Conv1d(mels, 2 * channels * layers, 1)
        self.inner = nn.ModuleList(
            [nn.Conv1d(channels, 2 * channels, 3, dilation=2**n, padding=2**n)
             for n in range(layers)]
        )  # fmt: skip
        self.skip = nn.ModuleList([nn.Conv1d(channels, 2 * channels, 1) for _ in range(layers)])
        self.end = nn.Conv1d(channels, 8, 1)
        self.channels = channels

    def forward(self, audio, mel):
        x, total = self.start(audio), 0
        conditions = self.condition(mel).split(2 * self.channels, 1)
        for inner, skip, condition in zip(self.inner, self.skip, conditions):
            gates = inner(x) + condition
            first, second = gates.split(self.channels, 1)
            residual, out = skip(torch.tanh(first) * torch.sigmoid(second)).split(self.channels, 1)
            x, total = x + residual, total + out
        return self.end(total)


class WaveGlow(nn.Module):
    """WaveGlow (Prenger et al., 2018): twelve flows over groups of eight samples.

    Segments of 8,000 samples as in NVIDIA/DeepLearningExamples, which trains 512 channels and
    speaks with 256.
    """

    described = "8,000 samples of sound"

    def __init__(self, channels=512):
        super().__init__()
        self.mixing = nn.ModuleList([nn.Conv1d(8, 8, 1, bias=False) for _ in range(12)])
        self.flows = nn.ModuleList([_WaveNet(channels) for _ in range(12)])

    def inputs(self, batch):
        """Audio in groups of eight samples, and the mel frames that condition it."""
        return torch.empty(batch, 8, 1000), torch.empty(batch, 640, 1000)

    def loss(self, output, _inputs):
        """Of a unit normal; logarithms of the determinants are not counted."""
        return output.pow(2).sum()

    def forward(self, audio, mel):
        for mixing, flow in zip(self.mixing, self.flows):
            first, second = mixing(audio).split(4, 1)
            shift, scale = flow(first, mel).split(4, 1)
            audio = torch.cat((first, torch.exp(scale) * second + shift), 1)
        return audio


class NeuralFiltering(nn.Module):
    """Neural collaborative filtering on MovieLens-20M (He et al., 2017; MLPerf v0.5 sizes)."""

    def __init__(self, users=138493, movies=26744):
        super().__init__()
        self.user, self.movie = nn.Embedding(users, 64), nn.Embedding(movies, 64)
        self.deep_user, self.deep_movie = nn.Embedding(users, 128), nn.Embedding(movies, 128)
        self.deep = nn.Sequential(
            nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 128), nn.ReLU(),
            nn.Dropout(0.5), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.5),
        )  # fmt: skip
        self.score = nn.Linear(128, 1)

    def inputs(self, batch):
        """Users and movies."""
        one = torch.empty((batch,), dtype=torch.int64)
        return one, torch.empty_like(one)

    def loss(self, output, _inputs):
        """Whether the user likes the movie."""
        return F.binary_cross_entropy_with_logits(output, torch.empty_like(output))

    def forward(self, users, movies):
        wide = self.user(users) * self.movie(movies)
        deep = self.deep(torch.cat((self.deep_user(users), self.deep_movie(movies)), -1))
        return self.score(torch.cat((wide, deep), -1))


class UNetMedical(nn.Module):
    """The U-Net of 2015 on 572×572 grey images, unpadded.

    Every pooling halves an even side, and the lowest level has pixels left: sides are 12 above a
    multiple of 16, from 188 on.
    """

    side, multiple, rest, least = 572, 16, 12, 188

    def __init__(self):
        super().__init__()
        widths = (64, 128, 256, 512, 1024)
        self.down = nn.ModuleList([self._pair(a, b) for a, b in zip((1, *widths), widths)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(a, a // 2, 2, 2) for a in reversed(widths[1:])])
        self.merge = nn.ModuleList([self._pair(a, a // 2) for a in reversed(widths[1:])])
        self.head = nn.Conv2d(64, 2, 1)

    @staticmethod
    def _pair(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3), nn.ReLU(), nn.Conv2d(outputs, outputs, 3), nn.ReLU()
        )

    def inputs(self, batch):
        """Grey images."""
        return torch.empty(batch, 1, self.side, self.side)

    def loss(self, output, _inputs):
        """Cross-entropy of every pixel."""
        batch, _, height, width = output.shape
        target = output.new_empty((batch, height, width), dtype=torch.int64)
        return F.cross_entropy(output, target)

    def forward(self, images):
        kept, x = [], images
        for number, pair in enumerate(self.down):
            x = pair(F.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(kept[:-1])):
            x = up(x)
            edge = (skip.shape[-1] - x.shape[-1]) // 2
            size = x.shape[-1]
            x = merge(torch.cat((skip[..., edge : edge + size, edge : edge + size], x), 1))
        return self.head(x)


MODELS = {
    "bert_squad_base": lambda: BertForAnswers(12, 768, 12),
    "bert_squad_large": lambda: BertForAnswers(24, 1024, 16),
    "waveglow": WaveGlow,
    "ncf": NeuralFiltering,
    "unet_medical": UNetMedical,
}
