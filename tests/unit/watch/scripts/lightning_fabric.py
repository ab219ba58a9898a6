import torch
from lightning.fabric import Fabric
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

f = Fabric(accelerator="cpu", precision="bf16-mixed")
f.seed_everything(0, verbose=False)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, opt = f.setup(model, opt)
dl = f.setup_dataloaders(
    DataLoader(TensorDataset(torch.randn(320, 32), torch.randint(0, 10, (320,))), batch_size=16)
)
for x, y in dl:
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    f.backward(loss)
    opt.step()
    print(repr(loss.item()))
