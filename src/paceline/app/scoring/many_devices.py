"""The step of a job on several devices, from the step of one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from paceline.app.scoring.groups import Cell, Group
from paceline.app.scoring.models import UnresolvedRowError
from paceline.app.scoring.rows import Row
from paceline.catalog import Catalog, Device, Offer, OfferLinks, Source, offer_links
from paceline.parallel import LinkTable, Sharding, data_parallel_step
from paceline.parallel.sharded_memory import peak_moments, saved_bytes
from paceline.predict import Points
from paceline.trace.costs import LoweredPass

_OTHER_DEGREES = re.compile(
    r"\b(tp|pp|cp|ep|tensor_parallel|pipeline_parallel)=([2-9]|\d{2,})", re.I
)
_SHARDED = re.compile(r"fsdp|full_shard|zero-?3", re.IGNORECASE)
_HALF_SHARDED = re.compile(r"shard_grad_op|zero", re.IGNORECASE)
#: Cards of a node's network and their rate in bits (links inside a node are stated in bytes), and
#: cards that carry no gradients.
_NETWORK = re.compile(r"(?:(\d+) ?x [^+,]*?)?\b(\d+(?:\.\d+)?) ?Gb(?:it)?/s", re.IGNORECASE)
_BYTES = re.compile(r"\d ?GB ?/ ?s")
_REDUCES_IN_FP32 = re.compile(r"mp_mode=DEFAULT")
_OTHER_CARDS = re.compile(r"^ *(storage|management)(?!&compute)", re.IGNORECASE)
_FABRIC = re.compile(r"nv-?link|nv-?switch|nvl\d+|xgmi|infinity", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """One step of a whole job.

    Attributes:
        step_s: Its time.
    """

    step_s: float


def scale_out(cell: Cell, group: Group, place: tuple[int, int]) -> JobStep:
    """One step of the whole job.

    Parameters are updated once a step, by a rank that shards them only its own. Microbatches
    before the last run without communication, unless parameters are gathered for each.

    Raises:
        UnresolvedRowError: How its devices share the work, or what joins them, is not known.
    """
    prediction, lowered = group.prediction, group.lowered
    num_devices, rounds = int(cell.row.num_gpus or 1), cell.job.grad_accumulation
    sharding = _sharding(cell.row.parallelism) if num_devices > 1 else "none"
    mid_s, update_s = float(prediction.mid_s[place]), float(prediction.update_s[place])
    kept_s = update_s if sharding == "none" else update_s / num_devices
    alone_s = rounds * max(mid_s - update_s, 0.0) + min(kept_s, mid_s)
    if num_devices <= 1:
        return JobStep(step_s=alone_s)
    if cell.job.task == "infer":
        return _inference(cell.row, alone_s)
    if match := _OTHER_DEGREES.search(cell.row.parallelism):
        raise UnresolvedRowError(
            f"{match.group(0)} in its parallelism is not predicted from a published row"
        )
    num_nodes = max(int(cell.row.num_nodes or 1), 1)
    links = _links(group.catalog, cell.device, cell.row, math.ceil(num_devices / num_nodes))
    exchanges = rounds if sharding == "zero3" else 1.0
    step = data_parallel_step(
        mid_s=alone_s / exchanges,
        backward_s=float(prediction.backward_s[place]),
        gradient_bytes=lowered.gradient_bytes * _widening(cell),
        parameter_bytes=lowered.parameter_bytes,
        num_ranks=num_devices,
        ranks_per_node=math.ceil(num_devices / num_nodes),
        device_link=LinkTable.from_links([links.device]),
        node_link=LinkTable.from_links([links.node]),
        sharding=sharding,
    )
    total_s = exchanges * float(step.mid_s[0])
    if not math.isfinite(total_s):
        raise UnresolvedRowError("the link between its devices or nodes is unknown")
    return JobStep(step_s=total_s)


def _widening(cell: Cell) -> float:
    """How much wider than their own format gradients are reduced.

    FSDP in Composer's ``DEFAULT`` mixed precision reduces in FP32 what was computed in 16 bits
    (docs.mosaicml.com, Composer, FSDP: ``mixed_precision``).
    """
    is_narrow = cell.job.configuration.training_format == "pure"
    return 2.0 if is_narrow and _REDUCES_IN_FP32.search(cell.row.flags) else 1.0


def _inference(row: Row, alone_s: float) -> JobStep:
    """Replicas do not talk; anything else splits the model."""
    if row.parallelism.lower() in ("", "none") or row.parallelism.lower().startswith("dp"):
        return JobStep(step_s=alone_s)
    raise UnresolvedRowError(
        f"the parallelism `{row.parallelism}` is not predicted from a published row"
    )


def rank_memory_frac(cell: Cell, lowered: LoweredPass, seq: float) -> float:
    """Peak of a rank that shards, over that of a device that keeps everything."""
    num_ranks = int(cell.row.num_gpus or 1)
    if num_ranks <= 1 or cell.job.task == "infer":
        return 1.0
    points = Points(batch=np.array([cell.job.batch_per_gpu]), seq=np.array([seq]))
    moments = peak_moments(lowered, points)
    saved = saved_bytes(moments, num_ranks, _sharding(cell.row.parallelism))
    return 1.0 - float(saved[0] / moments.whole.max())


def state_frac(cell: Cell) -> float:
    """Share of the optimizer's state that one rank keeps."""
    ranks = max(cell.row.num_gpus or 1.0, 1.0)
    return 1.0 if _sharding(cell.row.parallelism) == "none" else 1.0 / ranks


def _sharding(parallelism: str) -> Sharding:
    if "SHARD_GRAD_OP" in parallelism:
        return "zero2"
    if _SHARDED.search(parallelism):
        return "zero3"
    return "zero1" if _HALF_SHARDED.search(parallelism) else "none"


def _links(catalog: Catalog, device: Device, row: Row, per_node: int) -> OfferLinks:
    """Links of a machine such as the row describes."""
    fabric = bool(_FABRIC.search(row.interconnect)) or "SXM" in device.form_factor
    machine = Offer(
        name=row.gpu,
        cloud="published row",
        instance_type="",
        device_name=device.name,
        accelerator=row.gpu,
        num_devices=per_node,
        num_vcpus=None,
        host_memory_bytes=None,
        interconnect="nvlink" if fabric and device.fabric else "pcie",
        network_bytes_per_s=_network_bytes_per_s(row.interconnect),
        has_rdma=True,
        usd_per_hour=None,
        spot_usd_per_hour=None,
        region="",
        priced_on=None,
        spot_on=None,
        interruption_frac_per_month=None,
        is_retired=False,
        source=Source(text="the scored table"),
    )
    return offer_links(catalog, machine)


def _network_bytes_per_s(interconnect: str) -> float | None:
    """What a row says of the network between its nodes; None where it says nothing.

    >>> _network_bytes_per_s("NVLink/NVSwitch + RoCE 1600 Gb/s"), _network_bytes_per_s("600GB/s")
    (200000000000.0, None)
    >>> _network_bytes_per_s("Storage: 2x CX-6 IB HDR 200Gb/s, Compute: 8x CX-6 IB HDR 200Gb/s")
    200000000000.0
    """
    parts = [part for part in re.split(r"[+,]", interconnect) if not _OTHER_CARDS.match(part)]
    found = [_NETWORK.search(part) for part in parts if not _BYTES.search(part)]
    rates = [float(one[1] or 1) * float(one[2]) * 1e9 / 8 for one in found if one]
    return max(rates, default=None)
