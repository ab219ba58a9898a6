import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
D = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(), nn.Linear(32, 1))
og = torch.optim.Adam(G.parameters(), lr=1e-3)
od = torch.optim.Adam(D.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
for i in range(20):
    real = torch.randn(12, 16)
    z = torch.randn(12, 8)
    fake = G(z)
    loss_d = bce(D(real), torch.ones(12, 1)) + bce(D(fake.detach()), torch.zeros(12, 1))
    od.zero_grad()
    loss_d.backward()
    od.step()
    loss_g = bce(D(fake), torch.ones(12, 1))
    og.zero_grad()
    loss_g.backward()
    og.step()
    print(repr(loss_d.item()), repr(loss_g.item()))
