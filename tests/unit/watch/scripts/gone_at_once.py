"""Gone without a word as its first batch comes."""

import os

from torch.utils.data import DataLoader

for _ in DataLoader([0.0, 1.0]):
    os._exit(0)
