"""One rank of a test of bytes: runs steps and prints what it handed to collectives and held.

Usage: mesh_bytes_worker.py MODEL STRATEGY; every rank prints a JSON mapping.
"""

import gc
import json
import sys

import torch
import torch.distributed as dist
from mesh_models import loss_of
from mesh_ranks import join
from mesh_traced import BATCH, LENGTH, PICTURES, TOKENS, cnn, gpt, vgg16
from torch._C._profiler import _EventType
from torch.distributed.tensor import DTensor
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
    if kind == "vgg":
        return torch.randn(PICTURES, 3, 224, 224), torch.randint(0, 16, (PICTURES,))
    return torch.randn(count, 3, 32, 32), torch.randint(0, 16, (count,))


def _allocations(profile):
    """When, where and how many bytes were taken or given back, in order; and when a step began."""
    roots, begins = list(profile.profiler.kineto_results.experimental_event_tree()), 0
    left = list(roots)
    while left:
        event = left.pop()
        left += event.children
        begins = event.start_time_ns if event.name == MEASURED else begins
    return sorted(one for root in roots for one in _of_event(root)), begins


def _of_event(event):
    """Allocations of an op; none of those that a CPU's convolution makes for itself alone."""
    if event.tag == _EventType.Allocation:
        return [(event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size)]
    if event.name.startswith("c10d::"):
        return []  # Gloo copies what it gathers; devices' libraries do not.
    found = sorted(one for child in event.children for one in _of_event(child))
    if not event.name.endswith("convolution"):
        return found
    taken, dropped = {}, set()
    for number, (_, place, size) in enumerate(found):
        if size > 0:
            taken[place] = number
        elif place in taken:
            dropped |= {number, taken.pop(place)}
    return [one for number, one in enumerate(found) if number not in dropped]


def live_bytes(profile, kept):
    """The most bytes that tensors held in the second step, and those still held at its end.

    The profiler does not see what gloo's threads give back last: their buffers are left out.

    Args:
        profile: With memory.
        kept: Places of all storages that there are after the step.
    """
    found, begins = _allocations(profile)
    after, changes = {}, []
    for at, place, size in reversed(found):
        is_given_back = after.get(place, 0 if place in kept else 1) <= 0
        changes.append((at, size if is_given_back and size > 0 else 0, place, size))
        after[place] = size
    held, most, live = 0, 0, {}
    for at, taken, place, size in reversed(changes):
        held += taken - (live.pop(place, 0) if size < 0 else 0)
        if taken:
            live[place] = taken
        most = max(most, held if at >= begins else 0)
    return most, held


def kept_places(model):
    """Where the storages of all tensors are."""
    found = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
    found += [one.grad for one in model.parameters() if one.grad is not None]
    found = [one.to_local() if isinstance(one, DTensor) else one for one in found]
    found = [one for one in found if type(one) in (torch.Tensor, torch.nn.Parameter)]
    return {one.untyped_storage().data_ptr() for one in found}


def one_step(model, optimizer, inputs, targets):
    optimizer.zero_grad()
    forward_backward(model, loss_of, inputs, targets)
    optimizer.step()


def main():
    join()
    kind, strategy = sys.argv[1:]
    here = parse(strategy)
    torch.manual_seed(0)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        model = {"gpt": gpt, "cnn": cnn, "vgg": vgg16}[kind]()
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
        kept = kept_places(model)
    optimizer.zero_grad()
    with Tally() as tally:
        forward_backward(model, loss_of, inputs, targets)
        optimizer.step()
    most, held = live_bytes(profile, kept)
    here = {"rank": layout.current().rank, "live": most, "held": held}
    print("BYTES " + json.dumps({**here, **tally.found}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
