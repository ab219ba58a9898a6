"""Processes, their device, and the mesh that a strategy lays over them."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from ..ending import leave_in_order
from ..errors import LoopError
from ..layout import Layout
from .notation import size

#: Axis of one rank along which a replica "splits" what it keeps whole.
WHOLE = "whole"


def device_of(model, device=None):
    """The device of this process: the one given, its own GPU, or where the model is."""
    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    return next((one.device for one in model.parameters()), torch.device("cpu"))


def start_group(device):
    """Join the processes that torchrun started; nothing where there is one.

    Returns:
        How many there are.
    """
    was_joined = dist.is_initialized()
    if not was_joined:
        if int(os.environ.get("WORLD_SIZE", 1)) == 1:
            return 1
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    leave_in_order(owns_group=not was_joined)
    return dist.get_world_size()


def make_mesh(strategy, device, ranks):
    """The mesh of a strategy; None on one device.

    Raises:
        LoopError: There are not as many processes as it has ranks.
    """
    wanted = 1
    for _, count in strategy.axes:
        wanted *= count
    if wanted != ranks:
        raise LoopError(
            "`%s` has %d ranks, and %d processes run" % (strategy.text, wanted, ranks),
            "start it with `torchrun --nproc-per-node %d`" % wanted,
        )
    if not strategy.axes:
        return None
    axes = list(strategy.axes)
    if replicates_shards(strategy):
        axes.insert([name for name, _ in axes].index("dp") + 1, (WHOLE, 1))
    names, sizes = zip(*axes)
    return init_device_mesh(device.type, sizes, mesh_dim_names=names)


def replicates_shards(strategy):
    """Whether replicas hold parts of weights, which only sharding over one rank can reduce.

    `DistributedDataParallel` takes DTensors apart, and a save would then know the parts alone.
    """
    names = {name for name, _ in strategy.axes}
    return {"dp", "tp"} <= names and "fsdp" not in names and strategy.sharding == "none"


def layout_of(strategy, mesh):
    """Which share of the samples this process reads: ranks along ``tp`` and ``pp`` read alike."""
    if mesh is None:
        return Layout(0, 1, 0, 1)
    share = 0
    for name in [name for name, _ in strategy.axes if name in ("dp", "fsdp")]:
        share = share * size(strategy, name) + mesh[name].get_local_rank()
    shares = size(strategy, "dp") * size(strategy, "fsdp")
    return Layout(dist.get_rank(), dist.get_world_size(), share, shares)


def parts_of(strategy):
    """How ranks split weights and what belongs to them, as text; nothing where each holds all."""
    found = ["%s%d" % axis for axis in strategy.axes if axis[0] != "dp" and axis[1] > 1]
    return ".".join(found + [one for one in [strategy.sharding] if one != "none"])


@torch.no_grad()
def broadcast(model):
    """Give every process the weights and buffers of the first.

    Shards of models that were built with different seeds would train as one model that never was.
    """
    for one in list(model.parameters()) + list(model.buffers()):
        dist.broadcast(one.data, src=0)
