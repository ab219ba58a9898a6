"""Sixty steps of 50 ms, their losses written as they come."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
with open(sys.argv[1], "w") as file:
    for (x,) in DataLoader(TensorDataset(torch.randn(240, 8)), batch_size=4):
        loss = model(x).square().mean()
        time.sleep(0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        file.write(f"{loss.item()!r}\n")
