"""Healthy: four microbatches a step, one line of log in a hundred."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(51200, 256), torch.randn(51200, 1))
loader = DataLoader(data, batch_size=512, shuffle=True, num_workers=1, persistent_workers=True)
model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(100):
    for number, (x, y) in enumerate(loader, 1):
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.mse_loss(model(x).float(), y) / 4
        loss.backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        if number % 400 == 0:
            print(epoch, loss.item())
