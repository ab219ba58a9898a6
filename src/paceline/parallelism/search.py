"""The best strategies of one model on one number of devices: enumerate, bound, evaluate.

Strategies are evaluated in arrays, those with the lowest bound below their step first, until no
other can win. The
search space is the product of tensor, context, expert, pipeline and data degrees in the usual rank
order, microbatch sizes, schedules, state sharding and recomputation. Sequences are cut into parts
that are long enough to hide the ring, and between nodes on fast networks alone; ranks go round a
ring, or as many of a node as heads allow share heads (Ulysses) and the ring has the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import TypeAlias

import numpy as np

from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.model.graph.block_names import block_names, layers_of
from paceline.model.graph.costs import Checkpointing, Configuration
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray, Graph, IntArray
from paceline.model.table_updates import is_mostly_tables
from paceline.parallelism.evaluation import WeighedStrategies, weighed_strategies
from paceline.parallelism.lower_bounds import least_steps_s
from paceline.parallelism.memory.memory_fit import (
    BOUND_CONFIDENCE,
    MEMORY_CONFIDENCE,
    bound_bytes,
    peak_log_sigma,
    quantile_bytes,
)
from paceline.parallelism.offload import Host, host_bytes, offloaded
from paceline.parallelism.rank_memory import joined_bytes, least_rank_bytes
from paceline.parallelism.schedule.blocks import TensorGroup, costs_of_ways
from paceline.parallelism.schedule.rank_work import rank_work
from paceline.parallelism.schedule.table import (
    KINDS,
    SHARDINGS,
    ClusterLinks,
    StrategyTable,
    Variant,
    VariantKind,
)
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import ScheduleKind, Sharding, Strategy
from paceline.parallelism.tensor_groups import (
    cuts_weights,
    expert_degrees,
    tensor_groups,
    with_context,
    with_experts,
)
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.prediction.devices import DeviceTable
from paceline.prediction.memory.peak import process_bytes
from paceline.prediction.prediction import Points
from paceline.units import format_bytes
from paceline.values import dataclass

#: Least tokens of a sequence per context rank. Shorter parts leave the ring bare: where they were
#: searched, none was the best but where a batch has fewer sequences than replicas.
CONTEXT_PART_TOKENS = 2048
#: Microbatch sizes tried, items per data-parallel rank.
MICROBATCHES = (1, 2, 4, 8, 16, 32)
#: The same of what has small items, such as rows of a table.
_LARGE_MICROBATCHES = (128, 512, 2048, 8192, 32_768, 131_072)
_CHUNKS = (2, 4)
#: A strategy that cuts sequences must be faster by this factor than one that does not.
CONTEXT_MARGIN = 1.02
_CHECKPOINTING: tuple[Checkpointing, ...] = ("none", "block")
#: Sharding that pipelines use, and that plain data parallel uses. ZeRO-1 and ZeRO-2 send the same
#: bytes, and ZeRO-2 keeps less.
_WITH_STAGES: tuple[Sharding, ...] = ("none", "zero1")
_WITHOUT_STAGES: tuple[Sharding, ...] = ("none", "zero2", "zero3")
#: Most nodes whose devices share tables of embeddings, as in DLRM's published runs.
_NODES_OF_TABLES = 16
#: Strategies that are evaluated before any is known, and at most at a time.
_FIRST_ROWS, _MOST_ROWS = 64, 512

#: Rows of a table that fit, and their steps.
_Evaluated: TypeAlias = tuple[IntArray, Steps]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchSpace:
    """One training step on one kind of cluster, prepared for any number of devices.

    Attributes:
        kinds: Ways to run the blocks by tensor degree, expert degree and recomputation.
        evaluated: The blocks of some of them, by their places among ``kinds``; worked out once.
        num_layers: Layers of the model, which stages can have.
        capacity_bytes: Memory of one device.
        microbatches: Microbatch sizes, as ``variants`` were evaluated.
        memory_confidence: Chance at which a strategy must fit.
        host: Where the optimizer may be kept if nothing fits otherwise; None where it may not.
        has_stages: Whether a pipeline is tried.
        peak_log_sigma: How much peaks spread at least.
    """

    kinds: tuple[VariantKind, ...]
    evaluated: Callable[[Sequence[int]], tuple[Variant, ...]]
    num_layers: int
    fabric: ClusterLinks
    capacity_bytes: float
    microbatches: tuple[int, ...]
    memory_confidence: float = MEMORY_CONFIDENCE
    host: Host | None = None
    has_stages: bool = True
    peak_log_sigma: float = 0.0

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The blocks of all kinds."""
        return self.evaluated(range(len(self.kinds)))

    def least_step_s(self, *, num_devices: int, global_batch: int) -> float:
        """Bound below a step of any strategy: whole layers at their best, spread without a loss.

        Ranks that share layers compute no faster together than as many with whole ones, which may
        have the best of all microbatches here, whatever the memory that takes; nor do their hosts
        dispatch faster.
        """
        whole = [
            place
            for place, one in enumerate(self.kinds)
            if one.num_ranks == 1 and one.checkpointing == "none"
        ]
        costs = [one.costs for one in self.evaluated(whole)]
        of_item_s = [one.busy_s / one.points.batch for one in costs]
        return float(np.min(of_item_s)) * global_batch / num_devices

    def traits(self, strategy: Strategy, microbatch: int) -> StepFeatures:
        """What measurements know the microbatch of a strategy that was found here by."""
        place = next(place for place, one in enumerate(self.kinds) if one.runs(strategy))
        (variant,) = self.evaluated([place])
        return variant.costs.traits[self.microbatches.index(microbatch)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundStrategies:
    """Strategies that were searched, best first.

    Attributes:
        microbatches: Items per data-parallel rank and microbatch.
        steps: Of each; how sure they are is not known here.
    """

    strategies: tuple[Strategy, ...]
    microbatches: tuple[int, ...]
    steps: Steps

    def __len__(self) -> int:
        """Number of strategies."""
        return len(self.strategies)


def microbatch_sizes(most: int, of_a_node: int) -> list[int]:
    """Sizes to try, large ones where the devices of a node have so many items together.

    >>> microbatch_sizes(8, 64), microbatch_sizes(8192, 600)[-3:]
    ([1, 2, 4, 8], [32, 128, 512])
    """
    small = [size for size in MICROBATCHES if size <= most]
    return small + [size for size in _LARGE_MICROBATCHES if size <= of_a_node]


def prepare_search(
    graph: Graph,
    configuration: Configuration,
    device: DeviceTable,
    fabric: ClusterLinks,
    *,
    seq: float,
    capacity_bytes: float,
    max_tensor_degree: int | None = None,
    microbatches: Sequence[int] = MICROBATCHES,
    calibration: Calibration | None = None,
    context_part_tokens: int = CONTEXT_PART_TOKENS,
    memory_confidence: float = MEMORY_CONFIDENCE,
    host: Host | None = None,
    splits_model: bool = True,
) -> SearchSpace:
    """Evaluate the blocks of a model once per tensor, context and expert degree.

    With recomputation they are evaluated when a strategy that recomputes could win.

    Degrees are powers of two inside a node that divide the model's heads, and its experts if it
    has any; context ranks may also stand in several nodes where the network is fast.

    Args:
        graph: The training step.
        configuration: How a rank runs it; its checkpointing is replaced.
        device: A table of one device.
        fabric: The cluster.
        seq: Sequence length.
        capacity_bytes: Memory of one device.
        max_tensor_degree: Largest tensor degree; a whole node by default.
        microbatches: Microbatch sizes to try.
        calibration: Of the predictor; the built-in one by default.
        context_part_tokens: Least tokens of a sequence per context rank.
        memory_confidence: Chance at which a strategy must fit.
        host: Where the optimizer may be kept if nothing fits otherwise.
        splits_model: Whether ranks may share layers or be stages; those of a model that is mostly
            tables share nothing but these.
    """
    points = Points.of(microbatches, seq=seq)
    has_tables, per_node = is_mostly_tables(graph), fabric.devices_per_node
    reach = max(fabric.even_domain, per_node * _NODES_OF_TABLES * has_tables)
    experts = expert_degrees(graph, reach) if splits_model else []
    splits_layers = splits_model and not has_tables
    most = max_tensor_degree if splits_layers and cuts_weights(configuration) else 1
    part_tokens = context_part_tokens if splits_model else int(seq)
    ways, groups = _recomputing(configuration), list[TensorGroup]()
    known: dict[int, Variant] = {}

    def evaluated(places: Sequence[int]) -> tuple[Variant, ...]:
        new = [place for place in places if place not in known]
        asked = [(ways[place % len(ways)], groups[place // len(ways)]) for place in new]
        costs = evaluated_variants(graph, asked, device, points, calibration)
        known.update(zip(new, costs, strict=True))
        return tuple(known[place] for place in places)

    for group in tensor_groups(fabric, seq, most):
        try:
            rank_work(graph, ways[0], points, group.shape)
        except InvalidInputError:
            break
        groups.append(group)
        longer = [*with_context(graph, group, fabric, seq, part_tokens)]
        groups += [*longer, *with_experts([group, *longer], experts, reach)]
    return SearchSpace(
        kinds=tuple(
            VariantKind(shape=group.shape, checkpointing=how.checkpointing)
            for group in groups
            for how in ways
        ),
        evaluated=evaluated,
        num_layers=layers_of(block_names(graph)),
        fabric=fabric,
        capacity_bytes=capacity_bytes,
        microbatches=tuple(microbatches),
        memory_confidence=memory_confidence,
        host=host,
        has_stages=splits_layers,
        peak_log_sigma=peak_log_sigma(configuration.peaks),
    )


def search_strategies(
    space: SearchSpace, *, num_devices: int, global_batch: int, num_best: int = 5,
    same_factor: float | None = None,
) -> FoundStrategies:  # fmt: skip
    """The fastest strategies that fit, best first; with the optimizer on the host if none does.

    Args:
        space: What can be tried.
        num_devices: Of the machine.
        global_batch: Items per optimizer step.
        num_best: Strategies that are wanted.
        same_factor: Steps that differ by less than this factor are called the same: so many
            strategies of each rank of complexity are wanted, if they are the same as the fastest.

    Raises:
        InvalidInputError: No combination of degrees uses exactly so many devices and items.
        DoesNotFitError: None fits into memory.
    """
    asked = {"num_devices": num_devices, "global_batch": global_batch}
    found = fitting_strategies(space, **asked, num_best=num_best, same_factor=same_factor)
    if found is not None:
        return found
    table = enumerate_strategies(space, **asked)
    if not len(table):
        raise InvalidInputError(
            f"no strategy spreads {global_batch} items over {num_devices} devices",
            hint="choose a global batch that is a multiple of the devices, or fewer devices",
        )
    raise DoesNotFitError(
        f"the best of {len(table)} strategies needs "
        f"{format_bytes(_smallest_bytes(space, table, _least_bytes(space, table)))} per device; "
        f"{format_bytes(space.capacity_bytes)} are there",
        hint="use more devices, a smaller batch, or a device with more memory",
    )


def fitting_strategies(
    space: SearchSpace, *, num_devices: int, global_batch: int, num_best: int = 5,
    same_factor: float | None = None,
) -> FoundStrategies | None:  # fmt: skip
    """The same; None where no strategy is legal or fits."""
    table = enumerate_strategies(space, num_devices=num_devices, global_batch=global_batch)
    if not len(table):
        return None
    least_bytes = _least_bytes(space, table)
    wanted = _Wanted(num_best=num_best, same_factor=same_factor)
    found = _fastest(space, table, least_bytes, wanted, lambda part: _fitting(space, part))
    if found is not None or space.host is None:
        return found
    sharing = min(space.fabric.devices_per_node, num_devices)
    least_beside = _least_bytes(space, table, has_optimizer=False)
    found = _fastest(
        space, table, least_beside, wanted,
        lambda part: _with_optimizer_on_host(space, part, sharing),
    )  # fmt: skip
    if found is None:
        return None
    strategies = tuple(replace(one, offloads_optimizer=True) for one in found.strategies)
    return replace(found, strategies=strategies)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """How many of the fastest strategies are wanted; see `search_strategies`."""

    num_best: int
    same_factor: float | None

    def ranks(self, space: SearchSpace, table: StrategyTable) -> IntArray:
        """Which of each rank are wanted: complexity if that matters."""
        if self.same_factor is None:
            return np.zeros(len(table), dtype=np.int64)
        return table.complexity(space.kinds)

    def kept(self, ranked_s: FloatArray, ranks: IntArray, rows: IntArray) -> IntArray:
        """Places of those that are among the best of their rank, best first."""
        best = np.lexsort((rows, ranked_s))
        if self.same_factor is None:
            return best[: self.num_best]
        best = best[ranked_s[best] <= self.same_factor * ranked_s.min(initial=np.inf)]
        is_other = ranks[best][:, None] != ranks[best]
        num_better = np.tril(~is_other, -1).sum(axis=1)
        return np.asarray(best[num_better < self.num_best])

    def reach_s(self, ranked_s: FloatArray) -> float:
        """The step above which none is wanted beside those that are kept, best first."""
        if self.same_factor is not None:
            return self.same_factor * float(ranked_s.min(initial=np.inf))
        return float(ranked_s[-1]) if len(ranked_s) == self.num_best else math.inf


def _fastest(
    space: SearchSpace,
    table: StrategyTable,
    least_bytes: FloatArray,
    wanted: _Wanted,
    evaluate: Callable[[StrategyTable], _Evaluated],
) -> FoundStrategies | None:
    """The fastest of those that fit, None where none does.

    What needs more than is there is left out. Those with the lowest bound come first, and none is
    evaluated whose bound is above what is wanted: the answer is that of evaluating all.
    """
    table = table.take(np.flatnonzero(least_bytes <= space.capacity_bytes))
    if not len(table):
        return None
    least_s = _ranked_s(space, table, _least_steps_s(space, table))
    order = np.argsort(least_s, kind="stable")
    rows, ranked_s, steps = np.zeros(0, dtype=np.int64), np.zeros(0), Steps.of(0, {})
    ranks = wanted.ranks(space, table)
    start, size = 0, _FIRST_ROWS
    while start < len(order) and least_s[order[start]] <= wanted.reach_s(ranked_s):
        asked = order[start : start + size]
        part = table.take(asked)
        kept, found = evaluate(part)
        places = np.arange(len(rows) + len(kept))
        parts = ((places[: len(rows)], steps), (places[len(rows) :], found))
        rows, steps = np.concatenate((rows, asked[kept])), Steps.joined(parts, len(places))
        ranked_s = np.concatenate((ranked_s, _ranked_s(space, part.take(kept), found.step_s)))
        best = wanted.kept(ranked_s, ranks[rows], rows)
        rows, ranked_s, steps = rows[best], ranked_s[best], steps.take(best)
        start, size = start + size, min(2 * size, _MOST_ROWS)
    if not len(rows):
        return None
    known = np.arange(int(np.isfinite(ranked_s).sum()) or 1)
    return _found(space, table.take(rows[known]), steps.take(known))


def _found(space: SearchSpace, table: StrategyTable, steps: Steps) -> FoundStrategies:
    return FoundStrategies(
        strategies=tuple(table.strategy(row, space.kinds) for row in range(len(table))),
        microbatches=tuple(space.microbatches[point] for point in table.point.tolist()),
        steps=steps,
    )


def _plain(space: SearchSpace, table: StrategyTable) -> tuple[StrategyTable, tuple[int, ...]]:
    """The table over its own kinds alone, and the kind of each that recomputes nothing."""
    plain = {
        one.shape: place for place, one in enumerate(space.kinds) if one.checkpointing == "none"
    }
    used, of_row = np.unique(table.variant, return_inverse=True)
    places = tuple(plain[space.kinds[place].shape] for place in used.tolist())
    return replace(table, variant=of_row), places


def _least_steps_s(space: SearchSpace, table: StrategyTable) -> FloatArray:
    """Bounds below all steps, from the blocks without recomputation."""
    kinds = [space.kinds[place] for place in distinct(table.variant).tolist()]
    own, places = _plain(space, table)
    return least_steps_s(own, kinds, space.evaluated(places), space.fabric)


def _least_bytes(
    space: SearchSpace, table: StrategyTable, *, has_optimizer: bool = True
) -> FloatArray:
    """Bounds below the memory that a device must have; none where less than half a chance counts.

    What is needed at half a chance is the median, which is above what is there in any case.
    """
    if space.memory_confidence < 0.5:
        return np.zeros(len(table))
    own, places = _plain(space, table)
    recomputes = np.array([one.checkpointing != "none" for one in space.kinds])[table.variant]
    variants, fabric = space.evaluated(places), space.fabric
    live = least_rank_bytes(own, variants, recomputes, fabric.profile, has_optimizer=has_optimizer)
    _, mid, high = process_bytes(live, 0.0, np.zeros_like(live), platform=fabric.platform)
    joined = joined_bytes(own, variants, fabric)
    # Beyond the bound what is needed falls as the median rises.
    return _needed_bytes(
        space, mid + joined, high + joined, min(space.memory_confidence, BOUND_CONFIDENCE)
    )


def _smallest_bytes(space: SearchSpace, table: StrategyTable, least_bytes: FloatArray) -> float:
    """The least that any strategy needs, those with the lowest bound first."""
    order, smallest = np.argsort(least_bytes, kind="stable"), math.inf
    for start in range(0, len(order), _FIRST_ROWS):
        rows = order[start : start + _FIRST_ROWS]
        if least_bytes[rows[0]] >= smallest:
            break
        needed_bytes = _weighed_bytes(space, _weighed(space, table.take(rows)))
        smallest = min(smallest, float(needed_bytes.min()))
    return smallest


def _weighed(
    space: SearchSpace, table: StrategyTable, *, has_optimizer: bool = True
) -> WeighedStrategies:
    """The memory of strategies, with the blocks of their own kinds alone."""
    used, of_row = np.unique(table.variant, return_inverse=True)
    own, variants = replace(table, variant=of_row), space.evaluated(used.tolist())
    return weighed_strategies(own, variants, space.fabric, has_optimizer=has_optimizer)


def _fitting(space: SearchSpace, table: StrategyTable) -> _Evaluated:
    """Strategies that fit."""
    weighed = _weighed(space, table)
    fits = np.flatnonzero(_weighed_bytes(space, weighed) <= space.capacity_bytes)
    if not len(fits):
        return fits, Steps.of(0, {})
    return fits, weighed.take(fits).evaluated().steps


def _with_optimizer_on_host(space: SearchSpace, table: StrategyTable, sharing: int) -> _Evaluated:
    """Strategies that fit when the optimizer is on the host, which so many devices share."""
    assert space.host is not None, "there is a host"
    weighed = _weighed(space, table, has_optimizer=False)
    fits = np.flatnonzero(_weighed_bytes(space, weighed) <= space.capacity_bytes)
    if not len(fits):
        return fits, Steps.of(0, {})
    found = weighed.take(fits).evaluated()
    has_room = np.flatnonzero(host_bytes(found.updated, sharing) <= space.host.memory_bytes)
    steps = offloaded(found, sharing, space.host).steps
    return fits[has_room], steps.take(has_room)


def _needed_bytes(
    space: SearchSpace, mid_bytes: FloatArray, high_bytes: FloatArray, confidence: float
) -> FloatArray:
    """Memory that a device must have for each strategy, at a chance."""
    high = bound_bytes(mid_bytes, high_bytes, space.peak_log_sigma)
    return quantile_bytes(mid_bytes, high, confidence)


def _weighed_bytes(space: SearchSpace, weighed: WeighedStrategies) -> FloatArray:
    """The same of strategies that were weighed, at the chance that counts."""
    memory = weighed.memory
    mid, high = memory.process_mid_bytes, memory.process_high_bytes
    return _needed_bytes(space, mid, high, space.memory_confidence)


def _ranked_s(space: SearchSpace, table: StrategyTable, step_s: FloatArray) -> FloatArray:
    """Step times as they are ranked: cutting sequences must gain more than it can be wrong by."""
    is_cut = np.array([variant.shape.sequence > 1 for variant in space.kinds])[table.variant]
    return np.asarray(step_s * np.where(is_cut, CONTEXT_MARGIN, 1.0))


def enumerate_strategies(
    space: SearchSpace, *, num_devices: int, global_batch: int
) -> StrategyTable:
    """Every legal strategy for so many devices and items, as a table."""
    names = [field.name for field in fields(StrategyTable)]

    @cache
    def rows(num_ranks: int, experts: int, *, is_cut: bool, recomputes: bool) -> IntArray:
        found = _rows(space, num_ranks, experts, num_devices, global_batch,
                      is_cut=is_cut, recomputes=recomputes)  # fmt: skip
        return np.array([*found], dtype=np.int64).reshape(-1, len(names) - 1).T

    parts = [np.zeros((len(names), 0), dtype=np.int64)]
    for index, one in enumerate(space.kinds):
        part = rows(
            one.num_ranks, one.shape.experts, is_cut=one.shape.sequence > 1,
            recomputes=one.checkpointing != "none",
        )  # fmt: skip
        parts.append(np.vstack((np.full(part.shape[1], index), part)))
    return StrategyTable(**dict(zip(names, np.concatenate(parts, axis=1), strict=True)))


def _rows(
    space: SearchSpace, num_ranks: int, experts: int, num_devices: int, global_batch: int, *,
    is_cut: bool, recomputes: bool,
) -> Iterator[tuple[int, ...]]:  # fmt: skip
    """Rows of all ways to run the blocks by so many ranks, without the way."""
    if num_devices % num_ranks:
        return
    rest, num_blocks = num_devices // num_ranks, space.num_layers
    for pp in _divisors(rest, num_blocks if space.has_stages else 1):
        dp = rest // pp
        if global_batch % (dp * experts):
            continue
        in_node = space.fabric.even_domain // num_ranks
        shardings = [
            (SHARDINGS.index(sharding), shards)
            for sharding, shards in _shardings(dp, pp, experts, in_node, is_cut=is_cut)
        ]
        for point, size in enumerate(space.microbatches):
            count, left = divmod(global_batch // (dp * experts), size)
            if left or (pp > 1 and count < 2):
                continue
            for kind, chunks in _schedules(pp, count, num_blocks, splits_backward=not recomputes):
                how = dp, pp, chunks, KINDS.index(kind), count, point
                yield from ((*how, *sharding) for sharding in shardings)


def _schedules(
    pp: int, count: int, num_blocks: int, *, splits_backward: bool
) -> Iterator[tuple[ScheduleKind, int]]:
    """Schedules and their chunks; backward is split where nothing is recomputed.

    What is recomputed would have to be kept until the gradients of weights are made, which is what
    recomputing saves.
    """
    if pp == 1:
        yield "plain", 1
        return
    yield "1f1b", 1
    if splits_backward:
        yield "zbh1", 1
    if count % pp == 0:
        yield from (("interleaved", v) for v in _CHUNKS if pp * v <= num_blocks)


def _shardings(
    dp: int, pp: int, experts: int, in_node: int, *, is_cut: bool
) -> Iterator[tuple[Sharding, int]]:
    """State sharding, and how many ranks split where replicas are kept beyond a node; 0 for all."""
    if dp * experts == 1 and not is_cut:
        yield "none", 0
        return
    yield from ((sharding, 0) for sharding in (_WITH_STAGES if pp > 1 else _WITHOUT_STAGES))
    if pp == 1 and experts == 1 and 1 < in_node < dp and dp % in_node == 0:
        yield "zero3", in_node


def _divisors(number: int, limit: int) -> list[int]:
    return [d for d in range(1, min(number, limit) + 1) if number % d == 0]


def _recomputing(configuration: Configuration) -> list[Configuration]:
    return [replace(configuration, checkpointing=how) for how in _CHECKPOINTING]


def evaluated_variants(
    graph: Graph, ways: Sequence[tuple[Configuration, TensorGroup]], device: DeviceTable,
    points: Points, calibration: Calibration | None,
) -> tuple[Variant, ...]:  # fmt: skip
    """The blocks of a model as the ranks of some groups run them, each in a configuration."""
    if not ways:
        return ()
    costs = costs_of_ways(graph, ways, device, points, calibration=calibration)
    return tuple(
        Variant(shape=group.shape, checkpointing=how.checkpointing, costs=one)
        for (how, group), one in zip(ways, costs, strict=True)
    )
