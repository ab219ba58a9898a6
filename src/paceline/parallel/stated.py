"""One strategy that the user states, checked and costed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.parallel.cluster import Cluster
from paceline.parallel.data_parallel import data_parallel_step
from paceline.parallel.evaluation import StrategyEvaluation, evaluate_strategies
from paceline.parallel.legality import check_strategy
from paceline.parallel.offload import (
    check_host_memory,
    host_bytes,
    host_of,
    offloaded,
)
from paceline.parallel.replicas import is_replicated, stated_steps
from paceline.parallel.room import MEMORY_CONFIDENCE
from paceline.parallel.search import (
    FoundStrategy,
    evaluated_variant,
    found_replicas,
    found_strategy,
)
from paceline.parallel.split import SplitShape
from paceline.parallel.split.sequence import check_shared
from paceline.parallel.strategy import MeshAxis, Strategy
from paceline.parallel.strategy_table import KINDS, SHARDINGS, Fabric, StrategyTable, Variant
from paceline.parallel.traced_job import TracedJob
from paceline.parallel.training_state import TrainingState
from paceline.predict import Points
from paceline.predict.traits import StepTraits
from paceline.trace.block_names import block_names, layers_of
from paceline.units import format_bytes


def evaluate_stated(job: TracedJob, strategy: Strategy, *, global_batch: int) -> FoundStrategy:
    """Time and memory of one strategy, as `evaluate_batches` has them, at one global batch.

    Raises:
        InvalidInputError: The strategy cannot run there, or has no cost model.
        DoesNotFitError: A rank's memory is too small.
        MissingFactError: The memory of the device, or what its times need, is not known.
    """
    _check_stated(job, strategy, global_batch=global_batch)
    found = _evaluated(job, strategy, [global_batch // strategy.num_parts])
    return _fitting(found, job.cluster.device.name, job.cluster.capacity_bytes)[0]


def evaluate_batches(
    job: TracedJob,
    strategy: Strategy,
    *,
    microbatches: Sequence[int],
    capacity_bytes: float,
    memory_confidence: float = MEMORY_CONFIDENCE,
) -> tuple[FoundStrategy, ...]:
    """One strategy with several microbatch sizes: those that fit, in the order given.

    Replicas are what `predict` says of one device and a scaling curve of many.

    Args:
        job: The training step and its cluster.
        strategy: What is asked for; all its ranks are used.
        microbatches: Items per replica and microbatch.
        capacity_bytes: Memory of one device.
        memory_confidence: Chance at which it must fit.

    Raises:
        InvalidInputError: The strategy cannot run there, or has no cost model.
        DoesNotFitError: None fits.
    """
    _check_stated(job, strategy, global_batch=strategy.num_parts)
    found = _evaluated(job, strategy, microbatches)
    return _fitting(found, job.cluster.device.name, capacity_bytes, memory_confidence)


def as_stated(
    job: TracedJob,
    found: Sequence[FoundStrategy],
    *,
    capacity_bytes: float,
    memory_confidence: float = MEMORY_CONFIDENCE,
) -> list[FoundStrategy]:
    """What a search found, with the figures that each strategy has where it is stated.

    The search knows replicas as blocks, which is coarser than what they are known as elsewhere.
    Those that do not fit with these figures are left out.

    Args:
        job: The training step and its cluster.
        found: By `search_strategies`.
        capacity_bytes: Memory of one device.
        memory_confidence: Chance at which they must fit.
    """
    return [
        stated
        for one in found
        for stated in (
            _evaluated(job, one.strategy, [one.microbatch])
            if is_replicated(one.strategy)
            else [one]
        )
        if stated.needed_bytes(memory_confidence) <= capacity_bytes
    ]


def stated_traits(
    job: TracedJob, strategy: Strategy, microbatches: Sequence[float]
) -> tuple[StepTraits, ...]:
    """What measurements know a rank's microbatches by, one per size."""
    return _variant(job, strategy, microbatches).costs.traits


def _check_stated(job: TracedJob, strategy: Strategy, *, global_batch: int) -> None:
    check_strategy(
        strategy,
        job.cluster,
        num_devices=strategy.num_ranks,
        global_batch=global_batch,
        num_blocks=layers_of(block_names(job.graph)),
    )
    check_shared(job.graph, SplitShape.of(strategy), job.seq, name=str(strategy))


def _evaluated(
    job: TracedJob, strategy: Strategy, microbatches: Sequence[int]
) -> list[FoundStrategy]:
    """The strategy with every microbatch size, whether it fits or not."""
    if is_replicated(strategy) and not job.by_blocks:
        steps = stated_steps(job.replicated(strategy), strategy, microbatches)
        return [found_replicas(strategy, size, steps, row) for row, size in enumerate(microbatches)]
    evaluated = evaluated_steps(job, strategy, microbatches=microbatches)
    return [found_strategy(strategy, size, evaluated, row) for row, size in enumerate(microbatches)]


def evaluated_steps(
    job: TracedJob, strategy: Strategy, *, microbatches: Sequence[float]
) -> StrategyEvaluation:
    """One strategy block by block, with several microbatch sizes, whether they fit or not.

    Args:
        job: The training step and its cluster.
        strategy: What is asked for; all its ranks are used.
        microbatches: Items per replica and microbatch.
    """
    fabric, variant = job.fabric, _variant(job, strategy, microbatches)
    table = _rows(strategy, len(microbatches))
    evaluated = _with_host(strategy, job.cluster, table, variant, fabric)
    if strategy.gradient_sync == "all_reduce":
        return evaluated
    return _met_centrally(evaluated, strategy, variant.costs.state, fabric)


def _with_host(
    strategy: Strategy, cluster: Cluster, table: StrategyTable, variant: Variant, fabric: Fabric
) -> StrategyEvaluation:
    """Every row; with the optimizer on the host where the strategy wants it there."""
    if not strategy.offloads_optimizer:
        return evaluate_strategies(table, [variant], fabric)
    host, sharing = host_of(cluster), min(fabric.devices_per_node, strategy.num_ranks)
    evaluated = evaluate_strategies(table, [variant], fabric, has_optimizer=False)
    check_host_memory(float(host_bytes(evaluated.updated, sharing).max()), host)
    return offloaded(evaluated, sharing, host)


def _variant(job: TracedJob, strategy: Strategy, microbatches: Sequence[float]) -> Variant:
    """The model's blocks as the strategy's ranks run them, at every microbatch size."""
    return evaluated_variant(
        job.graph, job.how(strategy), job.cluster.device_table,
        Points.of(microbatches, seq=job.seq), job.group(strategy), job.calibration,
    )  # fmt: skip


def _met_centrally(
    evaluated: StrategyEvaluation, strategy: Strategy, state: TrainingState, fabric: Fabric
) -> StrategyEvaluation:
    """The same with gradients that meet in one place, where nothing hides them."""
    one_row = np.zeros(len(evaluated.step_s), dtype=np.int64)
    step = data_parallel_step(
        mid_s=evaluated.step_s - evaluated.exposed_s,
        backward_s=0.0,
        gradient_bytes=float(state.reduced.sum()),
        num_ranks=strategy.num_ranks,
        ranks_per_node=fabric.devices_per_node,
        device_link=fabric.device_link.take(one_row),
        node_link=fabric.node_link.take(one_row),
        parameter_bytes=float(state.gathered.sum()),
        gradient_sync=strategy.gradient_sync,
    )
    return replace(evaluated, step_s=step.mid_s, exposed_s=step.exposed_communication_s)


def at_count(strategy: Strategy, count: int) -> Strategy:
    """The strategy on ``count`` devices: more of them mean more data-parallel replicas.

    Raises:
        InvalidInputError: The replicas do not fill the devices.

    >>> str(at_count(Strategy.parse("tp8"), 32))
    'dp4.tp8'
    """
    per_replica = strategy.num_ranks // strategy.size("dp")
    if count % per_replica:
        raise InvalidInputError(
            f"{count} devices are no multiple of the {per_replica} ranks of one replica "
            f"of `{strategy}`",
            hint=f"take {-(-count // per_replica) * per_replica} devices",
        )
    kept = [axis for axis in strategy.mesh if axis.name != "dp"]
    place = next((i for i, axis in enumerate(strategy.mesh) if axis.name == "dp"), None)
    if place is None:
        place = sum(axis.name == "pp" for axis in kept)
    replicas = count // per_replica
    mesh = list(kept)
    if replicas > 1:
        mesh.insert(place, MeshAxis(name="dp", size=replicas))
    num_copies = replicas * strategy.size("cp") * strategy.size("ep")
    sharding = strategy.sharding if num_copies > 1 else "none"
    return replace(strategy, mesh=tuple(mesh), sharding=sharding)


def _rows(strategy: Strategy, num_points: int) -> StrategyTable:
    """The strategy once per microbatch size."""

    def same(value: int) -> np.ndarray:
        return np.full(num_points, value, dtype=np.int64)

    schedule, shards = strategy.schedule, strategy.size("fsdp")
    sharding = "zero3" if shards > 1 else strategy.sharding
    return StrategyTable(
        variant=same(0),
        dp=same(strategy.size("dp") * shards),
        pp=same(strategy.size("pp")),
        chunks=same(schedule.num_chunks),
        kind=same(KINDS.index(schedule.kind)),
        microbatches=same(schedule.num_microbatches),
        point=np.arange(num_points, dtype=np.int64),
        sharding=same(SHARDINGS.index(sharding)),
        shards=same(shards if strategy.size("dp") > 1 and shards > 1 else 0),
    )


def _fitting(
    found: Sequence[FoundStrategy], device: str, capacity_bytes: float,
    confidence: float = MEMORY_CONFIDENCE,
) -> tuple[FoundStrategy, ...]:  # fmt: skip
    needed_bytes = [one.needed_bytes(confidence) for one in found]
    fits = tuple(
        one for one, needed in zip(found, needed_bytes, strict=True) if needed <= capacity_bytes
    )
    if not fits:
        needed, least = min(zip(needed_bytes, found, strict=True), key=lambda pair: pair[0])
        raise does_not_fit(least.strategy, needed, device, capacity_bytes)
    return fits


def does_not_fit(
    strategy: Strategy, memory_bytes: float, device: str, capacity_bytes: float
) -> DoesNotFitError:
    """What to say of a strategy whose ranks need more memory than a device has."""
    need, there = format_bytes(memory_bytes), format_bytes(capacity_bytes)
    return DoesNotFitError(
        f"`{strategy}` needs {need} per device; {device} has {there}",
        hint="split more (`tp`, `pp`, `+zero3`), recompute, or take more microbatches",
    )
