"""Pipelines: 1F1B, interleaved and ZB-H1, and 1F1B over tensor parallel stages."""

import torch
import torch.distributed as dist
from gloo_splits import split_model
from gloo_worker import (
    BATCH,
    SPEC,
    STORAGES,
    Recorder,
    batch_of,
    kept_bytes,
    loss_of,
    make_model,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel


class Part(torch.nn.Module):
    """Some consecutive layers, with the embedding before the first and the head after the last."""

    def __init__(self, model, layers, *, is_first, is_last):
        super().__init__()
        self.spec = model.spec
        self.layers = model.layers[layers]
        if is_first:
            self.embedding, self.position, self.dropout = (
                model.embedding, model.position, model.dropout
            )  # fmt: skip
            self.embed = type(model)._embed
        if is_last:
            self.norm, self.head = model.norm, model.head
        self.is_first, self.is_last = is_first, is_last

    def forward(self, x):
        if self.is_first:
            x = self.embed(self, x, 0)
        for layer in self.layers:
            x = layer(x, None, None)
        return self.head(self.norm(x)) if self.is_last else x


def stages_of(model, numbers, num_stages, group=None):
    """Some virtual stages of the pipeline; the rest of the model is let go by the caller."""
    length = SPEC["layers"] // num_stages
    parts = [
        Part(
            model,
            slice(number * length, (number + 1) * length),
            is_first=number == 0,
            is_last=number == num_stages - 1,
        )
        for number in numbers
    ]
    return [
        PipelineStage(part, number, num_stages, torch.device("cpu"), group=group)
        for part, number in zip(parts, numbers, strict=True)
    ]


def counted(send_operations, block, sent):
    """The stage's own list of sends, noted down with the block before the cut."""

    def wrapper(microbatch):
        operations = send_operations(microbatch)
        sizes = [o.tensor.numel() * o.tensor.element_size() for o in operations]
        sent.extend(["send_recv", size, block] for size in sizes)
        return operations

    return wrapper


def local(loss):
    return loss.detach().to_local() if isinstance(loss, DTensor) else loss.detach()


def run_steps(schedule, stages):
    """Two optimizer steps; loss, sends and tensor calls of the second, and what is kept."""
    sent, parts = [], torch.nn.ModuleList(stage.submod for stage in stages)
    for stage in stages:
        length, number = SPEC["layers"] // stage.num_stages, stage.stage_index
        for name, cut in (("get_fwd_send_ops", number + 1), ("get_bwd_send_ops", number)):
            before = f"layers.{cut * length - 1}"
            setattr(stage, name, counted(getattr(stage, name), before, sent))
    optimizer = torch.optim.Adam(parts.parameters(), lr=1e-3, foreach=False)
    for _ in range(2):
        del sent[:]
        with Recorder() as recorder:
            loss = step(schedule, stages, optimizer)
    issued = list(sent)
    STORAGES.peak = 0
    step(schedule, stages, optimizer)
    dist.broadcast(loss, src=dist.get_world_size() - 1)
    return loss.item(), issued, recorder.calls, kept_bytes(optimizer)


def step(schedule, stages, optimizer):
    """One optimizer step; the mean loss where the last stage is, else zero."""
    optimizer.zero_grad()
    inputs, targets = batch_of(0)
    losses = []
    given = (inputs,) if any(stage.is_first for stage in stages) else ()
    wanted = {"target": targets, "losses": losses} if any(s.is_last for s in stages) else {}
    schedule.step(*given, **wanted, return_outputs=False)
    optimizer.step()
    return torch.stack([local(x) for x in losses]).mean() if losses else torch.zeros(())


def run_1f1b(path, rank, world):
    stages = stages_of(make_model(path), (rank,), world)
    return run_schedule(Schedule1F1B, stages[0], stages)


def run_schedule(kind, played, stages):
    """What a rank answers whose stages exchange nothing but activations."""
    schedule = kind(played, n_microbatches=BATCH, loss_fn=loss_of)
    loss, sent, _, kept = run_steps(schedule, stages)
    return loss, sent, kept, [0]


def run_interleaved(path, rank, world):
    stages = stages_of(make_model(path), (rank, rank + world), 2 * world)
    return run_schedule(ScheduleInterleaved1F1B, stages, stages)


def run_zbh1(path, rank, world):
    stages = stages_of(make_model(path), (rank,), world)
    return run_schedule(ScheduleInterleavedZeroBubble, stages, stages)


def run_pp_tp(path, rank, world):
    """Stages outside, tensor ranks inside."""
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("pp", "tp"))
    split = split_model(make_model(path), mesh["tp"])
    stages = stages_of(split, (rank // 2,), world // 2, mesh["pp"].get_group())
    del split
    schedule = Schedule1F1B(stages[0], n_microbatches=BATCH, loss_fn=loss_of)
    with loss_parallel():
        loss, sent, calls, kept = run_steps(schedule, stages)
    return loss, calls + sent, kept, [0]


MODES = {
    "pp": run_1f1b, "interleaved": run_interleaved, "zbh1": run_zbh1, "pp_tp": run_pp_tp,
}  # fmt: skip
