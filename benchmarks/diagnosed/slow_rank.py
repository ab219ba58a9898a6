"""Fault: one rank checks its weights after each step, and the other waits for it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(51200, 256), torch.randint(0, 10, (51200,)))
sampler = BatchSampler(DistributedSampler(data), 512, drop_last=True)
loader = DataLoader(data, batch_size=None, sampler=sampler)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 10))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 1:
            torch.linalg.svdvals(model.module[2].weight.detach()[:200])
