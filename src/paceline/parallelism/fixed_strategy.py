"""One strategy block by block, as its ranks run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.evaluation import StrategyEvaluation, evaluate_strategies
from paceline.parallelism.memory.training_state import TrainingState
from paceline.parallelism.offload import check_host_memory, host_bytes, host_of, offloaded
from paceline.parallelism.replicas.data_parallel import data_parallel_step
from paceline.parallelism.schedule.table import (
    KINDS,
    SHARDINGS,
    ClusterLinks,
    StrategyTable,
    Variant,
)
from paceline.parallelism.search import evaluated_variants
from paceline.parallelism.strategy.strategy import MeshAxis, Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.prediction.prediction import Points
from paceline.units import format_bytes


def stated_traits(
    job: TracedJob, strategy: Strategy, microbatches: Sequence[float]
) -> tuple[StepFeatures, ...]:
    """What measurements know a rank's microbatches by, one per size."""
    return variant_of(job, strategy, microbatches).costs.traits


def evaluated_steps(
    job: TracedJob, strategy: Strategy, *, microbatches: Sequence[float]
) -> StrategyEvaluation:
    """One strategy block by block, with several microbatch sizes, whether they fit or not.

    Args:
        job: The training step and its cluster.
        strategy: What is asked for; all its ranks are used.
        microbatches: Items per replica and microbatch.
    """
    fabric, variant = _fabric(job, strategy), variant_of(job, strategy, microbatches)
    table = rows_of(strategy, len(microbatches))
    evaluated = _with_host(strategy, job.cluster, table, variant, fabric)
    if strategy.gradient_sync == "all_reduce":
        return evaluated
    return with_central_reduction(evaluated, strategy, variant.costs.state, fabric)


def _fabric(job: TracedJob, strategy: Strategy) -> ClusterLinks:
    """The cluster; what sums gradients in one place has no buckets for them."""
    if strategy.gradient_sync == "all_reduce":
        return job.fabric
    return replace(job.fabric, profile=replace(job.fabric.profile, buckets="none"))


def _with_host(
    strategy: Strategy,
    cluster: Cluster,
    table: StrategyTable,
    variant: Variant,
    fabric: ClusterLinks,
) -> StrategyEvaluation:
    """Every row; with the optimizer on the host where the strategy wants it there."""
    if not strategy.offloads_optimizer:
        return evaluate_strategies(table, [variant], fabric)
    host, sharing = host_of(cluster), min(fabric.devices_per_node, strategy.num_ranks)
    evaluated = evaluate_strategies(table, [variant], fabric, has_optimizer=False)
    check_host_memory(float(host_bytes(evaluated.updated, sharing).max()), host)
    return offloaded(evaluated, sharing, host)


def variant_of(job: TracedJob, strategy: Strategy, microbatches: Sequence[float]) -> Variant:
    """The model's blocks as the strategy's ranks run them, at every microbatch size."""
    ways = [(job.how(strategy), job.group(strategy))]
    points = Points.of(microbatches, seq=job.seq)
    return evaluated_variants(job.graph, ways, job.cluster.device_table, points, job.calibration)[0]


def with_central_reduction(
    evaluated: StrategyEvaluation, strategy: Strategy, state: TrainingState, fabric: ClusterLinks
) -> StrategyEvaluation:
    """The same with gradients that meet in one place, where nothing hides them.

    That place hands out parameters as they are stored: autocast narrows copies on each device.
    """
    steps = evaluated.steps
    one_row = np.zeros(len(steps), dtype=np.int64)
    step = data_parallel_step(
        mid_s=steps.step_s - steps.exposed_s,
        backward_s=0.0,
        gradient_bytes=float(state.reduced.sum()),
        num_ranks=strategy.num_ranks,
        ranks_per_node=fabric.devices_per_domain,
        device_link=fabric.device_link.take(one_row),
        node_link=fabric.node_link.take(one_row),
        parameter_bytes=float(state.weight.sum()),
        gradient_sync=strategy.gradient_sync,
    )
    steps = replace(steps, step_s=step.mid_s, exposed_s=step.exposed_communication_s)
    return replace(evaluated, steps=steps)


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


def rows_of(strategy: Strategy, num_points: int) -> StrategyTable:
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


def does_not_fit(
    strategy: Strategy, memory_bytes: float, device: str, capacity_bytes: float
) -> DoesNotFitError:
    """What to say of a strategy whose ranks need more memory than a device has."""
    need, there = format_bytes(memory_bytes), format_bytes(capacity_bytes)
    return DoesNotFitError(
        f"`{strategy}` needs {need} per device; {device} has {there}",
        hint="split more (`tp`, `pp`, `+zero3`), recompute, or take more microbatches",
    )
