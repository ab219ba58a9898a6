"""Training under a kind of parallelism, ended and taken up again under another."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import torch
from tests.unit.loop.mesh_models import CNN, GPT, loss_of, samples
from tests.unit.loop.saved_runs import launch

COUNT, EPOCHS, BATCH = 96, 2, 16
MODELS = {"cnn": CNN, "gpt": GPT, "tied": lambda: GPT(is_tied=True)}


def _adamw(model):
    """Two groups, as people write them: weights decay, biases and norms do not."""
    kinds: list[list] = [[], []]
    for weight in model.parameters():
        kinds[weight.dim() < 2].append(weight)
    groups = [{"params": kinds[0], "weight_decay": 0.1}, {"params": kinds[1], "lr": 1e-3}]
    return torch.optim.AdamW(groups, lr=3e-3, weight_decay=0.0)


OPTIMIZERS = {
    "adamw": _adamw,
    "adafactor": lambda model: torch.optim.Adafactor(model.parameters()),
}


def train(rank: int, ranks: int, folder: str, out: str, options: dict) -> None:
    """Train; rank 0 writes the losses of all samples of each step."""
    from paceline import loop
    from paceline.loop import layout
    from paceline.loop.errors import LoopError
    from paceline.loop.parallel.notation import parse, size

    torch.manual_seed(3 + rank)
    kind, strategy = options["model"], options["strategy"]
    read = parse(strategy)
    inputs, targets = samples(kind, COUNT, torch.Generator().manual_seed(7))
    pieces = size(read, "dp") * size(read, "fsdp") * read.microbatches
    model, optimizer = loop.parallelize(
        MODELS[kind]().double(), OPTIMIZERS[options.get("optimizer", "adamw")], strategy,
        example=inputs[: BATCH // pieces],
    )  # fmt: skip
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(inputs, targets), shuffle=True,
        batch_size=BATCH // layout.current().data_ranks,
    )  # fmt: skip
    num_steps = 0
    with open(out, "a", buffering=1) as file:
        try:
            for _ in range(EPOCHS):
                for x, y in loop.resume(
                    loader, model=model, optimizer=optimizer, scheduler=scheduler, folder=folder,
                    every_steps=100, seed=11,
                ):  # fmt: skip
                    optimizer.zero_grad()
                    mean = loop.mean_loss(model, loop.forward_backward(model, loss_of, x, y))
                    optimizer.step()
                    scheduler.step()
                    num_steps += 1
                    if rank == 0:
                        file.write(json.dumps(mean) + "\n")
                    if num_steps == options.get("ends_at"):
                        os.kill(os.getpid(), signal.SIGTERM)
        except LoopError as error:
            if rank == 0:
                file.write(json.dumps(str(error)) + "\n")
            return
    if ranks > 1:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def run(ranks: int, folder: Path, out: Path, **options) -> list:
    """What a run wrote: losses, and last why it was refused."""
    ended = launch(ranks, train, str(folder), str(out), options)
    assert set(ended) <= {0, -signal.SIGTERM}, ended
    return [json.loads(line) for line in out.read_text().splitlines()]
