"""Steps of 60 ms; from the eleventh on, the fault that is named, if one is."""

import os
import signal
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)
fault = sys.argv[1]
step = 0


class Data(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        if fault == "starved" and step >= 10:
            time.sleep(0.04)
        return torch.randn(8)


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for x in DataLoader(Data(), batch_size=4):
    scale = float("nan") if fault == "diverging" and step >= 10 else 1.0
    if fault == "memory" and step >= 10:
        torch.empty(2**46)
    if fault == "stalled" and step >= 10:
        time.sleep(600)
    if fault == "interrupted" and step == 10:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.kill(os.getppid(), signal.SIGTERM)
    loss = scale * model(x).square().mean()
    time.sleep(0.06)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
