"""One rank of a real PyTorch job on CPU processes; prints what it sent, kept and computed.

python gloo_worker.py MODE RANK WORLD MEETING MODEL_FILE

Data and sharded parallel stand here, tensor parallel in ``gloo_splits``, pipelines in
``gloo_stages``, expert parallel in ``gloo_experts``, context parallel in ``gloo_contexts``.
"""

import importlib.util
import json
import sys

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

SPEC = {"layers": 4, "hidden": 128, "heads": 4, "vocab": 512, "positions": 64, "ffn": 512}
BATCH, SEQ, BUCKET_MB = 4, 32, 1
NAMES = {
    "allreduce_": "all_reduce", "all_reduce": "all_reduce",
    "_allgather_base_": "all_gather", "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce_": "all_reduce", "all_to_all_single": "all_to_all",
}  # fmt: skip


class Recorder(TorchDispatchMode):
    """Bytes of the whole message of every collective that this thread issues.

    Distributed tensors run their own dispatch first, so that what it issues is seen too.
    """

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        name = NAMES.get(func._opname if hasattr(func, "_opname") else func.__name__.split(".")[0])
        if name and "c10d" in func.namespace:
            tensors = [t for t in torch.utils._pytree.tree_leaves(args) if torch.is_tensor(t)]
            sizes = [t.numel() * t.element_size() for t in tensors]
            whole = max(sizes)
            if name == "all_gather" and func.namespace == "_c10d_functional":
                whole = sizes[0] * args[1]
            self.calls.append([name, whole])
        return func(*args, **(kwargs or {}))


class Storages(TorchDispatchMode):
    """Bytes of all storages that some op has made and that are still alive, and their peak."""

    def __init__(self):
        super().__init__()
        self.alive, self.peak = {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        made = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(made):
            if torch.is_tensor(tensor) and tensor.device.type == "cpu":
                storage = tensor.untyped_storage()
                self.alive[StorageWeakRef(storage)] = storage.nbytes()
        self.alive = {ref: bytes_behind(ref) for ref in self.alive if not ref.expired()}
        self.peak = max(self.peak, sum(self.alive.values()))
        return made


def bytes_behind(reference):
    """Bytes of a storage as it is now: sharded parameters free theirs by resizing it to nothing."""
    storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
    return 0 if storage is None else storage.nbytes()


STORAGES = Storages()


def make_model(path, numbers=SPEC):
    spec = importlib.util.spec_from_file_location("models", path)
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    torch.manual_seed(0)
    return models.transformer(**numbers)


def batch_of(rank, count=BATCH, length=SEQ):
    generator = torch.Generator().manual_seed(100 + rank)
    tokens = torch.randint(0, SPEC["vocab"], (count, length + 1), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def reference_loss(path, ranks):
    """The same two steps in one process on all ranks' data."""
    parts = [batch_of(rank) for rank in ranks]
    inputs, targets = (torch.cat(x) for x in zip(*parts, strict=True))
    return loss_of_two_steps(make_model(path), lambda model: loss_of(model(inputs), targets))


def loss_of_two_steps(model, loss_in):
    """Loss of the second of two steps in one process."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_in(model)
        loss.backward()
        optimizer.step()
    return loss.item()


def local_bytes(tensors):
    local = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return sum(t.numel() * t.element_size() for t in local)


#: Gloo's thread may let go of a buffer a moment late: the least of so many steps is what is needed.
NUM_PEAKS = 3


def train(model, rank):
    """Two steps on a rank's own batch."""
    return train_on(model, *batch_of(rank))


def train_on(model, inputs, targets):
    """Two steps; the calls of the second and what later ones keep, without the recorder."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    for _ in range(2):
        with Recorder() as recorder:
            loss = step(model, optimizer, inputs, targets)
    shown = loss.item()
    del loss
    STORAGES.peak = min(peak_of(model, optimizer, inputs, targets) for _ in range(NUM_PEAKS))
    return shown, recorder.calls, kept_bytes(optimizer)


def peak_of(model, optimizer, inputs, targets):
    STORAGES.peak = 0
    step(model, optimizer, inputs, targets)
    return STORAGES.peak


def step(model, optimizer, inputs, targets):
    optimizer.zero_grad()
    output = model(inputs)
    loss = loss_of(output, targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


def kept_bytes(optimizer):
    """Bytes that a rank keeps from step to step."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    return {
        "parameters": local_bytes(parameters),
        "gradients": local_bytes([p.grad for p in parameters]),
        "states": local_bytes([s for s in states if s.dim()]),
        "peak": STORAGES.peak,
    }


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

    model = make_model(path)
    shard(model, init_device_mesh("cpu", (world,)))
    return (*train(model, rank), list(range(world)))


def run_hsdp(path, rank, world):
    """Two ranks split everything, and pairs of them are replicas."""
    from torch.distributed.device_mesh import init_device_mesh

    model = make_model(path)
    shard(model, init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "fsdp")))
    return (*train(model, rank), list(range(world)))


def run_fsdp_rounds(path, rank, world, holds_gradients=False):
    """Two microbatches a step; gradients of the first are reduced, or kept whole until the last."""
    from torch.distributed.device_mesh import init_device_mesh

    model = make_model(path)
    shard(model, init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    inputs, targets = batch_of(rank)

    def two_microbatches():
        optimizer.zero_grad()
        for is_last in (False, True):
            model.set_requires_gradient_sync(is_last or not holds_gradients)
            loss = loss_of(model(inputs), targets)
            loss.backward()
        STORAGES.before_update = STORAGES.peak
        optimizer.step()
        return loss.item()

    for _ in range(2):
        loss = two_microbatches()
    peaks = []
    for _ in range(NUM_PEAKS):
        STORAGES.peak = 0
        two_microbatches()
        peaks.append(STORAGES.before_update)
    STORAGES.peak = min(peaks)
    return loss, [], kept_bytes(optimizer), list(range(world))


def run_fsdp_held_rounds(path, rank, world):
    """As accelerate accumulates, under ``no_sync``."""
    return run_fsdp_rounds(path, rank, world, holds_gradients=True)


def shard(model, mesh):
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def main():
    import gloo_contexts
    import gloo_experts
    import gloo_splits
    import gloo_stages

    mode, rank, world, met, path = sys.argv[1:]
    rank, world = int(rank), int(world)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", met, rank=rank, world_size=world)
    modes = {
        "ddp": run_ddp, "fsdp": run_fsdp, "hsdp": run_hsdp, "fsdp_rounds": run_fsdp_rounds,
        "fsdp_held_rounds": run_fsdp_held_rounds,
    }  # fmt: skip
    modes |= {**gloo_splits.MODES, **gloo_stages.MODES}
    modes |= {**gloo_experts.MODES, **gloo_contexts.MODES}
    with STORAGES:
        loss, calls, kept, parts = modes[mode](path, rank, world)
    if len(parts) > 1:
        mean = torch.tensor(loss)
        dist.all_reduce(mean)
        loss = mean.item() / world
    references = {**gloo_experts.REFERENCES, **gloo_contexts.REFERENCES}
    reference = references.get(mode, reference_loss)
    expected = reference(path, parts) if rank == 0 else None
    print(json.dumps({"loss": loss, "expected": expected, "calls": calls, "kept": kept}))
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.modules["gloo_worker"] = sys.modules["__main__"]
    main()
