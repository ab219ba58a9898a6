"""Healthy: a perceptron in BF16 on batches that are there."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(51200, 512), torch.randint(0, 10, (51200,)))
sampler = BatchSampler(RandomSampler(data), 1024, drop_last=True)
loader = DataLoader(data, batch_size=None, sampler=sampler)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(100):
    for x, y in loader:
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
