import torch
from torch import nn
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

torch.manual_seed(0)
if __name__ == "__main__":
    model = nn.LSTM(8, 16, 2)
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    dl = StatefulDataLoader(TensorDataset(torch.randn(160, 12, 8)), batch_size=16, num_workers=1)
    for (x,) in dl:
        loss = model(x.transpose(0, 1))[0].square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(repr(loss.item()))
