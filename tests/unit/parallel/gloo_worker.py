"""One rank of a real PyTorch job on CPU processes; prints what it sent, kept and computed.

python gloo_worker.py MODE RANK WORLD PORT MODEL_FILE
"""

import importlib.util
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

SPEC = {"layers": 4, "hidden": 128, "heads": 4, "vocab": 512, "positions": 64, "ffn": 512}
BATCH, SEQ, BUCKET_MB = 4, 32, 1
NAMES = {
    "allreduce_": "all_reduce", "all_reduce": "all_reduce",
    "_allgather_base_": "all_gather", "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce_": "all_reduce",
}  # fmt: skip


class Recorder(TorchDispatchMode):
    """Bytes of the whole message of every collective that this thread issues."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = NAMES.get(func._opname if hasattr(func, "_opname") else func.__name__.split(".")[0])
        if name and "c10d" in func.namespace:
            tensors = [t for t in torch.utils._pytree.tree_leaves(args) if torch.is_tensor(t)]
            sizes = [t.numel() * t.element_size() for t in tensors]
            whole = max(sizes)
            if name == "all_gather" and func.namespace == "_c10d_functional":
                whole = sizes[0] * args[1]
            self.calls.append([name, whole])
        return func(*args, **(kwargs or {}))


def make_model(path):
    spec = importlib.util.spec_from_file_location("models", path)
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    torch.manual_seed(0)
    return models.transformer(**SPEC)


def batch_of(rank, count=BATCH):
    generator = torch.Generator().manual_seed(100 + rank)
    tokens = torch.randint(0, SPEC["vocab"], (count, SEQ + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def reference_loss(path, ranks):
    """The same two steps in one process on all ranks' data."""
    model = make_model(path)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    parts = [batch_of(rank) for rank in ranks]
    inputs, targets = (torch.cat(x) for x in zip(*parts, strict=True))
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
    return loss.item()


def local_bytes(tensors):
    from torch.distributed.tensor import DTensor

    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in local)


def train(model, rank):
    """Two steps; the calls and storages of the second."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs, targets = batch_of(rank)
    for _ in range(2):
        optimizer.zero_grad()
        recorder = Recorder()
        with recorder:
            loss = loss_of(model(inputs), targets)
            loss.backward()
        optimizer.step()
    parameters = list(model.parameters())
    states = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    kept = {
        "parameters": local_bytes(parameters),
        "gradients": local_bytes([p.grad for p in parameters]),
        "states": local_bytes([s for s in states if s.dim()]),
    }
    return loss.item(), recorder.calls, kept


def run_ddp(path, rank, world):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    from torch.nn.parallel import DistributedDataParallel

    sent = []

    def hook(group, bucket):
        sent.append(["all_reduce", bucket.buffer().numel() * bucket.buffer().element_size()])
        return allreduce_hook(group, bucket)

    model = DistributedDataParallel(make_model(path), bucket_cap_mb=BUCKET_MB)
    model.register_comm_hook(dist.group.WORLD, hook)
    model.register_forward_pre_hook(lambda *_: sent.clear())
    loss, _, kept = train(model, rank)
    return loss, sent, kept, list(range(world))


def run_fsdp(path, rank, world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = make_model(path), init_device_mesh("cpu", (world,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return (*train(model, rank), list(range(world)))


def run_tp(path, rank, world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        parallelize_module,
    )

    model, mesh = make_model(path), init_device_mesh("cpu", (world,))
    whole = Replicate()
    for layer in model.layers:
        local = dict(layer.attention.spec)
        local["heads"] //= world
        local["kv_heads"] //= world
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
    return (*train(model, 0), [0])


class FirstStage(torch.nn.Module):
    def __init__(self, model, num_layers):
        super().__init__()
        self.model, self.layers = model, model.layers[:num_layers]

    def forward(self, tokens):
        x = self.model._embed(tokens, 0)
        for layer in self.layers:
            x = layer(x, None, None)
        return x


class LastStage(torch.nn.Module):
    def __init__(self, model, num_layers):
        super().__init__()
        self.layers, self.norm, self.head = model.layers[num_layers:], model.norm, model.head

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, None, None)
        return self.head(self.norm(x))


def counted(send_operations, sent):
    """The stage's own list of sends, noted down."""

    def wrapper(microbatch):
        operations = send_operations(microbatch)
        sent.extend(["send_recv", o.tensor.numel() * o.tensor.element_size()] for o in operations)
        return operations

    return wrapper


def run_pipeline(path, rank, world):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    model, sent = make_model(path), []
    half = SPEC["layers"] // 2
    part = FirstStage(model, half) if rank == 0 else LastStage(model, half)
    inputs, targets = batch_of(0)
    hidden = torch.zeros(1, SEQ, SPEC["hidden"], requires_grad=True)
    example = (inputs[:1],) if rank == 0 else (hidden,)
    produced = hidden if rank == 0 else torch.zeros(1, SEQ, SPEC["vocab"], requires_grad=True)
    stage = PipelineStage(
        part, rank, world, torch.device("cpu"), input_args=example, output_args=(produced,)
    )
    schedule = Schedule1F1B(stage, n_microbatches=BATCH, loss_fn=loss_of)
    for name in ("get_fwd_send_ops", "get_bwd_send_ops"):
        setattr(stage, name, counted(getattr(stage, name), sent))
    optimizer = torch.optim.Adam(part.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        losses = []
        del sent[:]
        if rank == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=losses)
        optimizer.step()
    loss = torch.stack(losses).mean() if losses else torch.zeros(())
    dist.broadcast(loss, src=world - 1)
    return loss.item(), sent, {}, [0]


def main():
    mode, rank, world, port, path = sys.argv[1:]
    rank, world = int(rank), int(world)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    modes = {"ddp": run_ddp, "fsdp": run_fsdp, "tp": run_tp, "pp": run_pipeline}
    loss, calls, kept, ranks = modes[mode](path, rank, world)
    if mode in ("ddp", "fsdp"):
        mean = torch.tensor(loss)
        dist.all_reduce(mean)
        loss = mean.item() / world
    expected = reference_loss(path, ranks) if rank == 0 else None
    print(json.dumps({"loss": loss, "expected": expected, "calls": calls, "kept": kept}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
