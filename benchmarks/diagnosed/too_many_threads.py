"""Fault: sixteen threads on a machine with fewer cores."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(16)
data = TensorDataset(torch.randn(51200, 256), torch.randint(0, 10, (51200,)))
sampler = BatchSampler(RandomSampler(data), 512, drop_last=True)
loader = DataLoader(data, batch_size=None, sampler=sampler)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
