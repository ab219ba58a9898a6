"""A small CNN on generated images of CIFAR's size, in a loop that survives kills.

    paceline run -- python train.py
    paceline run -- torchrun --nproc-per-node 2 train.py

Kill it, and start it again on any number of processes: it goes on where it was last saved. Three
lines make it so; each of them says `loop`. Losses go to losses.jsonl, one line per step.
"""

import argparse
import json

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

import paceline.loop as loop


class Images(Dataset):
    """Ten pictures, 32 x 32; each sample is one of them under noise that is drawn when read."""

    def __init__(self, count):
        drawn = torch.Generator().manual_seed(0)
        self.count = count
        self.pictures = torch.randn(10, 3, 32, 32, generator=drawn)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        label = index % 10
        return self.pictures[label] + 4 * torch.randn(3, 32, 32), label


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False),
        nn.GroupNorm(8, outputs),
        nn.GELU(),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64, help="samples of one process")
    given = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(
        *[block(3, 32), block(32, 64), block(64, 128)],
        *[nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)],
    )
    model, optimizer = loop.parallelize(
        model, lambda model: torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    )
    loader = DataLoader(Images(given.samples), given.batch, shuffle=True, drop_last=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.8)

    for epoch in loop.epochs(given.epochs):
        for images, labels in loop.resume(
            loader, model=model, optimizer=optimizer, scheduler=scheduler
        ):
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = loop.forward_backward(model, nn.functional.cross_entropy, images, labels)
            optimizer.step()
            scheduler.step()
            note(scheduler.last_epoch, epoch, loop.mean_loss(model, loss))
    if dist.is_initialized():
        dist.destroy_process_group()


def note(step, epoch, loss):
    """Write a line for a step, and say one in fifty."""
    if dist.is_initialized() and dist.get_rank() > 0:
        return
    with open("losses.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "epoch": epoch, "loss": loss}) + "\n")
    if step % 50 == 0:
        print(f"epoch {epoch} step {step}: loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
