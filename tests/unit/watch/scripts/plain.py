import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = DataLoader(
    TensorDataset(torch.randn(16 * steps, 32), torch.randint(0, 10, (16 * steps,))),
    batch_size=16,
    shuffle=True,
)
loss_fn = nn.CrossEntropyLoss()
for x, y in data:
    opt.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    opt.step()
    print(repr(loss.item()))
