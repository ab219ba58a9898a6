import torch
from torch import nn

torch.manual_seed(0)
model = torch.compile(
    nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)), backend="aot_eager"
)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for i in range(20):
    x, y = torch.randn(16, 32), torch.randint(0, 10, (16,))
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(repr(loss.item()))
import torch._dynamo.utils as u

print(
    sorted((k, dict(v)) for k, v in u.counters.items() if k in ("stats", "graph_break", "frames"))
)
