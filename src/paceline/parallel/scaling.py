"""The scaling curve: one job on 1, 2, 4, … devices, where it stops paying, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from paceline.catalog.entities import Device, Link
from paceline.errors import DoesNotFitError, InvalidInputError, MissingFactError
from paceline.parallel.data_parallel import data_parallel_step
from paceline.parallel.knee_point import Knee, knee
from paceline.parallel.links import LinkTable
from paceline.parallel.offload import known_host
from paceline.parallel.profile import gradient_profile, update_bytes
from paceline.parallel.rank_program import Recipe
from paceline.parallel.search import (
    FoundStrategy,
    SearchSpace,
    prepare_search,
    search_strategies,
)
from paceline.parallel.sharded_memory import PeakMoments, peak_moments, sharded_memory_bytes
from paceline.parallel.stated import at_count, evaluate_stated, fabric_of
from paceline.parallel.strategy import Schedule, Sharding, Strategy
from paceline.parallel.worth import finished_points, knee_reason, pace_per_device
from paceline.predict import Calibration, DeviceTable, Points, StepPrediction, predict_pass
from paceline.trace.costs import LoweredPass
from paceline.trace.graph import FloatArray, Graph
from paceline.units import format_bytes

Limit = Literal["nothing", "collective", "batch floor", "memory", "input"]

#: Batches tried when the user names none; throughput has usually settled long before the end.
_MAX_DEFAULT_BATCH = 4096
#: The default batch is the smallest that reaches this share of the best throughput.
_SETTLED_FRAC = 0.98
#: A simpler strategy wins unless another is faster by more than this.
_SAME_FRAC = 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Devices of one kind and how they are joined.

    Attributes:
        device: What is inside.
        devices_per_node: Devices in one node; a smaller job uses part of one.
        device_link: Between devices of a node; None where there is none.
        node_link: Between nodes; None where there is none.
        host_link: Between a device and its host; None where it is not known.
        host_memory_bytes: Main memory of a node; None where it is not known.
        usd_per_device_hour: Price of one device with its share of the node; None if unknown.
        input_items_per_s: Batch items per second that one node can read and prepare; None if
            the input is taken to keep up.
        sends_tokens_once: Whether tokens go to experts by a dispatcher such as DeepEP, instead of
            one copy for each expert.
        keeps_experts_whole: Whether tensor ranks are expert ranks too, with experts of their own,
            instead of sharing each expert.
        hides_exchange: Whether tokens travel while another microbatch is computed.
    """

    device: Device
    devices_per_node: int
    device_link: Link | None
    node_link: Link | None
    host_link: Link | None = None
    host_memory_bytes: float | None = None
    usd_per_device_hour: float | None = None
    input_items_per_s: float | None = None
    sends_tokens_once: bool = False
    keeps_experts_whole: bool = False
    hides_exchange: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """How the global batch follows the number of devices. One of the first two, or neither.

    Attributes:
        global_batch: Items per step whatever the count (strong scaling).
        batch_per_device: Items per step and device (weak scaling); by default the smallest that
            keeps one device busy.
        max_global_batch: Items per step beyond which the recipe no longer trains as well; the
            batch stops growing there.
    """

    global_batch: int | None = None
    batch_per_device: int | None = None
    max_global_batch: int | None = None

    def __post_init__(self) -> None:
        given = (self.global_batch, self.batch_per_device, self.max_global_batch)
        if any(value is not None and value < 1 for value in given):
            raise InvalidInputError("a batch has at least one item", hint="give a positive batch")
        if self.global_batch is not None and self.batch_per_device is not None:
            raise InvalidInputError(
                "both a global batch and a batch per device were given", hint="give one of them"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """The job on one number of devices, run as well as it can be.

    Attributes:
        count: Devices.
        num_nodes: Nodes they take.
        strategy: Canonical strategy string.
        microbatch: Items per device and microbatch.
        global_batch: Items per step over all devices.
        step_s: Step time.
        items_per_s: Batch items per second of all devices.
        time_s: Time for the whole job; None if its size is not known.
        cost_usd: Price of that; None if time or price are not known.
        usd_per_million_items: Price of a million batch items; None without a price.
        efficiency_frac: Throughput per device against the smallest count, or against the best one
            where that is clearly faster.
        memory_bytes: Peak per device, the bound that holds at a chance of 95 %.
        communication_s: Communication per step, hidden or not.
        exposed_communication_s: Of it, what nothing hides.
        limit: What costs most of the lost efficiency.
        next_device_items_per_s: Throughput that each further device adds up to the next count;
            None at the last.
        next_device_usd_per_million_items: What a million of the added items cost.
    """

    count: int
    num_nodes: int
    strategy: str
    microbatch: int
    global_batch: int
    step_s: float
    items_per_s: float
    time_s: float | None
    cost_usd: float | None
    usd_per_million_items: float | None
    efficiency_frac: float
    memory_bytes: float
    communication_s: float
    exposed_communication_s: float
    limit: Limit
    next_device_items_per_s: float | None = None
    next_device_usd_per_million_items: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCurve:
    """A job on several numbers of devices.

    Attributes:
        points: One per count that works, fewest devices first.
        rejected: Counts that do not, each with the reason.
        knee: The last count worth going to.
        reason: Why it stops paying there, in one sentence.
    """

    points: tuple[ScalingPoint, ...]
    rejected: tuple[tuple[int, str], ...]
    knee: Knee
    reason: str


def scaling_curve(
    lowered: LoweredPass,
    cluster: Cluster,
    *,
    counts: Sequence[int],
    batch: BatchRule,
    seq: float = 1.0,
    num_items: float | None = None,
    calibration: Calibration | None = None,
    graph: Graph | None = None,
    strategy: Strategy | None = None,
) -> ScalingCurve:
    """Time, cost, efficiency and memory of a training step on each number of devices.

    For each count the fastest of plain data parallel and ZeRO 1 to 3 that fits in memory is taken,
    with as many microbatches as that needs; the simpler one where they differ by less than 1 %.
    Where none fits, or a batch has fewer items than devices, and the graph is given, everything
    that `search_strategies` knows is searched; with 16-bit weights and FP32 master weights where
    data parallel does not fit.

    Args:
        lowered: The training step.
        cluster: On what.
        counts: Numbers of devices.
        batch: How the global batch follows the count.
        seq: Sequence length.
        num_items: Batch items of the whole job, for time and cost.
        calibration: Of the predictor; the built-in one by default.
        graph: The graph that ``lowered`` was made from; needed with a strategy.
        strategy: The only one wanted, with as many data-parallel replicas as fill the count; the
            best by default.

    Raises:
        InvalidInputError: No counts, or a count below one, or a strategy that cannot run.
        DoesNotFitError: The job works on none of the counts.
    """
    if not counts or min(counts) < 1:
        raise InvalidInputError("no device counts to try", hint="write them like --counts 1,2,4,8")
    job = _Job(lowered, cluster, seq, calibration)
    wanted = sorted(set(counts))
    if strategy is not None:
        assert graph is not None, "blocks are found in the graph"
        found: list[ScalingPoint | _Rejected] = job.stated_points(graph, strategy, wanted, batch)
    else:
        found = job.best_points(wanted, batch, graph)
    points = [point for point in found if isinstance(point, ScalingPoint)]
    rejected = tuple((r.count, r.reason) for r in found if isinstance(r, _Rejected))
    if not points:
        raise DoesNotFitError(
            f"the job works on none of these device counts: {rejected[-1][1]}",
            hint="try other counts, another batch, or a device with more memory",
        )
    finished = finished_points(points, cluster, num_items)
    turn = knee(
        [p.count for p in points], [p.items_per_s for p in points], single=pace_per_device(points)
    )
    return ScalingCurve(
        points=finished, rejected=rejected, knee=turn, reason=knee_reason(finished, rejected, turn)
    )


def default_batch(
    lowered: LoweredPass,
    cluster: Cluster,
    rule: BatchRule,
    *,
    seq: float = 1.0,
    calibration: Calibration | None = None,
) -> int:
    """Items per device where none are stated: the fewest that keep one device busy.

    Args:
        lowered: The training step.
        cluster: On what.
        rule: Its largest global batch bounds the answer.
        seq: Sequence length.
        calibration: Of the predictor; the built-in one by default.
    """
    found = _Job(lowered, cluster, seq, calibration).with_default_batch(rule)
    return found.batch_per_device or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rejected:
    """A count that does not work, and why."""

    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searchable(_Rejected):
    """A count at which data parallel does not work, and other strategies may.

    Attributes:
        global_batch: Items per step that they have.
        is_too_large: Whether memory is the reason; else there are fewer items than devices.
    """

    global_batch: int
    is_too_large: bool


@dataclass(frozen=True, slots=True)
class _Job:
    """A training step on one kind of cluster, ready to be evaluated at any count."""

    lowered: LoweredPass
    cluster: Cluster
    seq: float
    calibration: Calibration | None

    def with_default_batch(self, rule: BatchRule) -> BatchRule:
        """The rule with a batch per device: the smallest fitting one that settles throughput."""
        if rule.batch_per_device:
            return rule
        sizes = 2.0 ** np.arange(math.log2(_MAX_DEFAULT_BATCH) + 1)
        sizes = sizes[sizes <= (rule.max_global_batch or _MAX_DEFAULT_BATCH)]
        step = self._predict(self._points(sizes))
        fits = step.memory_high_bytes[0] <= _capacity(self.cluster.device)
        if not fits.any():
            return replace(rule, batch_per_device=1)
        rate = np.where(fits, sizes / step.mid_s[0], 0.0)
        settled = sizes[rate >= _SETTLED_FRAC * rate.max()]
        return replace(rule, batch_per_device=int(settled[0]))

    def best_points(
        self, counts: Sequence[int], batch: BatchRule, graph: Graph | None
    ) -> list[ScalingPoint | _Rejected]:
        """The fastest way for each count; the whole space where data parallel does not fit."""
        rule = batch if batch.global_batch else self.with_default_batch(batch)
        found = [self.best_point(count, rule) for count in counts]
        wanted = [one for one in found if isinstance(one, _Searchable)]
        if graph is None or not wanted:
            return found
        is_too_large = any(one.is_too_large for one in wanted)
        space = self.search_space(graph, rule, "half-weights" if is_too_large else "autocast")
        return [
            self.searched_point(space, one) if isinstance(one, _Searchable) else one
            for one in found
        ]

    def stated_points(
        self, graph: Graph, strategy: Strategy, counts: Sequence[int], rule: BatchRule
    ) -> list[ScalingPoint | _Rejected]:
        """One strategy on each count.

        Raises:
            InvalidInputError: It can run on none of them.
            DoesNotFitError: It fits on none of them.
        """
        found: list[ScalingPoint | _Rejected] = []
        failures: list[DoesNotFitError | InvalidInputError] = []
        for count in counts:
            try:
                found.append(self._stated_point(graph, at_count(strategy, count), rule))
            except (DoesNotFitError, InvalidInputError) as error:
                failures.append(error)
                found.append(_Rejected(count=count, reason=str(error)))
        if len(failures) == len(counts):
            raise failures[-1]
        return found

    def _stated_point(self, graph: Graph, strategy: Strategy, rule: BatchRule) -> ScalingPoint:
        """By default each microbatch has one item per replica."""
        count = strategy.num_ranks
        items = strategy.num_batches * strategy.schedule.num_microbatches
        if rule.global_batch or rule.batch_per_device:
            items = rule.global_batch or count * (rule.batch_per_device or 1)
        best = evaluate_stated(
            graph, self.lowered.configuration, self.cluster, strategy,
            seq=self.seq, global_batch=items, calibration=self.calibration,
        )  # fmt: skip
        return self._found_point(best, items)

    def best_point(self, count: int, rule: BatchRule) -> ScalingPoint | _Rejected:
        """The fastest way to use ``count`` devices, or why there is none."""
        per_rank = _items_per_rank(count, rule)
        if per_rank < 1:
            return _too_few(count, rule)
        if count > self.cluster.devices_per_node and count % self.cluster.devices_per_node:
            full = self.cluster.devices_per_node
            return _Rejected(count=count, reason=f"{count} devices do not fill nodes of {full}")
        table = self._candidates(count, per_rank)
        fits = table.memory_bytes <= _capacity(self.cluster.device)
        if not fits.any():
            why = _too_large(table.memory_bytes.min(), self.cluster.device)
            return _Searchable(
                count=count, reason=why, global_batch=per_rank * count, is_too_large=True
            )
        step_s = np.where(fits, table.step_s, np.inf)
        best = int(np.argmax(step_s <= _SAME_FRAC * step_s.min()))
        if not np.isfinite(step_s[best]):
            return _Rejected(count=count, reason="devices or nodes have no link with each other")
        return self._point(count, per_rank, table, best)

    def search_space(self, graph: Graph, rule: BatchRule, recipe: Recipe) -> SearchSpace:
        """Everything that could work where data parallel does not."""
        device, configuration = self.cluster.device, self.lowered.configuration
        most = rule.global_batch or rule.batch_per_device or 1
        return prepare_search(
            graph,
            configuration,
            DeviceTable.from_devices([device]),
            fabric_of(self.cluster, configuration),
            seq=self.seq,
            capacity_bytes=_capacity(device),
            microbatches=[2**power for power in range(6) if 2**power <= most],
            recipe=recipe,
            calibration=self.calibration,
            host=known_host(self.cluster.host_link, self.cluster.host_memory_bytes),
        )

    def searched_point(self, space: SearchSpace, rejected: _Searchable) -> ScalingPoint | _Rejected:
        """The best strategy of the whole space for a count, or why there is none."""
        count, items = rejected.count, rejected.global_batch
        try:
            best = search_strategies(space, num_devices=count, global_batch=items, num_best=1)[0]
        except (DoesNotFitError, InvalidInputError) as error:
            return _Rejected(
                count=count, reason=str(error) if rejected.is_too_large else rejected.reason
            )
        if not math.isfinite(best.step_s):
            return _Rejected(count=count, reason="devices or nodes have no link with each other")
        return self._found_point(best, items)

    def _found_point(self, best: FoundStrategy, items: int) -> ScalingPoint:
        count = best.strategy.num_ranks
        return ScalingPoint(
            count=count,
            num_nodes=-(-count // self.cluster.devices_per_node),
            strategy=str(best.strategy),
            microbatch=best.microbatch,
            global_batch=items,
            step_s=best.step_s,
            items_per_s=items / best.step_s,
            time_s=None,
            cost_usd=None,
            usd_per_million_items=None,
            efficiency_frac=1.0,
            memory_bytes=best.memory_bytes,
            communication_s=best.tensor_s + best.exposed_s,
            exposed_communication_s=best.tensor_s + best.exposed_s,
            limit="nothing",
        )

    def _links(self) -> list[LinkTable]:
        links = (self.cluster.device_link, self.cluster.node_link)
        return [LinkTable.from_links([link]) for link in links]

    def _points(self, batches: FloatArray) -> Points:
        return Points(batch=batches, seq=np.full(len(batches), self.seq))

    def _predict(self, points: Points) -> StepPrediction:
        devices = DeviceTable.from_devices([self.cluster.device])
        return predict_pass(self.lowered, devices, points, calibration=self.calibration)

    def _candidates(self, count: int, per_rank: int) -> _Candidates:
        """Every sharding level × number of microbatches, flat."""
        divisors = [m for m in (2**i for i in range(13)) if per_rank % m == 0]
        microbatches = np.array(divisors, dtype=np.float64)
        points = self._points(per_rank / microbatches)
        step, moments = self._predict(points), peak_moments(self.lowered, points)
        parts = [
            self._sharded(count, microbatches, step, moments, level) for level in get_args(Sharding)
        ]
        if count == 1:
            parts = parts[:1]
        return _Candidates(
            sharding=tuple(level for level, _ in zip(get_args(Sharding), parts, strict=False)),
            microbatches=microbatches,
            step_s=np.concatenate([part[0] for part in parts]),
            exposed_s=np.concatenate([part[1] for part in parts]),
            communication_s=np.concatenate([part[2] for part in parts]),
            memory_bytes=np.concatenate([part[3] for part in parts]),
        )

    def _sharded(
        self,
        count: int,
        microbatches: FloatArray,
        step: StepPrediction,
        moments: PeakMoments,
        sharding: Sharding,
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Step, exposed and whole communication, and memory of one sharding level."""
        lowered, cluster = self.lowered, self.cluster
        update_s = update_bytes(lowered) / (cluster.device.memory_bytes_per_s or math.inf)
        kept_s = update_s if sharding == "none" else update_s / count
        rounds = microbatches if sharding == "zero3" else np.ones_like(microbatches)
        links = self._links()
        compute_s = microbatches * (step.mid_s[0] - update_s) + kept_s
        parallel = data_parallel_step(
            mid_s=compute_s / rounds,
            backward_s=step.backward_s[0],
            gradient_bytes=lowered.gradient_bytes,
            num_ranks=np.full_like(microbatches, count),
            ranks_per_node=cluster.devices_per_node,
            device_link=links[0],
            node_link=links[1],
            sharding=sharding,
            parameter_bytes=lowered.parameter_bytes,
            profile=gradient_profile(lowered, batch=1.0, seq=self.seq),
        )
        memory_bytes = sharded_memory_bytes(
            moments, step.memory_high_bytes[0], num_ranks=count, sharding=sharding
        )
        exposed_s = rounds * parallel.exposed_communication_s
        return compute_s + exposed_s, exposed_s, rounds * parallel.communication_s, memory_bytes

    def _point(self, count: int, per_rank: int, table: _Candidates, best: int) -> ScalingPoint:
        cluster = self.cluster
        microbatches = int(table.microbatches[best % len(table.microbatches)])
        sharding = table.sharding[best // len(table.microbatches)]
        num_nodes = -(-count // cluster.devices_per_node)
        input_s = 0.0
        if cluster.input_items_per_s is not None:
            input_s = per_rank * count / num_nodes / cluster.input_items_per_s
        step_s = max(float(table.step_s[best]), input_s)
        schedule = Schedule(num_microbatches=microbatches)
        strategy = Strategy.from_degrees(dp=count, sharding=sharding, schedule=schedule)
        return ScalingPoint(
            count=count,
            num_nodes=num_nodes,
            strategy=str(strategy),
            microbatch=per_rank // microbatches,
            global_batch=per_rank * count,
            step_s=step_s,
            items_per_s=per_rank * count / step_s,
            time_s=None,
            cost_usd=None,
            usd_per_million_items=None,
            efficiency_frac=1.0,
            memory_bytes=float(table.memory_bytes[best]),
            communication_s=float(table.communication_s[best]),
            exposed_communication_s=float(table.exposed_s[best]),
            limit="input" if input_s == step_s else "nothing",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Candidates:
    """Ways to use one number of devices; arrays are (num_shardings × num_microbatches,)."""

    sharding: tuple[Sharding, ...]
    microbatches: FloatArray
    step_s: FloatArray
    exposed_s: FloatArray
    communication_s: FloatArray
    memory_bytes: FloatArray


def _items_per_rank(count: int, rule: BatchRule) -> int:
    if rule.global_batch:
        return rule.global_batch // count
    items = rule.batch_per_device or 1
    return min(items, rule.max_global_batch // count) if rule.max_global_batch else items


def _too_few(count: int, rule: BatchRule) -> _Rejected:
    """More devices than items: strategies that share an item may still use them."""
    items = rule.global_batch or rule.max_global_batch or 1
    return _Searchable(
        count=count,
        reason=f"the global batch of {items:,} has fewer items than devices, and no strategy that "
        "shares items fits",
        global_batch=items,
        is_too_large=False,
    )


def _capacity(device: Device) -> float:
    if device.memory_bytes is None:
        raise MissingFactError(
            f"the memory size of {device.name} is unknown",
            hint="add it to a file of your own devices",
        )
    return device.memory_bytes


def _too_large(need_bytes: float, device: Device) -> str:
    need, capacity = format_bytes(need_bytes), format_bytes(_capacity(device))
    return f"needs {need} per device even fully sharded; {device.name} has {capacity}"
