"""Fault: a batch comes as a list, and each sample is copied by itself."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
device = torch.device("cpu")


class Rows(Dataset):
    def __init__(self):
        self.rows = np.random.default_rng(0).standard_normal((25600, 256))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], index % 10


def as_lists(samples):
    return np.stack([row for row, _ in samples]), [label for _, label in samples]


loader = DataLoader(Rows(), batch_size=512, shuffle=True, num_workers=1, collate_fn=as_lists)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(100):
    for rows, labels in loader:
        x = torch.stack(
            [torch.tensor(row.tolist(), dtype=torch.float32).to(device) for row in rows]
        )
        y = torch.tensor(labels)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
