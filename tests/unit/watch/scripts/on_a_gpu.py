"""Short loops as people write them for a GPU; small ones run on a CPU too."""

import argparse
import contextlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["resnet", "gpt2", "lstm", "mlp", "conv"])
parser.add_argument("--precision", default="fp32")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--steps", type=int, default=100000)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--pinned", action="store_true")
parser.add_argument("--on-the-device", action="store_true", help="Data are there beforehand.")
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--compiled", action="store_true")
parser.add_argument("--reads", action="store_true", help="Read the loss in every step.")
parser.add_argument("--size", type=int, default=224)
parser.add_argument("--device", default="cuda")
args = parser.parse_args()


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 256)
        self.lstm = nn.LSTM(256, 512, num_layers=2, batch_first=True)
        self.head = nn.Linear(512, 10000)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


def images(size):
    data = TensorDataset(torch.randn(512, 3, size, size), torch.randint(0, 10, (512,)))
    return data, nn.CrossEntropyLoss()


def tokens(length, words):
    loss = nn.CrossEntropyLoss()
    data = TensorDataset(*torch.randint(0, words, (2, 2048, length)).unbind())
    return data, lambda y, x: loss(y.flatten(0, 1), x.flatten())


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = GPT2LMHeadModel(GPT2Config(use_cache=False))

        def forward(self, x):
            return self.model(x).logits

    return Language()


if args.what == "resnet":
    from torchvision.models import resnet50

    model = resnet50()
    dataset, criterion = images(args.size)
elif args.what == "conv":
    layers = [nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 10))
    dataset, criterion = images(args.size)
elif args.what == "gpt2":
    model = gpt2()
    dataset, criterion = tokens(512, 50257)
elif args.what == "lstm":
    model = Tagger()
    dataset, criterion = tokens(64, 10000)
else:
    model = nn.Sequential(*[nn.Linear(128, 128) for _ in range(24)], nn.Linear(128, 10))
    dataset = TensorDataset(torch.randn(65536, 128), torch.randint(0, 10, (65536,)))
    criterion = nn.CrossEntropyLoss()

device = torch.device(args.device)
model = model.to(device)
stored = {"half": torch.float16, "pure-bf16": torch.bfloat16}.get(args.precision, torch.float32)
model = model.to(stored)
if args.channels_last:
    model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
if args.compiled:
    model = torch.compile(model)
cast = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(args.precision)
autocast = contextlib.nullcontext() if cast is None else torch.autocast(device.type, cast)
scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "fp16")
if args.on_the_device:
    kept = next(iter(DataLoader(dataset, batch_size=args.batch)))
    dataset, args.batch = [[one.to(device) for one in kept]] * 512, None
loader = DataLoader(
    dataset, batch_size=args.batch, shuffle=True, num_workers=args.workers,
    pin_memory=args.pinned, persistent_workers=args.workers > 0,
    drop_last=args.batch is not None,
)  # fmt: skip

num_steps, total = 0, 0.0
while num_steps < args.steps:
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        if x.is_floating_point():
            x = x.to(stored)
        if args.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        with autocast:
            loss = criterion(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if args.reads:
            total += loss.item()
        num_steps += 1
        if num_steps >= args.steps:
            break
