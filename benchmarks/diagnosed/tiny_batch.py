"""Fault: batches of two."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
batch = 2
data = TensorDataset(torch.randn(20000, 1024), torch.randint(0, 10, (20000,)))
loader = DataLoader(data, batch_size=batch, shuffle=True, num_workers=0)
layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(1024, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
