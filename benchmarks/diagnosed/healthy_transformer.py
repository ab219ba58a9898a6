"""Healthy: an encoder on random tokens in BF16."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
tokens = torch.randint(0, 500, (3200, 64))
loader = DataLoader(TensorDataset(tokens), batch_size=32, shuffle=True, num_workers=1)
layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
model = nn.Sequential(
    nn.Embedding(500, 128), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
    nn.Linear(128, 500),
)  # fmt: skip
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _epoch in range(100):
    for (x,) in loader:
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(x[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
