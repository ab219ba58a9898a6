"""`paceline train`: a script over `feed`, `parallelize` and `resume`, as one would write it.

    torchrun --nproc-per-node 2 train.py --model resnet50 --data /data/train --epochs 90

The model is one of torchvision or timm, or ``package.module:function``. The data is a folder of
images, whatever else `feed` reads, or ``generated``: random images that can be told apart. With
``--window`` the data are token files and the model is a decoder: one of transformers' kinds at its
own sizes, or a function's; it learns each next token.
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
from paceline.loop.parallel.choice import planned
from paceline.loop.parallel.notation import parse

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


class NextTokens(nn.Module):
    """A decoder that gives logits alone, of each next token."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens):
        """Logits [batch, seq, vocabulary] of tokens [batch, seq]."""
        found = self.decoder(tokens)
        return getattr(found, "logits", found)


class Length:
    """How many epochs a run has: its schedule of rates was made for them."""

    def __init__(self, epochs):
        self.epochs = epochs

    def state_dict(self):
        """What a save keeps of it: the number of epochs."""
        return {"epochs": self.epochs}

    def load_state_dict(self, state):
        """Check that a saved run is as long as this one.

        Raises:
            LoopError: It has another number of epochs.
        """
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
    parser.add_argument("--window", type=int, default=0, help="tokens of a sample of token files")
    parser.add_argument("--dtype", default=None, help="of token files without a header")
    parser.add_argument("--samples", type=int, default=_NUM_GENERATED, help="of generated data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--saves", default=None)
    return parser.parse_args(words)


def train(given):
    """The whole script."""
    torch.manual_seed(given.seed)
    device = devices.device_of(nn.Identity())
    data, num_classes = open_data(given, device)
    model = build(given.model, given.classes or num_classes, is_decoder=given.window > 0)
    example = example_of(given)
    model, optimizer = loop.parallelize(
        model, lambda module: optimizer_of(given, module), example=example
    )
    ranks = layout.current().data_ranks
    count = len(data.dataset if isinstance(data, DataLoader) else data.reader)
    steps = max(1, given.epochs * (count // (given.batch * ranks)))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, given.rate, total_steps=steps + 1)
    length = Length(given.epochs)
    for epoch in loop.epochs(given.epochs, folder=given.saves):
        model.train()
        began_s, total, count, loss = time.perf_counter(), 0.0, 0, None
        for inputs, targets in loop.resume(
            data, model=model, optimizer=optimizer, schedule=schedule, length=length,
            folder=given.saves, seed=given.seed,
        ):  # fmt: skip
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            loss = loop.forward_backward(model, loss_of, inputs, targets)
            optimizer.step()
            schedule.step()
            total, count = total + (loss if loss is not None else 0.0), count + 1
        if count and layout.current().rank == 0 and loss is not None:
            took_s = time.perf_counter() - began_s
            told = (epoch, float(total) / count, count, took_s)
            print("epoch %d: loss %.4f over %d steps in %.1f s" % told, flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def loss_of(outputs, targets):
    """Cross entropy: one class for a sample, or one token for each of its places."""
    return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def example_of(given):
    """Inputs of one microbatch, as the plan's strategy has it."""
    strategy = planned().get("strategy")
    batch = max(1, given.batch // (parse(strategy).microbatches if strategy else 1))
    if given.window:
        return torch.zeros(batch, given.window, dtype=torch.int64)
    return torch.zeros(batch, 3, given.size, given.size)


def open_data(given, device):
    """Batches of the data, and how many classes it has."""
    if given.data == _GENERATED and given.window:
        raise loop.LoopError(
            "no tokens are generated", "give --data FILE.npy, or leave out --window for images"
        )
    if given.data == _GENERATED:
        classes = given.classes or 10
        made = Generated(given.samples, classes, given.size)
        return DataLoader(made, batch_size=given.batch, shuffle=True, drop_last=True), classes
    if given.window:
        feed = loop.feed(
            given.data, given.batch, window=given.window, dtype=given.dtype, seed=given.seed,
            last="drop", device=device, damaged="skip",
        )  # fmt: skip
        return feed, given.classes
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


def build(name, num_classes, is_decoder=False):
    """A model by its name, with weights that are drawn.

    Args:
        name: Of a library's model, with or without the library, or ``package.module:function``.
        num_classes: Of images; of a decoder, the tokens that there are. 0 for the model's own.
        is_decoder: Whether it reads tokens.
    """
    if ":" in name and name.partition(":")[0] not in _BUILDERS:
        sys.path.insert(0, "")
        module, _, function = name.partition(":")
        found = getattr(importlib.import_module(module), function)()
        return NextTokens(found) if is_decoder else found
    family, _, plain = name.rpartition(":")
    libraries = ["transformers"] if is_decoder else ["torchvision", "timm"]
    key = "vocab_size" if is_decoder else "num_classes"
    loaded = {one: _loaded(one) for one in ([family] if family else libraries)}
    for library, module in loaded.items():
        more = {key: num_classes} if num_classes else {}
        found = _BUILDERS[library](module, plain, more) if module else None
        if found is not None:
            return found
    missing = [library for library, module in loaded.items() if module is None]
    if missing:
        raise loop.LoopError(
            "no model `%s`: %s cannot be imported here" % (name, " and ".join(missing)),
            "install %s for this PyTorch, or write `package.module:function` for your own"
            % missing[0],
        )
    raise loop.LoopError(
        "%s has no model `%s` here" % (" or ".join(loaded), name),
        "write `package.module:function` for your own",
    )


def _loaded(library):
    """The library; None where it is missing, or built for another PyTorch."""
    try:
        return importlib.import_module(_MODULES.get(library, library))
    except (ImportError, RuntimeError):
        return None


def _of_torchvision(models, name, more):
    return models.get_model(name, weights=None, **more) if name in models.list_models() else None


def _of_timm(timm, name, more):
    return timm.create_model(name, pretrained=False, **more) if timm.is_model(name) else None


def _of_transformers(transformers, name, more):
    try:
        config = transformers.AutoConfig.for_model(name, use_cache=False, **more)
        return NextTokens(transformers.AutoModelForCausalLM.from_config(config).float())
    except (ImportError, RuntimeError, ValueError):  # No such kind, or it is no decoder.
        return None


_MODULES = {"torchvision": "torchvision.models"}
_BUILDERS = {"torchvision": _of_torchvision, "timm": _of_timm, "transformers": _of_transformers}

if __name__ == "__main__":
    main()
