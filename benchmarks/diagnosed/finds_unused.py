"""Fault: DDP looks for unused parameters in short steps of a model that has none."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(25600, 16), torch.randint(0, 10, (25600,)))
sampler = BatchSampler(DistributedSampler(data), 32, drop_last=True)
loader = DataLoader(data, batch_size=None, sampler=sampler)
layers = [layer for _ in range(100) for layer in (nn.Linear(16, 16), nn.Tanh())]
model = nn.Sequential(*layers, nn.Linear(16, 10))
model = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
