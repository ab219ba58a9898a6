import torch
from torch import nn

m = nn.Linear(4, 4)
o = torch.optim.SGD(m.parameters(), lr=0.1)
for i in range(5):
    l = m(torch.randn(2, 4)).sum()
    l.backward()
    o.step()
(m(torch.randn(2, 4))).backward()
