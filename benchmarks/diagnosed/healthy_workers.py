"""Healthy: samples that cost something, made by workers that keep up."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(2)


class Signals(Dataset):
    waves = np.random.default_rng(0).standard_normal((1024, 1024), np.float32)

    def __len__(self):
        return 51200

    def __getitem__(self, index):
        wave = self.waves[index % 1024]
        return np.abs(np.fft.rfft(wave))[:512].astype(np.float32), index % 10


loader = DataLoader(Signals(), batch_size=512, shuffle=True, num_workers=1, persistent_workers=True)
model = nn.Sequential(nn.Linear(512, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.Linear(4096, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(100):
    for x, y in loader:
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
