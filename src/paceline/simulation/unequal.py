"""Data parallel over two kinds of device: each gets items in proportion to its speed.

Every rank has a whole copy of the model and reduces its gradients with all others, so that a step
takes as long as its slowest rank. The batch is split so that both kinds are done at the same time,
as nearly as whole items and memory allow. Means of losses must be weighted by items: a framework
that averages over ranks would count the items of a slow device more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.memory.memory_fit import MEMORY_CONFIDENCE
from paceline.parallelism.replicas.data_parallel_work import (
    ReplicatedStep,
    ReplicaWork,
    replicated_step,
)
from paceline.parallelism.replicas.shares import Share
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.uncertainty import (
    interval_of,
    lanes_s,
    shared_log_sigmas,
    sharing_in,
    step_log_sigma,
)
from paceline.planfile import Interval
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.cases import Cases
from paceline.simulation.held_memory import held_interval
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.rank import RankPasses
from paceline.simulation.replicas import replica_work, with_memory
from paceline.simulation.simulator import simulate
from paceline.values import dataclass

#: Splits evaluated; beyond, they are spread evenly, which is as good as whole items can be.
_MOST_SPLITS = 512
#: Splits that differ by less, which is within the error, are alike.
_SAME_FRAC = 1.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Devices of one kind.

    Attributes:
        cluster: Which, and how they are joined.
    """

    cluster: Cluster
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidInputError("a part has no devices", hint="write a count above zero")

    @property
    def room_bytes(self) -> float:
        """Memory of each; processors work in their machine's, which is not limited here."""
        is_cpu = self.cluster.device.kind == "cpu"
        return math.inf if is_cpu else self.cluster.capacity_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class UnequalStep:
    """A step on two kinds of device.

    Attributes:
        shares: Of the first kind and of the second.
        global_batch: Items of all devices.
        step_s: Step time.
        step_interval_s: Of it, at a chance of 80 %.
        exposed_communication_s: Of it, communication that nothing hides, and waiting.
        items_per_s_interval: Of it, slow where the step is long.
        equal_items_per_s: With as many items for every device; None where that does not fit or
            divide.
        best_alone_items_per_s: Of the better kind without the other, at the same global batch; None
            where neither fits or divides it.
    """

    shares: tuple[Share, Share]
    global_batch: int
    step_s: float
    step_interval_s: Interval
    exposed_communication_s: float
    items_per_s: float
    items_per_s_interval: Interval
    equal_items_per_s: float | None
    best_alone_items_per_s: float | None


def unequal_step(
    job: Job,
    first: Part,
    second: Part,
    *,
    global_batch: int,
    strategy: Strategy | None = None,
    memory_confidence: float = MEMORY_CONFIDENCE,
    calibration: Calibration | None = None,
) -> UnequalStep:
    """Split a global batch over two kinds of device as well as can be.

    Args:
        job: What is trained; its strategy and batch are what is chosen.
        first: Devices of one kind.
        second: Of the other.
        global_batch: Items per step of all of them.
        strategy: What is asked for, if anything; plain data parallel over all devices is the only
            one that runs.
        memory_confidence: Chance at which each device must have the memory for its items.
        calibration: Of the predictor; the built-in one by default.

    Raises:
        InvalidInputError: No split gives everybody whole items, or the strategy is another.
        DoesNotFitError: None fits into memory.
    """
    _check_strategy(strategy, first.count + second.count)
    asked = _Question(
        job=job, parts=(first, second), global_batch=global_batch,
        memory_confidence=memory_confidence, calibration=calibration,
    )  # fmt: skip
    found = _evaluated(asked)
    best = _best(asked, found)
    equal = found.equal()
    step_s, exposed_s = float(found.step_s[best]), float(found.exposed_s[best])
    shares = (found.share(job, first, best, 0), found.share(job, second, best, 1))
    device, sharing = shared_log_sigmas(shares)
    log_sigma = float(
        step_log_sigma(
            device, alone_s=step_s - exposed_s, exposed_s=exposed_s, sharing_log_sigma=sharing
        )
    )
    return UnequalStep(
        shares=shares,
        global_batch=global_batch,
        step_s=step_s,
        step_interval_s=interval_of(step_s, log_sigma),
        exposed_communication_s=exposed_s,
        items_per_s=global_batch / step_s,
        items_per_s_interval=interval_of(global_batch / step_s, log_sigma),
        equal_items_per_s=None if equal is None else float(global_batch / found.step_s[equal]),
        best_alone_items_per_s=_best_alone(asked),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Question:
    """A training step whose batch two kinds of device share."""

    job: Job
    parts: tuple[Part, Part]
    global_batch: int
    memory_confidence: float
    calibration: Calibration | None

    def alone(self, part: Part, items: npt.NDArray[np.int64], num_ranks: int) -> Steps:
        """Times of one device alone, with so many items, (num_splits,), and its peak among ranks.

        Args:
            part: Which kind.
            items: Of each device.
            num_ranks: Of all kinds that reduce gradients together, which takes buckets.
        """
        one = Machine.of_cluster(part.cluster, 1)
        cases = Cases(
            jobs=(replace(self.job, strategy=Strategy()),),
            machines=(one,),
            job=np.zeros(len(items), dtype=np.int64),
            machine=np.zeros(len(items), dtype=np.int64),
            batch=items.astype(np.float64),
            replicas=np.ones(len(items), dtype=np.int64),
            microbatches=np.ones(len(items), dtype=np.int64),
        )
        steps = simulate(cases, calibration=self.calibration)
        steps.check()
        ranks = replace(cases, replicas=np.full_like(cases.replicas, num_ranks))
        seq = np.full(len(items), float(self.job.length))
        return with_memory(ranks, RankPasses.of(self.job), steps, seq, "none")

    def work(self) -> ReplicaWork:
        """What a step asks of replicas."""
        return replica_work(RankPasses.of(self.job), float(self.job.length))

    def has_room(self, part: Part, alone: Steps) -> npt.NDArray[np.bool_]:
        """Whether a device of a kind has the memory for its items, (num_splits,)."""
        return np.asarray(alone.needed_bytes(self.memory_confidence) <= part.room_bytes)


def _best(asked: _Question, found: _Splits) -> int:
    """The split to take.

    Raises:
        InvalidInputError: The two kinds of device have no link.
        DoesNotFitError: No split fits.
    """
    best = found.best()
    if best is None:
        first, second = (part.cluster.device.name for part in asked.parts)
        raise DoesNotFitError(
            f"no split of {asked.global_batch} items fits {first} and {second}",
            hint="take a smaller global batch, or more devices",
        )
    if not np.isfinite(found.step_s[best]):
        raise InvalidInputError(
            "the two kinds of device have no link with each other",
            hint="choose machines whose network is known",
        )
    return best


def _check_strategy(strategy: Strategy | None, count: int) -> None:
    if strategy is not None and strategy != Strategy.from_degrees(dp=count):
        raise InvalidInputError(
            f"`{strategy}` gives every rank the same work, and these devices are unequal",
            hint=f"unequal devices run plain data parallel over all of them: `dp{count}`",
        )


def _splits(first: int, second: int, global_batch: int) -> npt.NDArray[np.int64]:
    """Items per device of each kind, at least one each, (num_splits, 2).

    Raises:
        InvalidInputError: There is none.
    """
    own = np.arange(1, global_batch // first + 1, dtype=np.int64)
    other, left = np.divmod(global_batch - own * first, second)
    whole = np.flatnonzero((left == 0) & (other >= 1))
    if not len(whole):
        step = int(np.lcm(first, second))
        enough = (-(-global_batch // step) + 1) * step
        raise InvalidInputError(
            f"{global_batch} items do not split into whole items for {first} and {second} devices",
            hint=f"take a global batch such as {enough}",
        )
    kept = distinct(np.linspace(0, len(whole) - 1, _MOST_SPLITS).round().astype(np.int64))
    equal = np.flatnonzero(own[whole] == other[whole])
    chosen = whole[np.union1d(kept, equal)]
    return np.stack([own[chosen], other[chosen]], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Splits:
    """Splits evaluated, (num_splits,), or with the two kinds, (2, num_splits)."""

    items: npt.NDArray[np.int64]
    alone_s: FloatArray
    alone_log_sigma: FloatArray
    memory_mid_bytes: FloatArray
    memory_bytes: FloatArray
    joined_bytes: FloatArray
    step_s: FloatArray
    exposed_s: FloatArray
    sent_s: FloatArray
    fits: npt.NDArray[np.bool_]

    def best(self) -> int | None:
        """The fastest split that fits; of those alike, the one nearest to equal shares."""
        if not self.fits.any():
            return None
        step_s = np.where(self.fits, self.step_s, np.inf)
        is_best = step_s <= _SAME_FRAC * step_s.min()
        return int(np.argmin(np.where(is_best, np.abs(self.items[0] - self.items[1]), np.inf)))

    def equal(self) -> int | None:
        """The split into equal shares; None where it does not fit or divide."""
        rows = np.flatnonzero(self.fits & (self.items[0] == self.items[1]))
        return int(rows[0]) if len(rows) else None

    def share(self, job: Job, part: Part, row: int, kind: int) -> Share:
        """What one kind does of a job in one split."""
        items, mid_bytes = int(self.items[kind, row]), float(self.memory_mid_bytes[kind, row])
        held = held_interval(
            replace(job, batch=items, strategy=Strategy()),
            Interval(low=mid_bytes, mid=mid_bytes, high=float(self.memory_bytes[kind, row])),
            capacity_bytes=part.room_bytes, joined_bytes=float(self.joined_bytes[kind, row]),
        )  # fmt: skip
        return Share(
            device=part.cluster.device.name,
            count=part.count,
            items_per_device=items,
            alone_s=float(self.alone_s[kind, row]),
            memory_mid_bytes=held.mid,
            memory_bytes=held.high,
            log_sigma=float(self.alone_log_sigma[kind, row]),
            sharing_log_sigma=sharing_in(
                part.cluster,
                part.count,
                sent_s=float(self.sent_s[row]),
                step_s=float(self.step_s[row]),
            ),
        )


def _evaluated(asked: _Question) -> _Splits:
    """Every split of the batch.

    Raises:
        InvalidInputError: There is none.
    """
    first, second = asked.parts
    items = _splits(first.count, second.count, asked.global_batch).T
    num_ranks = first.count + second.count
    steps = [asked.alone(*pair, num_ranks) for pair in zip(asked.parts, items, strict=True)]
    alone_s = np.stack([_rising(s.step_s, own) for s, own in zip(steps, items, strict=True)])
    backward_s = np.stack([step.backward_s for step in steps])
    update_s = np.stack([step.update_s for step in steps])
    fits = [asked.has_room(*pair) for pair in zip(asked.parts, steps, strict=True)]
    together = _reduced(
        asked, asked.parts, alone_s.max(axis=0), backward_s.min(axis=0), update_s.max(axis=0)
    )
    return _Splits(
        items=items,
        alone_s=alone_s,
        alone_log_sigma=np.stack([step.log_sigma for step in steps]),
        memory_mid_bytes=np.stack([step.memory_mid_bytes for step in steps]),
        memory_bytes=np.stack([step.memory_high_bytes for step in steps]),
        joined_bytes=np.nan_to_num(np.stack([step.communicator_bytes for step in steps])),
        step_s=together.step_s,
        exposed_s=together.exposed_s,
        sent_s=lanes_s(
            together.communication_s,
            _slower(asked.parts, "device_link"),
            _slower(asked.parts, "node_link"),
            is_spread=True,
        ),
        fits=np.logical_and(*fits),
    )


def _rising(seconds: FloatArray, items: npt.NDArray[np.int64]) -> FloatArray:
    """Times that never fall with more items: predictions of single sizes scatter by some 3 %."""
    order = np.argsort(items)
    rising = np.empty_like(seconds)
    rising[order] = np.maximum.accumulate(seconds[order])
    return rising


def _reduced(
    asked: _Question,
    parts: Sequence[Part],
    alone_s: FloatArray,
    backward_s: FloatArray,
    update_s: FloatArray,
) -> ReplicatedStep:
    """Steps of all ranks together over the slower of each link."""
    return replicated_step(
        asked.work(),
        alone_s=alone_s,
        backward_s=backward_s,
        update_s=update_s,
        microbatches=1,
        num_ranks=np.full_like(alone_s, sum(part.count for part in parts)),
        ranks_per_node=min(min(part.count, part.cluster.devices_per_node) for part in parts),
        device_link=_slower(parts, "device_link"),
        node_link=_slower(parts, "node_link"),
    )


def _slower(parts: Sequence[Part], name: str) -> LinkTable:
    """The slower of the links of that name; one that carries nothing where a part has none."""
    links = [getattr(part.cluster, name) for part in parts]
    is_known = all(link is not None for link in links)
    slowest = min(links, key=lambda link: link.bytes_per_s) if is_known else None
    return LinkTable.from_links([slowest])


def _best_alone(asked: _Question) -> float | None:
    """Items per second of the better kind that runs the whole batch without the other."""
    rates = (_alone(asked, part) for part in asked.parts)
    return max((rate for rate in rates if rate is not None), default=None)


def _alone(asked: _Question, part: Part) -> float | None:
    items, left = divmod(asked.global_batch, part.count)
    if left:
        return None
    step = asked.alone(part, np.array([items]), part.count)
    if not asked.has_room(part, step)[0]:
        return None
    reduced = _reduced(asked, [part], step.step_s, step.backward_s, step.update_s)
    step_s = float(reduced.step_s[0])
    return asked.global_batch / step_s if np.isfinite(step_s) else None
