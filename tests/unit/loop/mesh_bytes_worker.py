"""One rank of a test of bytes: runs steps and prints what it handed to collectives and held.

Usage: mesh_bytes_worker.py MODEL STRATEGY; every rank prints a JSON mapping.
"""

import json
import sys

import torch
import torch.distributed as dist
from mesh_models import loss_of
from mesh_traced import BATCH, LENGTH, TOKENS, cnn, gpt
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.loop import forward_backward, layout, parallelize
from paceline.loop.parallel.notation import parse

#: Which argument of a collective of PyTorch is the whole that is counted, by its name.
_WHOLE = {
    "allreduce_": ("all_reduce", 0), "_allgather_base_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1), "send": ("send", 0),
    "allgather_": ("all_gather", 0), "reduce_scatter_": ("reduce_scatter", 1),
}  # fmt: skip


MEASURED = "measured step"


class Tally(TorchDispatchMode):
    """Counts bytes that are handed to collectives."""

    def __init__(self):
        super().__init__()
        self.found = dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "send"), 0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        if func.namespace == "c10d" and name in _WHOLE:
            kind, place = _WHOLE[name]
            tensors = torch.utils._pytree.tree_leaves(args[place])
            self.found[kind] += sum(t.numel() * t.element_size() for t in tensors)
        elif func.namespace == "c10d" and name not in ("recv_", "barrier"):
            raise AssertionError(f"an unknown collective: {func}")
        return func(*args, **(kwargs or {}))


def samples(kind, count):
    if kind == "gpt":
        ids = torch.randint(0, TOKENS, (count, LENGTH + 1))
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    return torch.randn(count, 3, 32, 32), torch.randint(0, 16, (count,))


def live_bytes(profile):
    """The most bytes that tensors held in the second step, and those still held at its end."""
    events = profile.profiler.kineto_results.events()
    begins = next(e.start_ns() for e in events if e.name() == MEASURED)
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held if event.start_ns() >= begins else 0)
    return most, held


def one_step(model, optimizer, inputs, targets):
    optimizer.zero_grad()
    forward_backward(model, loss_of, inputs, targets)
    optimizer.step()


def main():
    dist.init_process_group("gloo")
    kind, strategy = sys.argv[1:]
    here = parse(strategy)
    torch.manual_seed(0)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        model = gpt() if kind == "gpt" else cnn()
        ranks = 1
        for name, count in here.axes:
            ranks *= count if name in ("dp", "fsdp") else 1
        inputs, targets = samples(kind, BATCH // ranks)
        model, optimizer = parallelize(
            model,
            lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True),
            strategy,
            example=inputs[: len(inputs) // here.microbatches],
        )
        one_step(model, optimizer, inputs, targets)
        with torch.profiler.record_function(MEASURED):
            one_step(model, optimizer, inputs, targets)
        optimizer.zero_grad()
    with Tally() as tally:
        forward_backward(model, loss_of, inputs, targets)
        optimizer.step()
    most, held = live_bytes(profile)
    here = {"rank": layout.current().rank, "live": most, "held": held}
    print("BYTES " + json.dumps({**here, **tally.found}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
