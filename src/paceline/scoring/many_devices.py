"""The step of a job on several devices, from the step of one."""

from __future__ import annotations

import math
import re

from paceline.parallel import LinkTable, data_parallel_step
from paceline.parallel.sharded_memory import peak_moments, saved_bytes
from paceline.parallel.spread import sharing_log_sigma
from paceline.predict import Points
from paceline.scoring.assumed import note_of, widening
from paceline.scoring.groups import Cell, Group, JobStep
from paceline.scoring.models import UnresolvedRowError
from paceline.scoring.networks import links_of_row
from paceline.scoring.split_inference import shared_step
from paceline.scoring.split_training import degrees_of, recipe_of, split_step
from paceline.scoring.stated_degrees import are_independent, sharding_of, stated_degrees
from paceline.scoring.tables import fitting_lines
from paceline.trace.block_names import block_names, layers_of
from paceline.trace.costs import LoweredPass

_REDUCES_IN_FP32 = re.compile(r"mp_mode=DEFAULT")


def scale_out(cell: Cell, group: Group, place: tuple[int, int]) -> JobStep:
    """One step of the whole job.

    Raises:
        UnresolvedRowError: How its devices share the work, or what joins them, is not known.
        PacelineError: The model cannot be shared so, or a fact is missing that this needs.
    """
    alone_s = _alone_s(cell, group, place)
    if cell.row.num_devices <= 1:
        if stated_degrees(cell.row.parallelism).splits_model:
            raise UnresolvedRowError("its devices share the model, and it states one or no number")
        return JobStep(step_s=alone_s)
    if cell.job.task == "infer":
        return shared_step(cell, group, alone_s, place)
    if are_independent(cell.row.parallelism):
        return JobStep(step_s=alone_s, note="its devices exchange no gradients")
    degrees = degrees_of(cell.row)
    if degrees.splits_model or recipe_of(cell.row, cell.device.name).is_megatron:
        return split_step(cell, group, degrees)
    return _replicas(cell, group, place, alone_s)


def _alone_s(cell: Cell, group: Group, place: tuple[int, int]) -> float:
    """Seconds of a device's own part of a step.

    Parameters are updated once a step, by a rank that shards them only its own.
    """
    prediction, num_devices = group.prediction, cell.row.num_devices
    is_whole = num_devices <= 1 or sharding_of(cell.row.parallelism) == "none"
    mid_s, update_s = float(prediction.mid_s[place]), float(prediction.update_s[place])
    kept_s = update_s if is_whole else update_s / num_devices
    return cell.job.grad_accumulation * max(mid_s - update_s, 0.0) + min(kept_s, mid_s)


def _replicas(cell: Cell, group: Group, place: tuple[int, int], alone_s: float) -> JobStep:
    """Every device takes items of its own.

    Microbatches before the last run without communication, unless parameters are gathered for
    each.
    """
    sharding = sharding_of(cell.row.parallelism)
    joined = links_of_row(group.catalog, cell.device, cell.row)
    exchanges = cell.job.grad_accumulation if sharding == "zero3" else 1.0
    device_link = LinkTable.from_links([joined.links.device])
    step = data_parallel_step(
        mid_s=alone_s / exchanges,
        backward_s=float(group.prediction.backward_s[place]),
        gradient_bytes=group.lowered.gradient_bytes * _widening(cell),
        parameter_bytes=group.lowered.parameter_bytes,
        num_ranks=cell.row.num_devices,
        ranks_per_node=joined.devices_per_node,
        device_link=device_link,
        node_link=LinkTable.from_links([joined.links.node]),
        sharding=sharding,
    )
    total_s = max(exchanges * float(step.mid_s[0]), _hooked_s(cell, group, place, sharding))
    if not math.isfinite(total_s):
        raise UnresolvedRowError("the link between its devices or nodes is unknown")
    sharing = min(cell.row.num_devices, joined.devices_per_node)
    shared = float(sharing_log_sigma(device_link, sharing)[0])
    return JobStep(
        step_s=total_s,
        log_sigma=math.hypot(shared, widening(["network"]) if joined.is_assumed else 0.0),
        note=note_of(["network"]) if joined.is_assumed else "",
    )


def _hooked_s(cell: Cell, group: Group, place: tuple[int, int], sharding: str) -> float:
    """How long the host takes that gathers each block by itself; nothing where that is not known.

    ``data/sharding_hosts.csv`` has what the hooks of a block take beside its dispatch.
    """
    asked = {"framework": cell.row.framework, "task": cell.job.task}
    known = next(fitting_lines("sharding_hosts.csv", asked), None)
    if known is None or sharding != "zero3":
        return 0.0
    blocks = layers_of(block_names(group.workload.passes[0].graph))
    one_s = float(group.prediction.host_s[place]) + blocks * float(known["block_s"])
    return cell.job.grad_accumulation * one_s


def _widening(cell: Cell) -> float:
    """How much wider than their own format gradients are reduced.

    FSDP in Composer's ``DEFAULT`` mixed precision reduces in FP32 what was computed in 16 bits
    (docs.mosaicml.com, Composer, FSDP: ``mixed_precision``).
    """
    is_narrow = cell.job.configuration.training_format == "pure"
    return 2.0 if is_narrow and _REDUCES_IN_FP32.search(cell.row.flags) else 1.0


def rank_memory_frac(cell: Cell, lowered: LoweredPass, seq: float) -> float:
    """Peak of a rank that shards, over that of a device that keeps everything."""
    num_ranks = cell.row.num_devices
    if num_ranks <= 1 or cell.job.task == "infer":
        return 1.0
    points = Points.of([cell.job.batch_per_gpu], seq=seq)
    moments = peak_moments(lowered, points)
    saved = saved_bytes(moments, num_ranks, sharding_of(cell.row.parallelism))
    return 1.0 - float(saved[0] / moments.whole.max())


def state_frac(cell: Cell) -> float:
    """Share of the optimizer's state that one rank keeps."""
    ranks = cell.row.num_devices
    return 1.0 if sharding_of(cell.row.parallelism) == "none" else 1.0 / ranks
