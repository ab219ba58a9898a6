"""The small training jobs whose memory is held against real runs, on a CPU and on a GPU.

Each is a pair of what makes the model and what makes its inputs for a batch size.
"""

import importlib
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

_TRACE_WORKERS = str(Path(__file__).parents[3] / "src" / "paceline" / "frontends" / "torch")


def models():
    """The tracer's module of models, which needs torch and nothing of paceline."""
    if _TRACE_WORKERS not in sys.path:
        sys.path.append(_TRACE_WORKERS)
    return importlib.import_module("torch_networks.zoo")


def torchvision(name, **settings):
    """A maker of a torchvision model."""
    return lambda: getattr(models().import_torchvision().models, name)(weights=None, **settings)


def images(size):
    """A maker of (batch, 3, size, size) pictures."""
    return lambda batch: torch.zeros(batch, 3, size, size)


def tokens(batch):
    """(batch, 48) token numbers."""
    return torch.zeros(batch, 48, dtype=torch.int64)


def cross_entropy(output, _inputs):
    """Loss of (…, classes) logits; auxiliary heads count 0.3 each, as GoogLeNet trains."""
    total = None
    for number, logits in enumerate(output if isinstance(output, tuple) else (output,)):
        rows = logits.reshape(-1, logits.shape[-1])
        target = torch.zeros(rows.shape[0], dtype=torch.int64, device=rows.device)
        term = functional.cross_entropy(rows, target) * (0.3 if number else 1.0)
        total = term if total is None else total + term
    return total


def mlp():
    """Six hidden layers of 256."""
    hidden = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(6)]
    return nn.Sequential(*hidden, nn.Linear(256, 10))


def gpt2():
    """Two layers of a causal decoder with tied embeddings."""
    return models().transformer(
        layers=2, hidden=128, heads=4, vocab=500, positions=128, dropout=0.1, tied=1
    )


def bert():
    """Two layers of an encoder with a classifier."""
    return models().transformer(
        layers=2, hidden=128, heads=4, vocab=500, positions=128, token_types=2, dropout=0.1,
        post_norm=1, causal=False, classes=2,
    )  # fmt: skip


def frozen_vgg16():
    """VGG-16 of which only the classifier is trained."""
    model = torchvision("vgg16")()
    for parameter in model.features.parameters():
        parameter.requires_grad = False
    return model


class Adapted(nn.Module):
    """A frozen dense layer with a low-rank adapter (Hu et al. 2021)."""

    def __init__(self, width, rank):
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def lora():
    """Four frozen layers, each with an adapter of rank eight."""
    layers = [nn.Sequential(Adapted(512, 8), nn.GELU()) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(512, 10))


class UNet(nn.Module):
    """Two levels down and up, with skip connections (Ronneberger et al. 2015)."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2 = self._double(3, 16), self._double(16, 32)
        self.middle = self._double(32, 64)
        self.up2, self.up1 = (nn.ConvTranspose2d(c, c // 2, 2, 2) for c in (64, 32))
        self.merge2, self.merge1 = self._double(64, 32), self._double(32, 16)
        self.head = nn.Conv2d(16, 2, 1)

    @staticmethod
    def _double(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        x = self.middle(functional.max_pool2d(second, 2))
        x = self.merge2(torch.cat((self.up2(x), second), 1))
        x = self.merge1(torch.cat((self.up1(x), first), 1))
        return self.head(x).permute(0, 2, 3, 1)


def recurrent(cell):
    """A maker of a classifier over one recurrent layer."""
    return lambda: models().RecurrentClassifier(cell, 500, 64, 96)


#: Jobs that take a moment on a CPU.
FAST = {
    "mlp": (mlp, lambda batch: torch.zeros(batch, 256)),
    "gpt2": (gpt2, tokens),
    "bert": (bert, tokens),
    "lstm": (recurrent("lstm"), tokens),
    "gru": (recurrent("gru"), tokens),
    "rnn": (recurrent("rnn"), tokens),
    "lora": (lora, lambda batch: torch.zeros(batch, 512)),
    "unet": (UNet, images(32)),
}
#: Jobs that take a few seconds on a CPU.
SLOW = {
    "resnet18": (torchvision("resnet18"), images(64)),
    "mobilenet_v3": (torchvision("mobilenet_v3_small"), images(64)),
    "googlenet": (torchvision("googlenet", init_weights=False), images(96)),
    "frozen vgg16": (frozen_vgg16, images(64)),
}


class Job:
    """A model object with its inputs and loss, as `load_workload` takes it."""

    def __init__(self, model: nn.Module, inputs):
        self.model, self.inputs, self.loss = model, inputs, cross_entropy
