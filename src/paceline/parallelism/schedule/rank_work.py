"""What one rank of a group runs of a training step and keeps, the same on every device.

Shapes: num_points microbatch sizes, num_blocks blocks in the order data flows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

from paceline.model.fewer_layers import FewerLayers, fewer_layers, whole_graph
from paceline.model.graph.block_names import blocks_of_ops
from paceline.model.graph.costs import Checkpointing, Configuration, LoweredPass
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, Graph, IntArray, Phase
from paceline.model.graph.program import Program
from paceline.model.lowering import lowered_program, rewritten
from paceline.model.memory_table import memory_table
from paceline.model.rewrite.master_weights import with_weight_format
from paceline.model.standing import Standing
from paceline.parallelism.memory.block_memory import (
    BlockMemory,
    BoolArray,
    block_memory,
    boundary_bytes,
)
from paceline.parallelism.memory.sharded_memory import PeakMoments, peak_moments
from paceline.parallelism.memory.training_state import (
    TiedState,
    TrainingState,
    tied_state,
    training_state,
)
from paceline.parallelism.memory.weight_gradients import makes_weight_gradients
from paceline.parallelism.schedule.launches import Launches, launches_of, written_kernels
from paceline.parallelism.split import (
    CallTable,
    RankGraph,
    Routing,
    SplitShape,
    split,
)
from paceline.parallelism.split.calls_run import calls_that_run
from paceline.parallelism.split.sequence import check_ring
from paceline.prediction.prediction import Points
from paceline.values import dataclass

#: More ops than any graph has.
_MOST_OPS = 10_000_000


def rank_work(
    graph: Graph, configuration: Configuration, points: Points, shape: SplitShape
) -> RankWork:
    """What a rank runs and keeps; arguments are those of `block_costs`, and it raises the same."""
    kept = _rank_works(graph, replace(configuration, checkpointing="none"), _PointsKey.of(points))
    return kept(shape, configuration.checkpointing)


@dataclass(frozen=True, slots=True)
class _PointsKey:
    """`Points` that are equal where their numbers are."""

    batch: tuple[float, ...]
    seq: tuple[float, ...]

    @classmethod
    def of(cls, points: Points) -> _PointsKey:
        """Their numbers."""
        return cls((*points.batch.tolist(),), (*points.seq.tolist(),))

    def points(self) -> Points:
        """Points of these numbers."""
        return Points(batch=np.array(self.batch), seq=np.array(self.seq))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankWork:
    """What a rank runs and keeps, which is the same on every device.

    Attributes:
        layers: Which blocks stand for how many of the model; the figures are those of them.
        points: Microbatch sizes.
        block: Block of each op, (num_ops,).
        phase: Phase of each, same shape.
        makes_weight: Whether each makes gradients of weights, same shape.
        lowered: Their costs.
        state: What is kept to train each block.
        tied: Of it, what several blocks read.
        moments: Live bytes at the moments that can be the peak.
        memory: Activations of each block.
        shared: What ranks that share blocks exchange.
        boundaries: What a block needs of those before, and what it makes for layers after it,
            (2, num_points, num_blocks).
        launches: What a host may launch one by one.
    """

    layers: FewerLayers
    points: Points
    block: IntArray
    phase: npt.NDArray[np.integer]
    makes_weight: BoolArray
    lowered: LoweredPass
    state: TrainingState
    tied: TiedState
    moments: PeakMoments
    memory: BlockMemory
    shared: SharedWork
    boundaries: FloatArray
    launches: Launches


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedWork:
    """What ranks that share blocks exchange.

    Attributes:
        routing: Where tokens go, if they go to experts.
        expert_ranks: Ranks that share the experts of a layer.
        block: Block of each call, (num_calls,).
        is_forward: Whether it belongs to forward, same shape.
        op: Op that runs as the one that calls, -1 where none does, same shape.
    """

    calls: CallTable
    routing: Routing | None
    expert_ranks: int
    block: IntArray
    is_forward: BoolArray
    op: IntArray


@lru_cache(maxsize=1)
def _rank_works(
    graph: Graph, configuration: Configuration, key: _PointsKey
) -> Callable[[SplitShape, Checkpointing], RankWork]:
    """What ranks run of a step in one configuration, and what they keep and recompute.

    All that was asked of the last one is kept, as machines of many kinds share it: half a megabyte
    each of a large model. Graphs are equal if they are the same object.
    """
    how = with_weight_format(graph, configuration)
    ways = fewer_layers(graph, configuration), whole_graph(graph)

    @cache
    def as_written(layers: FewerLayers, shape: SplitShape) -> tuple[FloatArray, FloatArray]:
        """Bytes that cross the ends of blocks and their kernels, cut for some ranks."""
        eager, names = replace(how, compiler="eager"), layers.names
        program = rewritten(split(layers.graph, shape).graph, eager)
        return boundary_bytes(program, names, key.points()), written_kernels(program, eager, names)

    @cache
    def work(shape: SplitShape, checkpointing: Checkpointing) -> RankWork:
        recomputing = replace(how, checkpointing=checkpointing)
        for layers in ways:
            written = as_written(layers, shape)
            found = _rank_work(layers, recomputing, shape, key.points(), written)
            if found is not None:
                return found
        raise AssertionError("every block of a whole graph stands for itself")

    return work


def _rank_work(
    layers: FewerLayers, configuration: Configuration, shape: SplitShape, points: Points,
    written: tuple[FloatArray, FloatArray],
) -> RankWork | None:  # fmt: skip
    """Split and lower a training step; ``written`` are bytes between its blocks, and kernels.

    None where layers that were alike are not so any longer.
    """
    graph, names, how = layers.graph, layers.names, configuration
    rank = split(graph, shape)
    program = rewritten(rank.graph, how)
    if shape.ring > 1:
        check_ring(program)
    block, standing = blocks_of_ops(program.modules, program.ops.module, names), None
    if layers.copies > 1:
        standing = Standing.of(
            program, layers.group_of(block), layers.group_of(layers.home), layers.copies
        )
        if standing is None:
            return None
    is_late = program.ops.position >= program.first_backward()
    memory = memory_table(program, block + len(names) * is_late, standing)
    lowered = lowered_program(program, graph.name, how, memory, standing)
    return RankWork(
        layers=layers,
        points=points,
        block=block,
        phase=program.ops.phase,
        makes_weight=makes_weight_gradients(program),
        lowered=lowered,
        state=training_state(program, how, block, len(names), rank.is_expert),
        tied=tied_state(program, how, block, len(names), rank.is_expert),
        moments=peak_moments(lowered, points),
        memory=block_memory(program, block, len(names), points),
        shared=_shared_work(rank, how, program, names),
        boundaries=written[0],
        launches=launches_of(graph, program, shape, block, written[1], how.checkpointing),
    )


def _shared_work(
    rank: RankGraph, how: Configuration, program: Program, names: tuple[str, ...]
) -> SharedWork:
    graph, calls = rank.graph, calls_that_run(rank.graph, how, rank.calls)
    own = blocks_of_ops(graph.modules, graph.ops.module.astype(np.int64), names)
    return SharedWork(
        calls=calls,
        routing=rank.routing,
        expert_ranks=rank.shape.expert_ranks,
        block=own[calls.op],
        is_forward=among(graph.ops.phase[calls.op], (Phase.FORWARD, Phase.LOSS)),
        op=_running_op(graph, calls, program),
    )


def _running_op(graph: Graph, calls: CallTable, program: Program) -> IntArray:
    """Op that runs as that of each call, (num_calls,); -1 where it runs as others.

    The same op of a module in the graph and in what runs: of its kind, phase and place.
    """
    num_modules = 1 + max(len(graph.modules), len(program.modules))
    mine = _keys(graph.ops.kind, graph.ops.phase, graph.ops.module, num_modules)
    running = _keys(program.ops.kind, program.ops.phase, program.ops.module, num_modules)
    asked, order = mine[calls.op], np.argsort(running)
    found = order[np.minimum(np.searchsorted(running[order], asked), len(order) - 1)]
    return np.where(running[found] == asked, found, -1)


def _keys(
    kind: npt.NDArray[np.integer], phase: npt.NDArray[np.integer], module: npt.NDArray[np.integer],
    num_modules: int,
) -> IntArray:  # fmt: skip
    """A number for each op, equal ones told apart by how many came before."""
    alike = (kind.astype(np.int64) * len(Phase) + phase) * num_modules + module
    order = np.argsort(alike, kind="stable")
    ordered = alike[order]
    before = np.empty_like(order)
    before[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return np.asarray(alike * _MOST_OPS + before, dtype=np.int64)
