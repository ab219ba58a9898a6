"""Fault: a large model reduces its gradients after each small batch."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
every = 1
data = TensorDataset(torch.randn(25600, 1024), torch.randint(0, 10, (25600,)))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), num_workers=0)
layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers, nn.Linear(1024, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(100):
    for number, (x, y) in enumerate(loader, 1):
        is_last = number % every == 0
        with contextlib.nullcontext() if is_last else model.no_sync():
            loss = nn.functional.cross_entropy(model(x), y) / every
            loss.backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
