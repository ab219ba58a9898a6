"""Fault: a backbone that is not trained, and gets gradients all the same."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(51200, 256), torch.randint(0, 10, (51200,)))
loader = DataLoader(data, batch_size=512, shuffle=True, num_workers=1)
backbone = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
head = nn.Linear(1024, 10)
model = nn.Sequential(backbone, head)
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
# here
for _epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
