import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from paceline.loop.ending import leave_in_order

dist.init_process_group("gloo")
leave_in_order()
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
)
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
ds = TensorDataset(torch.randn(640, 32), torch.randint(0, 10, (640,)))
data = DataLoader(ds, batch_size=16, sampler=DistributedSampler(ds))
for x, y in data:
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"{rank} {loss.item()!r}\n", end="", flush=True)  # At once: torchrun buffers nothing.
dist.destroy_process_group()
