"""Tensor parallel, alone and under data parallel: column and row pairs, and a split vocabulary."""

from gloo_worker import BUCKET_MB, make_model, train
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel


def split_layer(layer, mesh):
    """Megatron's pairs: heads and the inner features, each with a reduction at both ends."""
    whole = Replicate()
    local = dict(layer.attention.spec)
    local["heads"] //= mesh.size()
    local["kv_heads"] //= mesh.size()
    layer.attention.spec = local
    plan = {
        "attention": PrepareModuleInput(
            input_layouts=(whole, None, None), desired_input_layouts=(whole, None, None)
        ),
        "ffn": PrepareModuleInput(input_layouts=(whole,), desired_input_layouts=(whole,)),
        "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(),
        "attention.v": ColwiseParallel(), "attention.o": RowwiseParallel(),
        "ffn.up": ColwiseParallel(), "ffn.down": RowwiseParallel(),
    }  # fmt: skip
    parallelize_module(layer, mesh, plan)


def split_head(model, mesh):
    """The vocabulary of the head, so that the loss meets split logits."""
    split = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    parallelize_module(model, mesh, {"head": split})


def split_model(model, mesh):
    for layer in model.layers:
        split_layer(layer, mesh)
    split_head(model, mesh)
    return model


def run_tp(path, rank, world):
    mesh = init_device_mesh("cpu", (world,))
    model = split_model(make_model(path), mesh)
    with loss_parallel():
        return (*train(model, 0), [0])


def run_ddp_tp(path, rank, world):
    """Replicas outside, tensor ranks inside."""
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    model = split_model(make_model(path), mesh["tp"])
    model = DistributedDataParallel(model, device_mesh=mesh["dp"], bucket_cap_mb=BUCKET_MB)
    model.register_comm_hook(mesh["dp"].get_group(), allreduce_hook)
    with loss_parallel():
        return (*train(model, rank // 2), list(range(world // 2)))


MODES = {"tp": run_tp, "ddp_tp": run_ddp_tp}
