"""Fault: what was right is counted sample by sample, with ``.item()``."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(102400, 64), torch.randint(0, 10, (102400,)))
sampler = BatchSampler(RandomSampler(data), 2048, drop_last=True)
loader = DataLoader(data, batch_size=None, sampler=sampler)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(100):
    correct = 0
    for x, y in loader:
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for row, label in zip(logits, y, strict=True):
            if row.argmax().item() == label.item():
                correct += 1
    print(epoch, correct / len(data))
