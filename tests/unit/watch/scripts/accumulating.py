import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 10),
)
opt = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
data = DataLoader(
    TensorDataset(torch.randn(400, 3, 16, 16), torch.randint(0, 10, (400,))), batch_size=10
)
for i, (x, y) in enumerate(data):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y) / 4
    loss.backward()
    print(repr(loss.item()))
    if i % 4 == 3:
        opt.step()
        opt.zero_grad()
