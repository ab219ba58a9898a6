"""Fault: the first weights of each layer are written down after each step."""

import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(51200, 256), torch.randint(0, 10, (51200,)))
loader = DataLoader(data, batch_size=512, shuffle=True, num_workers=1)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
log = open("training-log.jsonl", "a")  # noqa: SIM115
step = 0
for _epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 1 == 0:
            counts = {
                name: weight.detach().flatten()[:10000].tolist()
                for name, weight in model.named_parameters()
            }
            log.write(json.dumps({"loss": loss.item(), **counts}) + "\n")
            log.flush()
