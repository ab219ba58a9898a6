"""Fault: an augmentation that goes over the rows of a picture in Python."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


def jitter(picture, chance):
    for row in range(picture.shape[0]):
        for column in range(picture.shape[1]):
            picture[row, column] = picture[row, column] * 0.9 + 0.1 * chance.random()
    return picture


class Pictures(Dataset):
    def __len__(self):
        return 6400

    def __getitem__(self, index):
        chance = np.random.default_rng(index)
        picture = chance.random((64, 64), dtype=np.float32)
        picture = jitter(picture, chance)
        return picture.reshape(-1), index % 10


loader = DataLoader(Pictures(), batch_size=48, shuffle=True, num_workers=1)
model = nn.Sequential(nn.Linear(4096, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
