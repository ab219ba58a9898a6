"""Forecasters of time series, with the sizes of their papers' main tables."""

import torch
import torch.nn.functional as F
from torch import nn


class _Forecast(nn.Module):
    """A future of so many steps."""

    def loss(self, output, _inputs):
        """Squared error of every step."""
        return F.mse_loss(output, torch.empty_like(output))


class PatchTst(_Forecast):
    """PatchTST/64 (Nie et al. 2023, arXiv:2211.14730, section 4 and appendix A.1).

    Each series of a window is cut into patches of 16 steps, 8 apart, and read alone.

    Args:
        series: Of the data set.
        past: Steps behind.
        ahead: Steps to foretell.
        layers: How many.
        width: Of a patch.
        heads: Of attention.
        inner: Of the feed-forward.
    """

    def __init__(self, series, past=512, ahead=96, layers=3, width=128, heads=16, inner=256):
        super().__init__()
        self.series, self.past, self.patches = series, past, (past - 16) // 8 + 2
        self.patch = nn.Linear(16, width)
        self.places = nn.Parameter(torch.empty(self.patches, width))
        self.layers = nn.ModuleList(_Block(width, heads, inner) for _ in range(layers))
        self.head = nn.Linear(self.patches * width, ahead)
        self.described = f"windows of {past} steps of {series} series"

    def inputs(self, batch):
        """Windows."""
        return torch.empty(batch, self.past, self.series)

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        spread = (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        x = F.pad(((x - mean) / spread).transpose(1, 2), (0, 8), mode="replicate")
        x = x.unfold(-1, 16, 8).reshape(-1, self.patches, 16)
        x = self.patch(x) + self.places
        for layer in self.layers:
            x = layer(x)
        foretold = self.head(x.flatten(1)).view(-1, self.series, self.head.out_features)
        return foretold.transpose(1, 2) * spread + mean


class _Block(nn.Module):
    """Attention and a feed-forward, each normalised over the batch, as PatchTST has them."""

    def __init__(self, width, heads, inner, dropout=0.2):
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.BatchNorm1d(width), nn.BatchNorm1d(width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5, -1)
        y = (scores @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.dropout(self.out(y))
        x = self.norm1(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.dropout(self.down(self.dropout(F.gelu(self.up(x)))))
        return self.norm2(x.transpose(1, 2)).transpose(1, 2)


class NBeats(_Forecast):
    """N-BEATS, the generic one (Oreshkin et al. 2020, arXiv:1905.10437, table 18): 30 blocks.

    Args:
        past: Steps behind.
        ahead: Steps to foretell.
        blocks: How many.
        width: Of their four layers.
    """

    def __init__(self, past=126, ahead=18, blocks=30, width=512):
        super().__init__()
        self.past, self.ahead = past, ahead
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(past, width),
                nn.ReLU(),
                *self._deeper(width),
                nn.Linear(width, past + ahead),
            )
            for _ in range(blocks)
        )
        self.described = f"windows of {past} steps of one series"

    @staticmethod
    def _deeper(width):
        return [part for _ in range(3) for part in (nn.Linear(width, width), nn.ReLU())]

    def inputs(self, batch):
        """Windows."""
        return torch.empty(batch, self.past)

    def forward(self, x):
        foretold = 0.0
        for block in self.blocks:
            back, ahead = block(x).split((self.past, self.ahead), -1)
            x, foretold = x - back, foretold + ahead
        return foretold


MODELS = {
    "patchtst_weather": lambda: PatchTst(21),
    "patchtst_electricity": lambda: PatchTst(321),
    "patchtst_etth1": lambda: PatchTst(7, width=16, heads=4, inner=128),
    "nbeats_m4": NBeats,
}
