"""Small models drawn by a number, and a server that trains them under caps in forked processes.

``python drawn.py`` reads a line of JSON a run (``number``, ``batch``), forks a process that imports
nothing more, writes what it holds before its first step, reads a cap of its own data (or null),
trains five steps, and writes how it ended.
"""

import contextlib
import itertools
import json
import os
import random
import resource
import sys

import torch
from torch import nn

NUM_STEPS = 5


class Recurrent(nn.Module):
    """Recurrent layers over vectors, and a head on the last state."""

    def __init__(self, kind, width, layers):
        super().__init__()
        self.cells = kind(64, width, layers, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, vectors):
        return self.head(self.cells(vectors)[0][:, -1])


class Texts(nn.Module):
    """A transformer over tokens, and a head on the mean of its states."""

    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(4000, width)
        one = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(one, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)).mean(1))


class Residual(nn.Module):
    """A convolution with a norm beside what it reads."""

    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(x + self.body(x))


def perceptron(chance):
    width = chance.randrange(256, 1025, 64)
    body = [nn.Linear(width, width) for _ in range(chance.randint(1, 6))]
    made = [layer for one in body for layer in (one, nn.ReLU())]
    return nn.Sequential(*made, nn.Linear(width, 10)), lambda n: torch.randn(n, width)


def convolutions(chance):
    widths = [3, *(chance.choice((8, 12, 16, 24, 32)) for _ in range(chance.randint(1, 4)))]
    side = chance.choice((24, 32, 48, 64))
    made = []
    for a, b in itertools.pairwise(widths):
        made += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))
    return nn.Sequential(*made, *head), lambda n: torch.randn(n, 3, side, side)


def residual(chance):
    width, side = chance.choice((8, 12, 16, 24)), chance.choice((24, 32, 48))
    body = [Residual(width) for _ in range(chance.randint(1, 5))]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    made = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *body, *head)
    return made, lambda n: torch.randn(n, 3, side, side)


def transformer(chance):
    length = chance.choice((32, 48, 64, 96))
    made = Texts(chance.choice((32, 64, 96, 128)), chance.randint(1, 4))
    return made, lambda n: torch.randint(0, 4000, (n, length))


def recurrent(chance):
    kind, length = chance.choice((nn.LSTM, nn.GRU)), chance.choice((16, 24, 32))
    made = Recurrent(kind, chance.choice((64, 128, 192)), chance.randint(1, 2))
    return made, lambda n: torch.randn(n, length, 64)


FAMILIES = (perceptron, convolutions, residual, transformer, recurrent)
OPTIMIZERS = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=1e-3),
    "momentum": lambda weights: torch.optim.SGD(weights, lr=1e-3, momentum=0.9),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-4),
}


def drawn(number):
    """Name of a family, model, maker of its inputs and name of its optimizer."""
    chance = random.Random(number)
    family = FAMILIES[number % len(FAMILIES)]
    model, inputs = family(chance)
    return family.__name__, model, inputs, chance.choice(sorted(OPTIMIZERS))


def held_bytes(which="VmData:"):
    """What this process has as data of its own."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(which))


def _train(number, batch, lines, answers):
    torch.manual_seed(number)
    _, model, inputs, name = drawn(number)
    optimizer = OPTIMIZERS[name](model.parameters())
    x, y = inputs(batch), torch.randint(0, 10, (batch,))
    _write(answers, held_bytes())
    cap = json.loads(lines.readline())
    if cap is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(cap), resource.RLIM_INFINITY))
    most = 0
    for _ in range(NUM_STEPS):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        most = max(most, held_bytes())


def _write(file, value):
    file.write(json.dumps(value) + "\n")
    file.flush()


def main():
    torch.set_num_threads(1)
    # An optimizer that is being made loads this (`torch._disable_dynamo`).
    __import__("torch._dynamo")
    lines, answers = sys.stdin, sys.stdout
    while line := lines.readline():
        asked = json.loads(line)
        child = os.fork()
        if not child:
            status = 1
            with contextlib.suppress(BaseException):
                _train(asked["number"], asked["batch"], lines, answers)
                status = 0
            os._exit(status)
        _, status = os.waitpid(child, 0)
        _write(answers, os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
