"""The scaling curve: one job on 1, 2, 4, … devices, where it stops paying, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.errors import DoesNotFitError, InvalidInputError, MissingFactError
from paceline.parallel.cluster import Cluster
from paceline.parallel.curve import CountedStep, ScalingCurve
from paceline.parallel.knee_point import knee
from paceline.parallel.legality import check_strategy
from paceline.parallel.offload import known_host
from paceline.parallel.replica_work import LoweredStep, as_step
from paceline.parallel.replicas import (
    Job,
    ReplicatedSteps,
    is_replicated,
    replicated_steps,
    stated_steps,
)
from paceline.parallel.room import bound_bytes
from paceline.parallel.search import FoundStrategy, SearchSpace, search_strategies
from paceline.parallel.spread import sharing_in, step_log_sigma, too_wide_words
from paceline.parallel.stated import as_stated, at_count, does_not_fit, evaluate_stated
from paceline.parallel.strategy import Strategy
from paceline.parallel.traced_job import TracedJob
from paceline.parallel.worth import finished_points, knee_reason, pace_per_device
from paceline.predict import Calibration
from paceline.trace.costs import LoweredPass
from paceline.trace.graph import Graph
from paceline.units import format_bytes

#: Batches tried when the user names none; throughput has usually settled long before the end.
_MAX_DEFAULT_BATCH = 4096
#: The default batch is the smallest that reaches this share of the best throughput.
_SETTLED_FRAC = 0.98
#: Microbatch sizes of the search, as far as a batch has so many items.
_MICROBATCHES = (1, 2, 4, 8, 16, 32)
#: Best strategies of a search that are compared as stated ones.
_NUM_SEARCHED = 8
_NO_LINK = "devices or nodes have no link with each other"


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


def scaling_curve(
    lowered: LoweredPass | LoweredStep,
    cluster: Cluster,
    *,
    counts: Sequence[int],
    batch: BatchRule,
    seq: float = 1.0,
    num_items: float | None = None,
    calibration: Calibration | None = None,
    graph: Graph | None = None,
    strategy: Strategy | None = None,
    widest_log_sigma: float = math.inf,
) -> ScalingCurve:
    """Time, cost, efficiency and memory of a training step on each number of devices.

    For each count the fastest of plain data parallel and ZeRO 1 to 3 that fits in memory is taken,
    with as many microbatches as that needs; the simpler one where they differ by less than 1 %.
    Where none fits, or a batch has fewer items than devices, and the graph is given, everything
    that `search_strategies` knows is searched.

    Args:
        lowered: The training step, or one of several passes.
        cluster: On what.
        counts: Numbers of devices.
        batch: How the global batch follows the count.
        seq: Sequence length.
        num_items: Batch items of the whole job, for time and cost.
        calibration: Of the predictor; the built-in one by default.
        graph: The graph that ``lowered`` was made from; None for a step of several passes, which
            replicas alone can run.
        strategy: The only one wanted, with as many data-parallel replicas as fill the count; the
            best by default.
        widest_log_sigma: Counts whose step is known less well are left out.

    Raises:
        InvalidInputError: No counts, or a count below one, or a strategy that cannot run.
        DoesNotFitError: The job works on none of the counts.
        MissingFactError: It is known well enough on none of them.
    """
    if not counts or min(counts) < 1:
        raise InvalidInputError("no device counts to try", hint="write them like --counts 1,2,4,8")
    job = Job(step=as_step(lowered), cluster=cluster, seq=seq, calibration=calibration)
    wanted = sorted(set(counts))
    if strategy is None:
        found = _best_steps(job, wanted, batch, graph)
    else:
        found = _stated_steps(job, graph, strategy, wanted, batch)
    return _curve(_sure(found, widest_log_sigma), cluster, num_items)


def _sure(found: Sequence[_Found], widest_log_sigma: float) -> list[_Found]:
    """What was found, without the counts whose step is known less well.

    Raises:
        MissingFactError: Nothing but such counts works.
    """
    unsure = {
        one.count: _Rejected(count=one.count, reason=too_wide_words(one.log_sigma))
        for one in found
        if isinstance(one, CountedStep) and one.log_sigma > widest_log_sigma
    }
    if unsure and not any(
        isinstance(one, CountedStep) and one.count not in unsure for one in found
    ):
        raise MissingFactError(
            f"the step is {next(iter(unsure.values())).reason}",
            hint="measure on such a device, then `paceline calibrate` and --calibration FILE",
        )
    return [unsure.get(one.count, one) for one in found]


def _curve(found: Sequence[_Found], cluster: Cluster, num_items: float | None) -> ScalingCurve:
    """What was found at each count, compared.

    Raises:
        DoesNotFitError: The job works on none of the counts.
    """
    steps = [one for one in found if isinstance(one, CountedStep)]
    rejected = tuple((one.count, one.reason) for one in found if isinstance(one, _Rejected))
    if not steps:
        raise DoesNotFitError(
            f"the job works on none of these device counts: {rejected[-1][1]}",
            hint="try other counts, another batch, or a device with more memory",
        )
    points = finished_points(steps, cluster, num_items)
    turn = knee(
        [p.count for p in points], [p.items_per_s for p in points], single=pace_per_device(points)
    )
    return ScalingCurve(
        points=points, rejected=rejected, knee=turn, reason=knee_reason(points, rejected, turn)
    )


def default_batch(
    lowered: LoweredPass | LoweredStep,
    cluster: Cluster,
    rule: BatchRule,
    *,
    seq: float = 1.0,
    calibration: Calibration | None = None,
) -> int:
    """Items per device where none are stated: the fewest that keep one device busy.

    Args:
        lowered: The training step, or one of several passes.
        cluster: On what.
        rule: Its largest global batch bounds the answer.
        seq: Sequence length.
        calibration: Of the predictor; the built-in one by default.
    """
    job = Job(step=as_step(lowered), cluster=cluster, seq=seq, calibration=calibration)
    return _with_default_batch(job, rule).batch_per_device or 1


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


_Found = CountedStep | _Rejected


def _with_default_batch(job: Job, rule: BatchRule) -> BatchRule:
    """The rule with a batch per device: the smallest fitting one that settles throughput."""
    if rule.batch_per_device:
        return rule
    sizes = 2.0 ** np.arange(math.log2(_MAX_DEFAULT_BATCH) + 1)
    sizes = sizes[sizes <= (rule.max_global_batch or _MAX_DEFAULT_BATCH)]
    alone = job.alone(job.points(sizes))
    needed_bytes = bound_bytes(alone.memory_mid_bytes, alone.memory_high_bytes)
    fits = needed_bytes <= job.cluster.capacity_bytes
    if not fits.any():
        return replace(rule, batch_per_device=1)
    rate = np.where(fits, sizes / alone.mid_s, 0.0)
    settled = sizes[rate >= _SETTLED_FRAC * rate.max()]
    return replace(rule, batch_per_device=int(settled[0]))


def _best_steps(
    job: Job, counts: Sequence[int], batch: BatchRule, graph: Graph | None
) -> list[_Found]:
    """The fastest way for each count; the whole space where data parallel does not fit."""
    rule = batch if batch.global_batch else _with_default_batch(job, batch)
    found = [_replicated(job, count, rule) for count in counts]
    if graph is None or not any(isinstance(one, _Searchable) for one in found):
        return found
    space = _search_space(TracedJob.of(job, graph), rule)
    return [
        _searched(job, graph, space, one) if isinstance(one, _Searchable) else one for one in found
    ]


def _stated_steps(
    job: Job, graph: Graph | None, strategy: Strategy, counts: Sequence[int], rule: BatchRule
) -> list[_Found]:
    """One strategy on each count.

    Raises:
        InvalidInputError: It can run on none of them.
        DoesNotFitError: It fits on none of them.
    """
    found: list[_Found] = []
    failures: list[DoesNotFitError | InvalidInputError] = []
    for count in counts:
        try:
            found.append(_stated(job, graph, at_count(strategy, count), rule))
        except (DoesNotFitError, InvalidInputError) as error:
            failures.append(error)
            found.append(_Rejected(count=count, reason=str(error)))
    if len(failures) == len(counts):
        raise failures[-1]
    return found


def _stated(job: Job, graph: Graph | None, strategy: Strategy, rule: BatchRule) -> CountedStep:
    """By default each microbatch has one item per replica."""
    count = strategy.num_ranks
    items = strategy.num_parts
    if rule.global_batch or rule.batch_per_device:
        items = rule.global_batch or count * (rule.batch_per_device or 1)
    if graph is None:
        return _stated_passes(job, strategy, items)
    best = evaluate_stated(TracedJob.of(job, graph), strategy, global_batch=items)
    return _found_step(job, best, items)


def _stated_passes(job: Job, strategy: Strategy, items: int) -> CountedStep:
    """Replicas of a step of several passes, which nothing but replicas can run."""
    if not is_replicated(strategy) or strategy.recompute != "none":
        raise InvalidInputError(
            f"`{strategy}` splits one pass, and a step of this job has several",
            hint="state data parallel, such as `dp8` or `dp8+zero3`",
        )
    check_strategy(
        strategy, job.cluster, num_devices=strategy.num_ranks, global_batch=items, num_blocks=1
    )
    ways = stated_steps(job, strategy, [items // strategy.num_parts])
    if ways.fastest(job.cluster.capacity_bytes) is None:
        raise does_not_fit(
            strategy, float(ways.needed_bytes[0]), job.cluster.device.name,
            job.cluster.capacity_bytes,
        )  # fmt: skip
    return _replicated_step(job, strategy.num_ranks, items // strategy.num_ranks, ways, 0)


def _replicated(job: Job, count: int, rule: BatchRule) -> _Found:
    """The fastest data parallel on ``count`` devices, or why there is none."""
    per_rank, full = _items_per_rank(count, rule), job.cluster.devices_per_node
    if per_rank < 1:
        return _too_few(count, rule)
    if count > full and count % full:
        return _Rejected(count=count, reason=f"{count} devices do not fill nodes of {full}")
    ways = replicated_steps(job, count, per_rank)
    best = ways.fastest(job.cluster.capacity_bytes)
    if best is None:
        return _too_large(job, count, per_rank, float(ways.needed_bytes.min()))
    if not np.isfinite(ways.step_s[best]):
        return _Rejected(count=count, reason=_NO_LINK)
    return _replicated_step(job, count, per_rank, ways, best)


def _replicated_step(
    job: Job, count: int, per_rank: int, ways: ReplicatedSteps, way: int
) -> CountedStep:
    """One way, as fast as the nodes can feed it."""
    items, num_nodes = per_rank * count, _num_nodes(job, count)
    input_s = 0.0
    if job.cluster.input_items_per_s is not None:
        input_s = items / num_nodes / job.cluster.input_items_per_s
    busy_s, exposed_s = float(ways.step_s[way]), float(ways.exposed_s[way])
    step_s = max(busy_s, input_s)
    return CountedStep(
        count=count,
        num_nodes=num_nodes,
        strategy=str(ways.strategy(way, count)),
        microbatch=per_rank // int(ways.microbatches[way]),
        global_batch=items,
        step_s=step_s,
        items_per_s=items / step_s,
        memory_bytes=float(ways.needed_bytes[way]),
        communication_s=float(ways.communication_s[way]),
        exposed_communication_s=exposed_s,
        log_sigma=float(
            step_log_sigma(
                ways.log_sigma[way],
                alone_s=busy_s - exposed_s,
                exposed_s=exposed_s,
                starved_s=step_s - busy_s,
                sharing_log_sigma=sharing_in(job.cluster, count),
            )
        ),
        is_input_bound=input_s == step_s,
    )


def _search_space(job: TracedJob, rule: BatchRule) -> SearchSpace:
    """Everything that could work where data parallel does not."""
    most = rule.global_batch or rule.batch_per_device or 1
    host = known_host(job.cluster.host_link, job.cluster.host_memory_bytes)
    return job.space([size for size in _MICROBATCHES if size <= most], host=host)


def _searched(job: Job, graph: Graph, space: SearchSpace, rejected: _Searchable) -> _Found:
    """The best strategy of the whole space for a count, or why there is none."""
    count, items = rejected.count, rejected.global_batch
    try:
        found = search_strategies(
            space, num_devices=count, global_batch=items, num_best=_NUM_SEARCHED
        )
    except (DoesNotFitError, InvalidInputError) as error:
        reason = str(error) if rejected.is_too_large else rejected.reason
        return _Rejected(count=count, reason=reason)
    stated = as_stated(TracedJob.of(job, graph), found, capacity_bytes=job.cluster.capacity_bytes)
    if not stated:
        return _Rejected(count=count, reason=rejected.reason)
    best = min(stated, key=lambda one: one.step_s)
    if not math.isfinite(best.step_s):
        return _Rejected(count=count, reason=_NO_LINK)
    return _found_step(job, best, items)


def _found_step(job: Job, best: FoundStrategy, items: int) -> CountedStep:
    count = best.strategy.num_ranks
    exposed_s = best.tensor_s + best.exposed_s
    lost_s = best.bubble_s + exposed_s
    alone = job.alone(job.points([best.microbatch]))
    return CountedStep(
        count=count,
        num_nodes=_num_nodes(job, count),
        strategy=str(best.strategy),
        microbatch=best.microbatch,
        global_batch=items,
        step_s=best.step_s,
        items_per_s=items / best.step_s,
        memory_bytes=best.needed_bytes(),
        communication_s=exposed_s,
        exposed_communication_s=exposed_s,
        log_sigma=float(
            step_log_sigma(
                alone.log_sigma[0],
                alone_s=best.step_s - lost_s,
                exposed_s=lost_s,
                sharing_log_sigma=sharing_in(job.cluster, count),
            )
        ),
    )


def _num_nodes(job: Job, count: int) -> int:
    return -(-count // job.cluster.devices_per_node)


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


def _too_large(job: Job, count: int, per_rank: int, need_bytes: float) -> _Searchable:
    need, capacity = format_bytes(need_bytes), format_bytes(job.cluster.capacity_bytes)
    return _Searchable(
        count=count,
        reason=f"needs {need} per device even fully sharded; {job.cluster.device.name} has "
        f"{capacity}",
        global_batch=per_rank * count,
        is_too_large=True,
    )
