"""One strategy that the user states, checked and costed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.parallel.block_names import block_names, layers_of
from paceline.parallel.blocks import TensorGroup, rank_traits
from paceline.parallel.cluster import Cluster
from paceline.parallel.data_parallel import data_parallel_step
from paceline.parallel.evaluation import StrategyEvaluation, evaluate_strategies
from paceline.parallel.legality import check_strategy
from paceline.parallel.links import LinkTable
from paceline.parallel.offload import (
    check_host_memory,
    host_bytes,
    host_of,
    offloaded,
    without_optimizer,
)
from paceline.parallel.rank_program import (
    Optimizer,
    Recipe,
    StateBytes,
    state_bytes,
)
from paceline.parallel.replica_work import as_step
from paceline.parallel.replicas import Job, is_replicated, stated_steps
from paceline.parallel.room import MEMORY_CONFIDENCE
from paceline.parallel.search import FoundStrategy, evaluated_variant, found_strategy
from paceline.parallel.sequence_split import check_sequence
from paceline.parallel.strategy import MeshAxis, Strategy
from paceline.parallel.strategy_table import KINDS, SHARDINGS, Fabric, StrategyTable, Variant
from paceline.predict import Calibration, DeviceTable, Points
from paceline.predict.traits import StepTraits
from paceline.trace import lower
from paceline.trace.costs import Configuration
from paceline.trace.graph import Graph
from paceline.trace.master_weights import kept_format
from paceline.units import format_bytes


def evaluate_stated(
    graph: Graph,
    configuration: Configuration,
    cluster: Cluster,
    strategy: Strategy,
    *,
    seq: float,
    global_batch: int,
    recipe: Recipe | None = None,
    calibration: Calibration | None = None,
) -> FoundStrategy:
    """Time and memory of one strategy, as `evaluate_batches` has them, at one global batch.

    Raises:
        InvalidInputError: The strategy cannot run there, or has no cost model.
        DoesNotFitError: A rank's memory is too small.
        MissingFactError: The memory of the device, or what its times need, is not known.
    """
    asked = _Question(
        graph=graph, configuration=configuration, cluster=cluster, strategy=strategy, seq=seq,
        recipe=recipe, calibration=calibration,
    )  # fmt: skip
    _check_stated(asked, global_batch=global_batch)
    microbatch = global_batch // strategy.num_batches // strategy.schedule.num_microbatches
    found = _evaluated(asked, [microbatch])
    return _fitting(found, cluster.device.name, cluster.capacity_bytes)[0]


def evaluate_batches(
    graph: Graph,
    configuration: Configuration,
    cluster: Cluster,
    strategy: Strategy,
    *,
    seq: float,
    microbatches: Sequence[int],
    capacity_bytes: float,
    memory_confidence: float = MEMORY_CONFIDENCE,
    recipe: Recipe | None = None,
    calibration: Calibration | None = None,
) -> tuple[FoundStrategy, ...]:
    """One strategy with several microbatch sizes: those that fit, in the order given.

    Replicas are what `predict` says of one device and a scaling curve of many.

    Args:
        graph: The training step.
        configuration: How a rank runs it; the strategy says what is recomputed.
        cluster: On what.
        strategy: What is asked for; all its ranks are used.
        seq: Sequence length.
        microbatches: Items per replica and microbatch.
        capacity_bytes: Memory of one device.
        memory_confidence: Chance at which it must fit.
        recipe: How weights are kept, block by block; as `kept_format` has it by default.
        calibration: Of the predictor; the built-in one by default.

    Raises:
        InvalidInputError: The strategy cannot run there, or has no cost model.
        DoesNotFitError: None fits.
    """
    asked = _Question(
        graph=graph, configuration=configuration, cluster=cluster, strategy=strategy, seq=seq,
        recipe=recipe, calibration=calibration,
    )  # fmt: skip
    _check_stated(asked, global_batch=strategy.num_batches * strategy.schedule.num_microbatches)
    found = _evaluated(asked, microbatches)
    return _fitting(found, cluster.device.name, capacity_bytes, memory_confidence)


def stated_traits(
    graph: Graph,
    configuration: Configuration,
    cluster: Cluster,
    strategy: Strategy,
    *,
    seq: float,
    global_batch: int,
    recipe: Recipe | None = None,
    calibration: Calibration | None = None,
) -> StepTraits:
    """What measurements know a rank's microbatch by; arguments as of `evaluate_stated`."""
    asked = _Question(
        graph=graph, configuration=configuration, cluster=cluster, strategy=strategy, seq=seq,
        recipe=recipe, calibration=calibration,
    )  # fmt: skip
    group = _tensor_group(asked, fabric_of(cluster, configuration))
    microbatch = global_batch // strategy.num_batches // strategy.schedule.num_microbatches
    return rank_traits(
        graph, asked.how, DeviceTable.from_devices([cluster.device]),
        _points(asked, [microbatch]), group, recipe=asked.kept, calibration=calibration,
    )[0]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Question:
    """One training step with one strategy on one cluster."""

    graph: Graph
    configuration: Configuration
    cluster: Cluster
    strategy: Strategy
    seq: float
    recipe: Recipe | None
    calibration: Calibration | None

    @property
    def how(self) -> Configuration:
        """How a rank runs: what the strategy recomputes, or else what the configuration does."""
        recompute = self.strategy.recompute
        if recompute == "none":
            return self.configuration
        return replace(self.configuration, checkpointing=recompute)

    @property
    def kept(self) -> Recipe:
        """How weights are kept."""
        return self.recipe or kept_format(self.graph, self.configuration)


def _check_stated(asked: _Question, *, global_batch: int) -> None:
    check_strategy(
        asked.strategy,
        asked.cluster,
        num_devices=asked.strategy.num_ranks,
        global_batch=global_batch,
        num_blocks=layers_of(block_names(asked.graph)),
    )
    if asked.strategy.size("cp") > 1:
        check_sequence(asked.graph)
    _check_length(asked.strategy, asked.seq)


def _evaluated(asked: _Question, microbatches: Sequence[int]) -> list[FoundStrategy]:
    """The strategy with every microbatch size, whether it fits or not."""
    if asked.recipe is None and is_replicated(asked.strategy):
        return _replicas(asked, microbatches)
    strategy, fabric = asked.strategy, fabric_of(asked.cluster, asked.configuration)
    variant, table = _variant(asked, fabric, microbatches), _rows(strategy, len(microbatches))
    state = state_bytes(asked.kept, asked.configuration, Optimizer.of(asked.graph))
    evaluated = _with_host(asked, table, variant, fabric, state)
    found = [
        found_strategy(strategy, size, evaluated, row) for row, size in enumerate(microbatches)
    ]
    if strategy.gradient_sync != "all_reduce":
        parameters = float(variant.costs.parameters.sum())
        found = [_met_centrally(one, parameters, fabric, state) for one in found]
    return found


def _replicas(asked: _Question, microbatches: Sequence[int]) -> list[FoundStrategy]:
    """Replicas with every microbatch size."""
    job = Job(
        step=as_step(lower(asked.graph, asked.how)), cluster=asked.cluster, seq=asked.seq,
        calibration=asked.calibration,
    )  # fmt: skip
    steps = stated_steps(job, asked.strategy, microbatches)
    return [
        FoundStrategy(
            strategy=asked.strategy,
            microbatch=size,
            step_s=float(steps.step_s[row]),
            bubble_s=0.0,
            tensor_s=0.0,
            exposed_s=float(steps.exposed_s[row]),
            memory_mid_bytes=float(steps.memory_mid_bytes[row]),
            memory_bytes=float(steps.memory_bytes[row]),
        )
        for row, size in enumerate(microbatches)
    ]


def _with_host(
    asked: _Question, table: StrategyTable, variant: Variant, fabric: Fabric, state: StateBytes
) -> StrategyEvaluation:
    """Every row; with the optimizer on the host where the strategy wants it there."""
    if not asked.strategy.offloads_optimizer:
        return evaluate_strategies(table, [variant], fabric, state)
    host, sharing = host_of(asked.cluster), min(fabric.devices_per_node, asked.strategy.num_ranks)
    evaluated = evaluate_strategies(table, [variant], fabric, without_optimizer(state))
    check_host_memory(float(host_bytes(evaluated.updated, sharing, state).max()), host)
    return offloaded(evaluated, sharing, host, state)


def _variant(asked: _Question, fabric: Fabric, microbatches: Sequence[int]) -> Variant:
    """The model's blocks as the strategy's ranks run them, at every microbatch size."""
    return evaluated_variant(
        asked.graph,
        asked.how,
        DeviceTable.from_devices([asked.cluster.device]),
        _points(asked, microbatches),
        _tensor_group(asked, fabric),
        asked.kept,
        asked.calibration,
    )


def _points(asked: _Question, microbatches: Sequence[int]) -> Points:
    sizes = np.array(microbatches, dtype=np.float64)
    return Points(batch=sizes, seq=np.full(len(sizes), float(asked.seq)))


def _tensor_group(asked: _Question, fabric: Fabric) -> TensorGroup:
    strategy, cluster = asked.strategy, asked.cluster
    return TensorGroup(
        degree=strategy.size("tp"),
        ranks_per_node=fabric.devices_per_node,
        device_link=fabric.device_link,
        node_link=fabric.node_link,
        sequence_parallel=strategy.sequence_parallel,
        context_degree=strategy.size("cp"),
        expert_degree=strategy.size("ep"),
        sends_tokens_once=cluster.sends_tokens_once,
        keeps_experts_whole=cluster.keeps_experts_whole,
        hides_exchange=cluster.hides_exchange,
    )


def _check_length(strategy: Strategy, seq: float) -> None:
    """Each context rank takes a first and a last piece, so that causal work is equal.

    Under sequence parallel tensor ranks cut theirs once more.
    """
    pieces = 2 * strategy.size("cp") if strategy.size("cp") > 1 else 1
    pieces *= strategy.size("tp") if strategy.sequence_parallel else 1
    if seq % pieces:
        raise InvalidInputError(
            f"`{strategy}` cuts each sequence into {pieces} pieces; {seq:.0f} does not divide",
            hint=f"take a sequence length that is a multiple of {pieces}, or smaller degrees",
        )


def _met_centrally(
    found: FoundStrategy, num_parameters: float, fabric: Fabric, state: StateBytes
) -> FoundStrategy:
    """The same with gradients that meet in one place, where nothing hides them."""
    step = data_parallel_step(
        mid_s=found.step_s - found.exposed_s,
        backward_s=0.0,
        gradient_bytes=num_parameters * state.reduced,
        num_ranks=found.strategy.num_ranks,
        ranks_per_node=fabric.devices_per_node,
        device_link=fabric.device_link,
        node_link=fabric.node_link,
        parameter_bytes=num_parameters * state.gathered,
        gradient_sync=found.strategy.gradient_sync,
    )
    exposed_s = float(step.exposed_communication_s[0])
    return replace(found, step_s=float(step.mid_s[0]), exposed_s=exposed_s)


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


def fabric_of(cluster: Cluster, configuration: Configuration) -> Fabric:
    """A cluster as strategies see it."""
    return Fabric(
        devices_per_node=cluster.devices_per_node,
        device_link=LinkTable.from_links([cluster.device_link]),
        node_link=LinkTable.from_links([cluster.node_link]),
        platform=configuration.platform,
        gathers_ahead=cluster.gathers_ahead,
    )


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
