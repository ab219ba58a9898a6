"""The best strategies of one model on one number of devices: enumerate, prune by memory, evaluate.

Everything that can be enumerated is evaluated, in arrays; nothing is pruned that could win. The
search space is the product of tensor, expert, pipeline and data degrees in the usual rank order,
microbatch sizes, schedules, state sharding and recomputation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.parallel.blocks import TensorGroup, block_costs
from paceline.parallel.evaluation import (
    KINDS,
    SHARDINGS,
    Fabric,
    StrategyEvaluation,
    StrategyTable,
    Variant,
    evaluate_strategies,
)
from paceline.parallel.expert_split import split_experts
from paceline.parallel.rank_program import Recipe, StateBytes, state_bytes
from paceline.parallel.strategy import ScheduleKind, Sharding, Strategy
from paceline.predict import Calibration, DeviceTable, Points
from paceline.trace.costs import Checkpointing, Configuration
from paceline.trace.graph import FloatArray, Graph
from paceline.units import format_bytes

#: Microbatch sizes tried, items per data-parallel rank.
_MICROBATCHES = (1, 2, 4, 8, 16, 32)
_CHUNKS = (2, 4)
_CHECKPOINTING: tuple[Checkpointing, ...] = ("none", "block")
#: Sharding that pipelines use, and that plain data parallel uses. ZeRO-1 and ZeRO-2 send the same
#: bytes, and ZeRO-2 keeps less.
_WITH_STAGES: tuple[Sharding, ...] = ("none", "zero1")
_WITHOUT_STAGES: tuple[Sharding, ...] = ("none", "zero2", "zero3")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchSpace:
    """One training step on one kind of cluster, prepared for any number of devices.

    Attributes:
        variants: Blocks by tensor degree, expert degree and recomputation.
        fabric: The cluster.
        state: Bytes per parameter.
        capacity_bytes: Memory of one device.
        microbatches: Microbatch sizes, as ``variants`` were evaluated.
    """

    variants: tuple[Variant, ...]
    fabric: Fabric
    state: StateBytes
    capacity_bytes: float
    microbatches: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStrategy:
    """One strategy with its figures.

    Attributes:
        strategy: How.
        microbatch: Items per data-parallel rank and microbatch.
        step_s: One optimizer step.
        bubble_s: Of it, waiting in the pipeline.
        tensor_s: Of it, communication of ranks that share blocks.
        exposed_s: Of it, data-parallel communication that nothing hides.
        memory_bytes: Peak of the fullest rank, the bound that holds at a chance of 95 %.
    """

    strategy: Strategy
    microbatch: int
    step_s: float
    bubble_s: float
    tensor_s: float
    exposed_s: float
    memory_bytes: float


def prepare_search(
    graph: Graph,
    configuration: Configuration,
    device: DeviceTable,
    fabric: Fabric,
    *,
    seq: float,
    capacity_bytes: float,
    max_tensor_degree: int | None = None,
    microbatches: Sequence[int] = _MICROBATCHES,
    recipe: Recipe = "half-weights",
    calibration: Calibration | None = None,
) -> SearchSpace:
    """Evaluate the blocks of a model once per tensor and expert degree and recomputation.

    Degrees are powers of two inside a node that divide the model's heads, and its experts if it
    has any.

    Args:
        graph: The training step.
        configuration: How a rank runs it; its checkpointing is replaced.
        device: A table of one device.
        fabric: The cluster.
        seq: Sequence length.
        capacity_bytes: Memory of one device.
        max_tensor_degree: Largest tensor degree; a whole node by default.
        microbatches: Microbatch sizes to try.
        recipe: How weights are kept.
        calibration: Of the predictor; the built-in one by default.
    """
    sizes = np.array(microbatches, dtype=np.float64)
    points = Points(batch=sizes, seq=np.full(len(sizes), float(seq)))
    variants: list[Variant] = []
    per_node = fabric.devices_per_node
    for degree in _powers(max_tensor_degree or per_node):
        group = TensorGroup(
            degree=degree,
            ranks_per_node=per_node,
            device_link=fabric.device_link,
            node_link=fabric.node_link,
            sequence_parallel=degree > 1,
        )
        try:
            variants += [
                _variant(graph, how, device, points, group, recipe, calibration)
                for how in _recomputing(configuration)
            ]
        except InvalidInputError:
            break
        variants += [
            _variant(graph, how, device, points, one, recipe, calibration)
            for one in _with_experts(graph, group, per_node // degree)
            for how in _recomputing(configuration)
        ]
    return SearchSpace(
        variants=tuple(variants),
        fabric=fabric,
        state=state_bytes(recipe, configuration),
        capacity_bytes=capacity_bytes,
        microbatches=tuple(microbatches),
    )


def search_strategies(
    space: SearchSpace, *, num_devices: int, global_batch: int, num_best: int = 5
) -> tuple[FoundStrategy, ...]:
    """The fastest strategies that fit, best first.

    Args:
        space: What `prepare_search` made.
        num_devices: World size.
        global_batch: Items per optimizer step.
        num_best: How many to return.

    Raises:
        InvalidInputError: No combination of degrees uses exactly so many devices and items.
        DoesNotFitError: None fits into memory.
    """
    table = enumerate_strategies(space, num_devices=num_devices, global_batch=global_batch)
    if not len(table):
        raise InvalidInputError(
            f"no strategy spreads {global_batch} items over {num_devices} devices",
            hint="choose a global batch that is a multiple of the devices, or fewer devices",
        )
    found = evaluate_strategies(table, space.variants, space.fabric, space.state)
    fits = found.memory_bytes <= space.capacity_bytes
    if not fits.any():
        least = format_bytes(float(found.memory_bytes.min()))
        raise DoesNotFitError(
            f"the best of {len(table)} strategies needs {least} per device; "
            f"{format_bytes(space.capacity_bytes)} are there",
            hint="use more devices, a smaller batch, or a device with more memory",
        )
    order = np.argsort(np.where(fits, found.step_s, np.inf), kind="stable")
    kept = order[: min(num_best, int(fits.sum()))]
    return tuple(
        found_strategy(
            table.strategy(row, space.variants), space.microbatches[table.point[row]], found, row
        )
        for row in kept.tolist()
    )


def enumerate_strategies(
    space: SearchSpace, *, num_devices: int, global_batch: int
) -> StrategyTable:
    """Every legal strategy for so many devices and items, as a table."""
    rows = [
        row
        for index, variant in enumerate(space.variants)
        for row in _rows(space, index, variant, num_devices, global_batch)
    ]
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 9).T
    names = [field.name for field in fields(StrategyTable)]
    return StrategyTable(**dict(zip(names, columns, strict=True)))


def _rows(
    space: SearchSpace, index: int, variant: Variant, num_devices: int, global_batch: int
) -> Iterator[tuple[int, ...]]:
    """Rows of one variant."""
    if num_devices % variant.num_ranks:
        return
    rest, num_blocks = num_devices // variant.num_ranks, len(variant.costs.names)
    for pp in _divisors(rest, num_blocks):
        dp = rest // pp
        batches = dp * variant.expert_degree
        if global_batch % batches:
            continue
        for point, size in enumerate(space.microbatches):
            count, left = divmod(global_batch // batches, size)
            if left or (pp > 1 and count < 2):
                continue
            for kind, chunks in _schedules(pp, count, num_blocks):
                for sharding, shards in _shardings(space, variant, dp, pp):
                    yield (index, dp, pp, chunks, KINDS.index(kind), count, point,
                           SHARDINGS.index(sharding), shards)  # fmt: skip


def _schedules(pp: int, count: int, num_blocks: int) -> Iterator[tuple[ScheduleKind, int]]:
    if pp == 1:
        yield "plain", 1
        return
    yield "1f1b", 1
    if count % pp == 0:
        yield from (("interleaved", v) for v in _CHUNKS if pp * v <= num_blocks)


def _shardings(
    space: SearchSpace, variant: Variant, dp: int, pp: int
) -> Iterator[tuple[Sharding, int]]:
    """State sharding, and how many ranks split where replicas are kept beyond a node; 0 for all."""
    if dp * variant.expert_degree == 1:
        yield "none", 0
        return
    yield from ((sharding, 0) for sharding in (_WITH_STAGES if pp > 1 else _WITHOUT_STAGES))
    in_node = space.fabric.devices_per_node // variant.num_ranks
    if pp == 1 and variant.expert_degree == 1 and 1 < in_node < dp and dp % in_node == 0:
        yield "zero3", in_node


def _divisors(number: int, limit: int) -> list[int]:
    return [d for d in range(1, min(number, limit) + 1) if number % d == 0]


def _with_experts(graph: Graph, group: TensorGroup, limit: int) -> Iterator[TensorGroup]:
    """The group with every expert degree above one that the model and the node allow."""
    for degree in _powers(limit):
        if degree > 1:
            try:
                split_experts(graph, degree)
            except InvalidInputError:
                return
            yield replace(group, expert_degree=degree)


def _powers(limit: int) -> Iterator[int]:
    degree = 1
    while degree <= limit:
        yield degree
        degree *= 2


def _recomputing(configuration: Configuration) -> list[Configuration]:
    return [replace(configuration, checkpointing=how) for how in _CHECKPOINTING]


def _variant(
    graph: Graph, configuration: Configuration, device: DeviceTable, points: Points,
    group: TensorGroup, recipe: Recipe, calibration: Calibration | None,
) -> Variant:  # fmt: skip
    return Variant(
        tensor_degree=group.degree,
        expert_degree=group.expert_degree,
        sequence_parallel=group.sequence_parallel,
        checkpointing=configuration.checkpointing,
        costs=block_costs(
            graph, configuration, device, points, group, recipe=recipe, calibration=calibration
        ),
    )


def found_strategy(
    strategy: Strategy, microbatch: int, found: StrategyEvaluation, row: int
) -> FoundStrategy:
    """One row of an evaluation with its strategy."""

    def at(values: FloatArray) -> float:
        return float(values[row])

    return FoundStrategy(
        strategy=strategy,
        microbatch=microbatch,
        step_s=at(found.step_s),
        bubble_s=at(found.bubble_s),
        tensor_s=at(found.tensor_s),
        exposed_s=at(found.exposed_s),
        memory_bytes=at(found.memory_bytes),
    )
