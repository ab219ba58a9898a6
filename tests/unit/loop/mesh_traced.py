"""The small models with the sizes at which bytes are compared, as `paceline` traces them."""

import torch
from mesh_models import CNN, GPT, loss_of

LENGTH, WIDTH, TOKENS = 32, 64, 512
BATCH = 16


def gpt():
    """A GPT whose weights divide by four ranks."""
    return GPT(tokens=TOKENS, width=WIDTH, heads=4, layers=4, length=LENGTH)


def cnn():
    """A CNN whose weights divide by four ranks."""
    return CNN(width=32, classes=16)


class WithLoss(torch.nn.Module):
    """A model that gives its loss: as in the loop, nobody holds its outputs any longer."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, inputs):
        outputs = self.inner(inputs)
        is_text = inputs.dtype == torch.int64
        return loss_of(outputs, inputs if is_text else outputs.argmax(1))


class TracedGPT:
    kind = "text"
    optimizer = "adamw"

    def __init__(self):
        self.model = gpt()

    def inputs(self, batch):
        return torch.zeros(batch, LENGTH, dtype=torch.int64)

    def loss(self, output, inputs):
        return loss_of(output, inputs)


class TracedGPTLoss(TracedGPT):
    def __init__(self):
        self.model = WithLoss(gpt())

    def loss(self, output, inputs):
        return output


class TracedCNN:
    kind = "image"
    optimizer = "adamw"

    def __init__(self):
        self.model = cnn()

    def inputs(self, batch):
        return torch.zeros(batch, 3, 32, 32)

    def loss(self, output, inputs):
        return loss_of(output, torch.zeros(len(output), dtype=torch.int64))


class TracedCNNLoss(TracedCNN):
    def __init__(self):
        self.model = WithLoss(cnn())

    def loss(self, output, inputs):
        return output
