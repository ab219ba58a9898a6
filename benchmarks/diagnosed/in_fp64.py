"""Fault: data came as FP64, and the model was made to match."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
rows = np.random.default_rng(0).standard_normal((51200, 256))
data = TensorDataset(torch.from_numpy(rows), torch.randint(0, 10, (51200,)))
loader = DataLoader(data, batch_size=512, shuffle=True, num_workers=1)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.Linear(512, 10))
model = model.double()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
