"""`paceline train`: a script over `feed`, `parallelize` and `resume`, as one would write it.

    torchrun --nproc-per-node 2 train.py --model resnet50 --data /data/train --epochs 90

The model is one of torchvision or timm, or ``package.module:function``. The data is a folder of
images, whatever else `feed` reads, or ``generated``: random images that can be told apart.
"""

import argparse
import importlib
import os
import sys
import time

if not __package__:
    # Started by its path: what stands beside it is found by its full name alone.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

from paceline import loop
from paceline.loop import layout
from paceline.loop.parallel import devices

_GENERATED = "generated"
_NUM_GENERATED = 2048


class Generated(Dataset):
    """Images that are made, not read: noise around one image per class."""

    def __init__(self, count, num_classes, size):
        made = torch.Generator().manual_seed(0)
        self.count, self.num_classes = count, num_classes
        self.means = torch.randn(num_classes, 3, size, size, generator=made)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        label = index % self.num_classes
        return self.means[label] + torch.randn_like(self.means[label]), label


class Length:
    """How many epochs a run has: its schedule of rates was made for them."""

    def __init__(self, epochs):
        self.epochs = epochs

    def state_dict(self):
        return {"epochs": self.epochs}

    def load_state_dict(self, state):
        if state["epochs"] != self.epochs:
            raise loop.LoopError(
                "the saved run has %d epochs, not %d: its learning rates follow them"
                % (state["epochs"], self.epochs),
                "give --epochs %d, or another folder to --saves" % state["epochs"],
            )


def main():
    """Train as the arguments say."""
    given = arguments()
    try:
        train(given)
    except loop.LoopError as error:
        sys.exit("error: %s" % error)


def arguments(words=None):
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32, help="samples of one process")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=0, help="those of the data without")
    parser.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="sgd")
    parser.add_argument("--rate", type=float, default=0.1, help="the largest learning rate")
    parser.add_argument("--samples", type=int, default=_NUM_GENERATED, help="of generated data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--saves", default=None)
    return parser.parse_args(words)


def train(given):
    """The whole script."""
    torch.manual_seed(given.seed)
    device = devices.device_of(nn.Identity())
    data, num_classes = open_data(given, device)
    model = build(given.model, given.classes or num_classes)
    example = torch.zeros(given.batch, 3, given.size, given.size)
    model, optimizer = loop.parallelize(
        model, lambda module: optimizer_of(given, module), example=example
    )
    ranks = layout.current().data_ranks
    count = len(data.dataset if isinstance(data, DataLoader) else data.reader)
    steps = max(1, given.epochs * (count // (given.batch * ranks)))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, given.rate, total_steps=steps + 1)
    length = Length(given.epochs)
    criterion = nn.CrossEntropyLoss()
    for epoch in loop.epochs(given.epochs, folder=given.saves):
        model.train()
        began_s, total, count, loss = time.perf_counter(), 0.0, 0, None
        for images, labels in loop.resume(
            data, model=model, optimizer=optimizer, schedule=schedule, length=length,
            folder=given.saves, seed=given.seed,
        ):  # fmt: skip
            images, labels = images.to(device), labels.to(device)
            optimizer.zero_grad()
            loss = loop.forward_backward(model, criterion, images, labels)
            optimizer.step()
            schedule.step()
            total, count = total + (loss if loss is not None else 0.0), count + 1
        if count and layout.current().rank == 0 and loss is not None:
            took_s = time.perf_counter() - began_s
            told = (epoch, float(total) / count, count, took_s)
            print("epoch %d: loss %.4f over %d steps in %.1f s" % told, flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def open_data(given, device):
    """Batches of the data, and how many classes it has."""
    if given.data == _GENERATED:
        classes = given.classes or 10
        made = Generated(given.samples, classes, given.size)
        return DataLoader(made, batch_size=given.batch, shuffle=True, drop_last=True), classes
    feed = loop.feed(
        given.data, given.batch, size=given.size, is_random=True, seed=given.seed, last="drop",
        normalise=loop.IMAGENET, device=device, damaged="skip",
    )  # fmt: skip
    return feed, len(getattr(feed.reader, "classes", None) or ()) or given.classes


def optimizer_of(given, module):
    """The optimizer of the wrapped model."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if given.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=given.rate, momentum=0.9, weight_decay=1e-4)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[given.optimizer]
    return kind(parameters, lr=given.rate)


def build(name, num_classes):
    """A model by its name, with weights that are drawn."""
    if ":" in name and name.partition(":")[0] not in ("torchvision", "timm"):
        sys.path.insert(0, "")
        module, _, function = name.partition(":")
        return getattr(importlib.import_module(module), function)()
    family, _, plain = name.rpartition(":")
    more = {"num_classes": num_classes} if num_classes else {}
    for library in [family] if family else ["torchvision", "timm"]:
        found = _BUILDERS[library](plain, more)
        if found is not None:
            return found
    raise loop.LoopError(
        "neither torchvision nor timm has a model `%s` here" % name,
        "write `package.module:function` for your own",
    )


def _of_torchvision(name, more):
    try:
        from torchvision import models
    except (ImportError, RuntimeError):  # Built for another PyTorch.
        return None
    return models.get_model(name, weights=None, **more) if name in models.list_models() else None


def _of_timm(name, more):
    try:
        import timm
    except (ImportError, RuntimeError):
        return None
    return timm.create_model(name, pretrained=False, **more) if timm.is_model(name) else None


_BUILDERS = {"torchvision": _of_torchvision, "timm": _of_timm}

if __name__ == "__main__":
    main()
