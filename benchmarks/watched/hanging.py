"""Two ranks of DDP; from the sixth step on, rank 1 hangs where it is told to."""

import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
where = sys.argv[1]
dist.init_process_group("gloo")
rank = dist.get_rank()
step = 0


def hangs(place):
    return place == where and rank == 1 and step >= 5


class Data(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        if hangs("data"):
            time.sleep(600)
        return torch.randn(32)


class Net(nn.Linear):
    def forward(self, x):
        if hangs("forward"):
            time.sleep(600)
        return super().forward(x)


class Slow:
    """A stream that takes no byte."""

    def write(self, data):
        time.sleep(600)

    def flush(self):
        pass


model = nn.parallel.DistributedDataParallel(Net(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for x in DataLoader(Data(), batch_size=16):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if hangs("collective"):
        dist.barrier()
    if hangs("save"):
        torch.save(model.state_dict(), Slow())
    if hangs("exit"):
        os._exit(0)
    if hangs("lock"):
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
