"""The engine of a row: its job on the devices of one replica, and how many replicas there are."""

from __future__ import annotations

from dataclasses import replace

from paceline.catalog.entities import Catalog
from paceline.model.graph.workload import Workload
from paceline.parallelism.strategy.strategy import Strategy
from paceline.scoring.jobs import Cell
from paceline.scoring.naming.inference_ranks import stages_of
from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.naming.networks import links_of_row
from paceline.scoring.naming.serving import is_loop, profile_of
from paceline.scoring.services.loads import RowLoad
from paceline.simulation.job import Habit, Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.engine_tables import capacity_of, context_of
from paceline.stack.engines import USUAL_LOOP, is_engine
from paceline.values import dataclass

#: Platforms on which a host launches one kernel after the other.
_LAUNCHED = ("cuda", "jetson", "rocm")
#: Of the memory of devices, what weights may take where somebody chooses how many share a model;
#: the rest is for the cache.
_WEIGHTS_FRAC = 0.75
#: Up to which an engine that was told no degree starts on one device: vLLM takes 0.9 of it by
#: default (``gpu_memory_utilization``), of which a twentieth is left to activations and a request.
_STARTS_FRAC = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class RowEngine:
    """What serves a row.

    Attributes:
        job: Of one replica.
        machine: Of one replica.
        num_replicas: Of the row.
        num_stages: Devices that hold layers one after the other, which adds memory and no speed.
    """

    job: Job
    machine: Machine
    num_replicas: int
    num_stages: int = 1


def states_ranks(cell: Cell) -> bool:
    """Whether a row says how its devices share a model."""
    return bool(cell.row.parallelism.strip()) or cell.row.num_devices == 1


def runs_loop(cell: Cell) -> bool:
    """Whether a host that calls modules one by one answers a row, and no engine.

    Devices whose compilers take whole graphs have no such host.
    """
    is_launched = cell.device.generation.platform in _LAUNCHED
    return is_launched and is_loop(cell.row.framework)


def needed_tensor(cell: Cell, weights_bytes: float) -> int:
    """Devices that must share the layers of a model for its weights and a cache to have room.

    One is the default of engines, which nobody changes where they start.
    """
    capacity_bytes = capacity_of(cell.device)
    if is_engine(cell.row.framework) and weights_bytes <= capacity_bytes * _STARTS_FRAC:
        return 1
    usable, degree = capacity_bytes * _WEIGHTS_FRAC, 1
    while weights_bytes / degree > usable and 2 * degree <= cell.row.num_devices:
        degree *= 2
    return degree


def engine_of_row(
    cell: Cell, workload: Workload, catalog: Catalog, asked: RowLoad, weights_bytes: float
) -> RowEngine:
    """What serves a row.

    An engine that is started without degrees takes no more devices than its weights need; whoever
    measures a machine with a harness fills it with replicas.

    Raises:
        UnresolvedRowError: Its degrees and its devices do not agree.
    """
    count, stages = cell.row.num_devices, stages_of(cell.row)
    tensor = cell.reading.split.num_ranks
    if workload.generates and not states_ranks(cell):
        needed = needed_tensor(cell, weights_bytes)
        if runs_loop(cell):
            stages = count = needed
        else:
            tensor = needed
            count = tensor if is_engine(cell.row.framework) else count
    if count % (tensor * stages):
        raise UnresolvedRowError(f"{tensor} devices share the model, and the row has {count}")
    joined = links_of_row(catalog, cell.device, cell.row)
    machine = Machine.of(cell.device, tensor, device_link=joined.links.device)
    return RowEngine(
        job=_job(cell, workload, asked, tensor),
        machine=machine,
        num_replicas=count // (tensor * stages),
        num_stages=stages,
    )


def _job(cell: Cell, workload: Workload, asked: RowLoad, tensor: int) -> Job:
    reading = cell.reading
    strategy = Strategy.parse(f"tp{tensor}" if tensor > 1 else "dp1")
    habits: tuple[Habit, ...] = ("whole",) if reading.split.whole_experts else ()
    job = Job(
        workload=workload,
        configuration=reading.configuration,
        strategy=strategy,
        seq=reading.seq or workload.default_seq,
        profile=reading.framework,
        habits=habits if tensor > 1 else (),
    )
    if not workload.generates:
        return replace(job, seq=cell.reading.seq or workload.default_seq)
    context = context_of(asked.load.prompt.mean + asked.load.output.mean / 2.0)
    if runs_loop(cell) and not workload.encodes:
        return replace(job, seq=None, prompt_tokens=context, output_tokens=1, profile=USUAL_LOOP)
    return replace(
        job,
        configuration=replace(reading.configuration, is_served=True, attention="flash"),
        seq=None,
        prompt_tokens=context,
        output_tokens=1,
        profile=profile_of(cell.row.framework),
    )
