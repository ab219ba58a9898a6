"""Fault: a batch is made number by number, in Python."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Rows(Dataset):
    def __init__(self):
        self.rows = np.random.default_rng(0).standard_normal((25600, 256), dtype=np.float32)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], index % 10


def collate(samples):
    rows = [[float(value) for value in row] for row, _ in samples]
    return torch.tensor(rows), torch.tensor([label for _, label in samples])


loader = DataLoader(Rows(), batch_size=256, shuffle=True, num_workers=0, collate_fn=collate)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
