"""Which runs to measure first, so that the choice between strategies is sure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.errors import DoesNotFitError
from paceline.parallel.blocks import TensorGroup, rank_traits
from paceline.parallel.cluster import Cluster
from paceline.parallel.replica_work import as_step
from paceline.parallel.replicas import Job, is_replicated, replicated_steps
from paceline.parallel.search import FoundStrategy, SearchSpace, prepare_search, search_strategies
from paceline.parallel.stated import fabric_of
from paceline.parallel.strategy import Strategy
from paceline.parallel.trial_worth import (
    better_chances,
    doubts,
    once_measured,
    saved_frac,
    worth_of_trials,
)
from paceline.predict import Calibration, DeviceTable, Points
from paceline.predict.lessons import Spreads
from paceline.predict.told import pass_traits
from paceline.predict.traits import StepTraits
from paceline.trace import lower
from paceline.trace.costs import Configuration
from paceline.trace.graph import FloatArray, Graph
from paceline.trace.master_weights import kept_format

#: A run that is worth less of the step, over all its rivals, is not asked for.
_LEAST_WORTH = 0.002
#: So many of the fastest strategies compete.
_NUM_RIVALS = 64
#: Microbatch sizes that are tried, as far as a device has so many items.
_MICROBATCHES = tuple(2**n for n in range(11))
#: Ranks that share a model take more items each: sizes up to this are always tried.
_LEAST_LARGEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run that is worth measuring.

    Attributes:
        found: What runs, as predicted.
        step: What measurements know it by.
        log_shift: What measurements have moved its predicted time by already, as a logarithm.
        better_chance: That it is faster than the strategy predicted best; of that one itself, that
            the strongest rival is not.
    """

    found: FoundStrategy
    step: StepTraits
    log_shift: float
    better_chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSet:
    """Runs that are worth measuring together.

    Attributes:
        trials: Most worth first; none where the choice is sure.
        saved_frac: Share of the step's time that is lost less on average once all are measured.
    """

    trials: tuple[Trial, ...]
    saved_frac: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialQuestion:
    """One training step of one global batch on so many devices of a cluster."""

    graph: Graph
    configuration: Configuration
    cluster: Cluster
    count: int
    global_batch: int
    seq: float
    calibration: Calibration

    @property
    def device(self) -> DeviceTable:
        """A table of the one device."""
        return DeviceTable.from_devices([self.cluster.device])

    def points(self, sizes: Sequence[int]) -> Points:
        """Microbatches of these sizes."""
        batch = np.array(sizes, dtype=np.float64)
        return Points(batch=batch, seq=np.full(len(batch), float(self.seq)))

    @property
    def microbatches(self) -> tuple[int, ...]:
        """Sizes that the batch has items for."""
        most = max(self.global_batch // self.count, 1)
        return tuple(size for size in _MICROBATCHES if size <= max(most, _LEAST_LARGEST))


def worthwhile_trials(asked: TrialQuestion, num_trials: int) -> TrialSet:
    """The runs to measure, the most worth first; each knows that those before it are measured.

    Fewer where none is left that is worth it.

    Raises:
        InvalidInputError: No combination of degrees uses exactly so many devices and items.
        DoesNotFitError: None fits into memory.
    """
    found, steps = rivals(asked)
    lessons = asked.calibration.lessons.get(asked.cluster.device.name)
    covariance = doubts(steps, Spreads.of(asked.calibration.constants["calibrate"]), lessons)
    shifts = np.zeros(len(steps)) if lessons is None else lessons.log_shift(steps)
    log_s = np.log([one.step_s for one in found])
    chances = better_chances(log_s, covariance)
    places = _chosen(log_s, covariance, num_trials)
    return TrialSet(
        trials=tuple(
            Trial(
                found=found[place], step=steps[place], log_shift=float(shifts[place]),
                better_chance=float(chances[place]),
            )
            for place in places
        ),
        saved_frac=saved_frac(log_s, covariance, places),
    )  # fmt: skip


def _chosen(log_s: FloatArray, covariance: FloatArray, num_trials: int) -> list[int]:
    """Places of runs to measure, one after the other."""
    contest, places = np.zeros(len(log_s), dtype=np.int64), list[int]()
    for _ in range(min(num_trials, len(log_s))):
        worth = worth_of_trials(log_s, contest, covariance)
        place = int(np.argmax(worth))
        if worth[place] < _LEAST_WORTH:
            break
        places.append(place)
        covariance = once_measured(covariance, place)
    return places


def rivals(asked: TrialQuestion) -> tuple[list[FoundStrategy], list[StepTraits]]:
    """The fastest strategies that fit, and what measurements know their ranks' microbatches by.

    Replicas are as `replicated_steps` has them, all others as the search has them.

    Raises:
        InvalidInputError: No combination of degrees uses exactly so many devices and items.
        DoesNotFitError: None fits into memory.
    """
    replicas, space = _replicas(asked), _space(asked)
    try:
        searched = search_strategies(
            space, num_devices=asked.count, global_batch=asked.global_batch, num_best=_NUM_RIVALS
        )
    except DoesNotFitError:
        if not replicas:
            raise
        searched = ()
    split = [one for one in searched if not is_replicated(one.strategy)]
    return [*replicas, *split], [
        *_replica_steps(asked, replicas),
        *_split_steps(asked, space, split),
    ]


def _replicas(asked: TrialQuestion) -> list[FoundStrategy]:
    if asked.global_batch % asked.count:
        return []
    per_rank = asked.global_batch // asked.count
    job = Job(
        step=as_step(lower(asked.graph, asked.configuration)), cluster=asked.cluster,
        seq=asked.seq, calibration=asked.calibration,
    )  # fmt: skip
    ways = replicated_steps(job, asked.count, per_rank)
    fitting = np.flatnonzero(ways.needed_bytes <= asked.cluster.capacity_bytes)
    return [
        FoundStrategy(
            strategy=ways.strategy(way, asked.count),
            microbatch=per_rank // int(ways.microbatches[way]),
            step_s=float(ways.step_s[way]),
            bubble_s=0.0,
            tensor_s=0.0,
            exposed_s=float(ways.exposed_s[way]),
            memory_mid_bytes=float(ways.memory_mid_bytes[way]),
            memory_bytes=float(ways.memory_bytes[way]),
        )
        for way in fitting.tolist()
        if math.isfinite(ways.step_s[way])
    ]


def _replica_steps(asked: TrialQuestion, found: Sequence[FoundStrategy]) -> list[StepTraits]:
    if not found:
        return []
    sizes = sorted({one.microbatch for one in found})
    steps = pass_traits(
        lower(asked.graph, asked.configuration), asked.device, asked.points(sizes),
        asked.calibration,
    )  # fmt: skip
    return [steps[sizes.index(one.microbatch)] for one in found]


def _split_steps(
    asked: TrialQuestion, space: SearchSpace, found: Sequence[FoundStrategy]
) -> list[StepTraits]:
    known: dict[tuple[object, ...], tuple[StepTraits, ...]] = {}

    def of(one: FoundStrategy) -> StepTraits:
        strategy = one.strategy
        how = replace(asked.configuration, checkpointing=strategy.recompute)
        key = (*(strategy.size(axis) for axis in ("tp", "cp", "ep")),
               strategy.sequence_parallel, strategy.recompute)  # fmt: skip
        if key not in known:
            known[key] = rank_traits(
                asked.graph, how, asked.device, asked.points(space.microbatches),
                _group(strategy, space),
                recipe=kept_format(asked.graph, asked.configuration),
                calibration=asked.calibration,
            )  # fmt: skip
        return known[key][space.microbatches.index(one.microbatch)]

    return [of(one) for one in found]


def _group(strategy: Strategy, space: SearchSpace) -> TensorGroup:
    return TensorGroup(
        degree=strategy.size("tp"),
        ranks_per_node=space.fabric.devices_per_node,
        device_link=space.fabric.device_link,
        node_link=space.fabric.node_link,
        sequence_parallel=strategy.sequence_parallel,
        context_degree=strategy.size("cp"),
        expert_degree=strategy.size("ep"),
    )


def _space(asked: TrialQuestion) -> SearchSpace:
    return prepare_search(
        asked.graph,
        asked.configuration,
        asked.device,
        fabric_of(asked.cluster, asked.configuration),
        seq=asked.seq,
        capacity_bytes=asked.cluster.capacity_bytes,
        microbatches=asked.microbatches,
        calibration=asked.calibration,
    )
