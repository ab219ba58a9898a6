import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
a = Accelerator(cpu=True, gradient_accumulation_steps=2, mixed_precision="bf16")
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
dl = DataLoader(TensorDataset(torch.randn(320, 32), torch.randint(0, 10, (320,))), batch_size=16)
model, opt, dl = a.prepare(model, opt, dl)
for x, y in dl:
    with a.accumulate(model):
        loss = nn.functional.cross_entropy(model(x), y)
        a.backward(loss)
        opt.step()
        opt.zero_grad()
        print(repr(loss.item()))
