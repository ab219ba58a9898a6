"""Models as people write them by hand in PyTorch; each function returns one and an example batch.

``paceline predict own_models:tagger`` reads what the worker runs.
"""

import torch
from torch import nn

#: Sizes of the tagger: words it knows, width of a word, width of each direction, words of a text.
WORDS, WIDTH, HIDDEN, LENGTH = 20_000, 300, 512, 200
BATCH = 2


class Tagger(nn.Module):
    """Two bidirectional LSTM layers over words, and a label for each."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(
            WIDTH, HIDDEN, 2, batch_first=True, bidirectional=True, dropout=0.3
        )  # fmt: skip
        self.head = nn.Linear(2 * HIDDEN, 20)

    def forward(self, ids):
        """Logits of 20 labels for each word."""
        return self.head(self.lstm(self.embedding(ids))[0])


def tagger():
    """The tagger, and texts of 200 words."""
    return Tagger(), torch.zeros(BATCH, LENGTH, dtype=torch.int64)


class Encoder(nn.Module):
    """PyTorch's own encoder layers over words, and one label a text."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(30_000, 512)
        layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(512, 10)

    def forward(self, ids):
        """Logits of ten labels."""
        return self.head(self.layers(self.embedding(ids)).mean(1))


def encoder():
    """The encoder, and texts of 256 words."""
    return Encoder(), torch.zeros(BATCH, 256, dtype=torch.int64)


class Twice(nn.Sequential):
    """Two convolutions, each normalised and rectified."""

    def __init__(self, taken, given):
        layers = []
        for width in (taken, given):
            layers += [nn.Conv2d(width, given, 3, padding=1), nn.BatchNorm2d(given), nn.ReLU()]
        super().__init__(*layers)


class Segmenter(nn.Module):
    """A U-Net of four floors."""

    def __init__(self, widths=(64, 128, 256, 512)):
        super().__init__()
        self.down = nn.ModuleList(map(Twice, (3, *widths[:-1]), widths))
        self.wide = nn.ModuleList(
            nn.ConvTranspose2d(2 * width, width, 2, stride=2) for width in widths[:-1]
        )
        self.up = nn.ModuleList(Twice(2 * width, width) for width in widths[:-1])
        self.head = nn.Conv2d(widths[0], 21, 1)

    def forward(self, x):
        """Logits of 21 classes for each pixel."""
        kept = []
        for floor in self.down:
            x = floor(x if not kept else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for level in reversed(range(len(self.up))):
            x = self.up[level](torch.cat((kept[level], self.wide[level](x)), 1))
        return self.head(x)


def segmenter():
    """The U-Net, and pictures of 256 x 256."""
    return Segmenter(), torch.zeros(BATCH, 3, 256, 256)
