"""One rank of a test of `parallelize`: trains each case beside one process on all samples.

Usage: mesh_worker.py CASES, a JSON list of (model, optimizer, strategy, dtype, steps). Rank 0
prints a JSON list of the largest difference of the loss over the steps, or of why it was refused.
"""

import copy
import json
import sys

import torch
import torch.distributed as dist
from mesh_models import CNN, GPT, adapted, headed, late, loss_of, samples
from mesh_ranks import join

from paceline.loop import clip_gradients, forward_backward, layout, mean_loss, parallelize
from paceline.loop.errors import LoopError
from paceline.loop.parallel.notation import parse, size

GLOBAL_BATCH = 16
CLIPPED_NORM = 0.05
OPTIMIZERS = {
    "clipped": lambda model: torch.optim.SGD(model.parameters(), lr=0.5),
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adamw": lambda model: torch.optim.AdamW(
        model.parameters(), lr=3e-3, weight_decay=0.1, foreach=True
    ),
}
MODELS = {
    "cnn": CNN, "gpt": GPT, "tied": lambda: GPT(is_tied=True), "headed": headed, "late": late,
    "adapted": adapted,
}  # fmt: skip


def batches(kind, dtype, steps):
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        inputs, targets = samples(kind, GLOBAL_BATCH, generator)
        yield (inputs.to(dtype) if inputs.is_floating_point() else inputs), targets


def alone(model, optimizer, kind, dtype, steps, is_clipped):
    losses = []
    for inputs, targets in batches(kind, dtype, steps):
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        if is_clipped:
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIPPED_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


def together(model, optimizer, kind, dtype, steps, is_clipped):
    here, losses = layout.current(), []
    for inputs, targets in batches(kind, dtype, steps):
        mine = slice(here.data_rank, None, here.data_ranks)
        optimizer.zero_grad()
        loss = forward_backward(model, loss_of, inputs[mine], targets[mine])
        if is_clipped:
            clip_gradients(model, CLIPPED_NORM)
        optimizer.step()
        losses.append(mean_loss(model, loss))
    return losses


def difference(kind, optimizer, strategy, dtype, steps):
    torch.manual_seed(3)
    model = MODELS[kind]().to(dtype)
    wanted = copy.deepcopy(model)
    if dist.get_rank():
        # The first process's weights count, whatever the others began with.
        for weight in model.parameters():
            torch.nn.init.normal_(weight)
    inputs, _ = next(batches(kind, dtype, 1))
    read = parse(strategy)
    pieces = size(read, "dp") * size(read, "fsdp") * read.microbatches
    example = inputs[: GLOBAL_BATCH // pieces]
    model, own = parallelize(model, OPTIMIZERS[optimizer], strategy, example=example)
    how = (kind, dtype, steps, optimizer == "clipped")
    expected = alone(wanted, OPTIMIZERS[optimizer](wanted), *how)
    found = together(model, own, *how)
    return max(abs(a - b) for a, b in zip(expected, found, strict=True))


def main():
    join()
    answers = []
    for kind, optimizer, strategy, dtype, steps in json.loads(sys.argv[1]):
        try:
            answers.append(difference(kind, optimizer, strategy, getattr(torch, dtype), steps))
        except LoopError as error:
            answers.append(str(error))
    if dist.get_rank() == 0:
        print("ANSWERS " + json.dumps(answers), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
