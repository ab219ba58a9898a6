"""Steps of a model that is named: NAME [STEPS [TIMES]], so many times the batch."""

import itertools
import sys

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Texts(nn.Module):
    """A transformer of four layers over tokens."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5000, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(256, 10)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)).mean(1))


class Sequences(nn.Module):
    """Two recurrent layers over vectors."""

    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(64, 256, 2, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, vectors):
        return self.head(self.cells(vectors)[0][:, -1])


class Residual(nn.Module):
    """Four blocks of one width around which their inputs go."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 3, 2, 1)
        self.blocks = nn.ModuleList([block(64, 64, 1) for _ in range(4)])
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = self.stem(x)
        for one in self.blocks:
            x = x + one(x)
        return self.head(x.mean((2, 3)))


def block(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, 1, 1), nn.BatchNorm2d(outputs), nn.ReLU(),
    )  # fmt: skip


def pictures():
    blocks = [block(3, 32, 1), block(32, 64, 2), block(64, 128, 2)]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def layers(*widths):
    pairs = itertools.pairwise(widths)
    made = [one for a, b in pairs for one in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*made[:-1])


MODELS = {
    "wide perceptron": (lambda: layers(1024, 2048, 2048, 10), lambda: torch.randn(256, 1024)),
    "deep perceptron": (lambda: layers(512, *[768] * 8, 10), lambda: torch.randn(128, 512)),
    "convolutions": (pictures, lambda: torch.randn(32, 3, 32, 32)),
    "transformer": (Texts, lambda: torch.randint(0, 5000, (16, 64))),
    "recurrent": (Sequences, lambda: torch.randn(32, 48, 64)),
    "residual": (Residual, lambda: torch.randn(8, 3, 64, 64)),
}

make, data = MODELS[sys.argv[1]]
num_steps = int(sys.argv[2]) if len(sys.argv) > 2 else 30
times = int(sys.argv[3]) if len(sys.argv) > 3 else 1
model, x = make(), torch.cat([data() for _ in range(times)])
y = torch.randint(0, 10, (len(x),))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
for _step in range(num_steps):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
