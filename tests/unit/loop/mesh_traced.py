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


_VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
PICTURES = 4


def vgg16():
    """A frozen VGG16 (Simonyan and Zisserman, arXiv 1409.1556, configuration D) with a new head."""
    layers, channels = [], 3
    for width in _VGG16:
        if not width:
            layers.append(torch.nn.MaxPool2d(2))
            continue
        layers += [torch.nn.Conv2d(channels, width, 3, padding=1), torch.nn.ReLU(inplace=True)]
        channels = width
    for inputs in (512 * 7 * 7, 4096):
        layers += [torch.nn.Linear(inputs, 4096), torch.nn.ReLU(inplace=True)]
    layers.insert(-4, torch.nn.Flatten())
    features = torch.nn.Sequential(*layers).requires_grad_(False)
    return torch.nn.Sequential(features, torch.nn.Linear(4096, 16))


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


class TracedVGGLoss:
    kind = "image"
    optimizer = "adamw"

    def __init__(self):
        self.model = WithLoss(vgg16())

    def inputs(self, batch):
        return torch.zeros(batch, 3, 224, 224)

    def loss(self, output, inputs):
        return output


class TracedCNNLoss(TracedCNN):
    def __init__(self):
        self.model = WithLoss(cnn())

    def loss(self, output, inputs):
        return output
