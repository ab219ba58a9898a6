"""The scaling curve: one job on 1, 2, 4, … devices, where it stops paying, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.errors import DoesNotFitError, InvalidInputError, MissingFactError, PacelineError
from paceline.model.graph.costs import Checkpointing
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.table_updates import is_mostly_tables
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.fixed_strategy import at_count, does_not_fit
from paceline.parallelism.legality import check_batch
from paceline.parallelism.search import microbatch_sizes
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.complexity import complexity, kinds_of, num_splits
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.uncertainty import STRATEGY_LOG_SIGMA, width_words
from paceline.planning.decisions.curve import CountedStep, ScalingCurve
from paceline.planning.decisions.default_batches import (
    batch_sizes,
    settled_batch,
    sharing_strategies,
)
from paceline.planning.decisions.knee_point import knee
from paceline.planning.decisions.replica_ways import replica_ways
from paceline.planning.decisions.worth import finished_points, knee_reason, throughput_per_device
from paceline.planning.goal.chance import STATED_Z
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.cases import Cases
from paceline.simulation.held_memory import held_memory
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.search import StrategySearch
from paceline.simulation.simulator import simulate
from paceline.units import format_bytes
from paceline.values import dataclass

#: Best strategies of a search that are compared as stated ones, of each rank of complexity.
_NUM_SEARCHED = 2
#: Share of a step that waits for other devices from which other strategies are looked for.
_WAITING_FRAC = 1 / 3
_NO_LINK = "devices or nodes have no link with each other"


def _same_frac(num_ways: npt.ArrayLike) -> FloatArray:
    """Steps that differ by less than this factor are called the same: the simpler one wins.

    At a chance of 2 in 3, beyond what ways to share a model err apart, each by itself, and, twice
    0.058, the own parts of two steps do. Replicas that exchange are one way.

    Args:
        num_ways: Of both strategies together.
    """
    log_sigma = np.hypot(np.sqrt(np.maximum(num_ways, 1)) * STRATEGY_LOG_SIGMA, 0.082)
    return np.asarray(np.exp(STATED_Z * log_sigma))


#: Ways of two strategies beyond which none is looked for.
_MOST_WAYS = 6
_SAME_FRAC = float(_same_frac(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """How the global batch follows the number of devices. One of the first two, or neither.

    Attributes:
        global_batch: Items per step whatever the count (strong scaling).
        batch_per_device: Items per step and device (weak scaling); by default the smallest that
            keeps one device busy.
        max_global_batch: Items per step beyond which the recipe no longer trains as well; the
            batch stops growing there.
        best_global_batch: Items per step that train best on the compute of the job, if known.
    """

    global_batch: int | None = None
    batch_per_device: int | None = None
    max_global_batch: int | None = None
    best_global_batch: int | None = None

    def shared_batch(self, items: int) -> int:
        """Items of longer steps: ``items`` times the power of two that stays below the best."""
        times = max((self.best_global_batch or items) // items, 1)
        return int(items * 2 ** (times.bit_length() - 1))

    def __post_init__(self) -> None:
        given = (self.global_batch, self.batch_per_device, self.max_global_batch)
        if any(value is not None and value < 1 for value in given):
            raise InvalidInputError("a batch has at least one item", hint="give a positive batch")
        if self.global_batch is not None and self.batch_per_device is not None:
            raise InvalidInputError(
                "both a global batch and a batch per device were given", hint="give one of them"
            )


def scaling_curve(
    job: Job,
    cluster: Cluster,
    *,
    counts: Sequence[int],
    batch: BatchRule,
    num_items: float | None = None,
    calibration: Calibration | None = None,
    strategy: Strategy | None = None,
    widest_log_sigma: float = math.inf,
) -> ScalingCurve:
    """Time, cost, efficiency and memory of a training step on each number of devices.

    For each count the fastest of plain data parallel and ZeRO 1 to 3 that fits in memory is taken,
    with as many microbatches as that needs, or with blocks computed again where memory is short;
    the simpler one where they do not differ beyond doubt.
    Where a third of the step waits for other devices, gradients are summed over the batch that
    trains best. Where none fits, a batch has fewer items than devices, or shards of layers or
    tables still wait so long, everything that can be searched is, if the step is of one pass.

    Args:
        job: What is trained; its strategy and batch are what is tried.
        cluster: On what.
        counts: Numbers of devices.
        batch: How the global batch follows the count.
        num_items: Batch items of the whole job, for time and cost.
        calibration: Of the predictor; the built-in one by default.
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
    asked = _Asked(job=job, cluster=cluster, calibration=calibration)
    wanted = sorted(set(counts))
    if strategy is not None:
        tried = _stated_jobs(asked, strategy, wanted, batch)
        if not batch.global_batch and not batch.batch_per_device:
            sized = tried.sized(batch)
            shared = simulate(*sized.pairs(asked), calibration=calibration)
            tried = sized.settled(shared, cluster)
        found = _stated(asked, tried, simulate(*tried.pairs(asked), calibration=calibration))
        return _curve(_sure(found, widest_log_sigma), cluster, num_items)
    if not batch.global_batch and not batch.batch_per_device:
        sizes = batch_sizes(batch.max_global_batch)
        alone = simulate(*asked.alone(sizes), calibration=calibration)
        each = asked.settled(sizes, alone, wanted)
        batch = replace(batch, batch_per_device=each)
    found = _replicated(asked, {count: _items_per_rank(count, batch) for count in wanted}, batch)
    found = _with_searched(asked, _accumulated(asked, found, batch), batch)
    return _curve(_sure(found, widest_log_sigma), cluster, num_items)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A job on machines of one kind."""

    job: Job
    cluster: Cluster
    calibration: Calibration | None

    def machine(self, count: int) -> Machine:
        """So many of the devices."""
        return Machine.of_cluster(self.cluster, count)

    def alone(self, sizes: Sequence[int]) -> tuple[list[Job], list[Machine]]:
        """One device with batches of some sizes."""
        return self.on(1, Strategy(), sizes)

    def on(
        self, count: int, strategy: Strategy, sizes: Sequence[int]
    ) -> tuple[list[Job], list[Machine]]:
        """So many devices, each with batches of some sizes."""
        jobs = [replace(self.job, strategy=strategy, batch=size) for size in sizes]
        return jobs, [self.machine(count)] * len(jobs)

    def settled(self, sizes: Sequence[int], alone: Steps, counts: Sequence[int]) -> int:
        """Items per device by default; of a model that one device cannot hold, shared by several.

        Raises:
            MissingFactError: The catalogue does not know what the times need.
        """
        if self.fits(alone):
            return settled_batch(sizes, alone, self.cluster)
        alone.check_known()
        for count in counts:
            for strategy in sharing_strategies(count, self.cluster.devices_per_node):
                jobs = self.on(count, strategy, sizes)
                shared = simulate(*jobs, calibration=self.calibration)
                if not any(shared.reasons) and self.fits(shared):
                    return settled_batch(sizes, shared, self.cluster)
        return 1

    def fits(self, steps: Steps) -> bool:
        """Whether any of these steps does."""
        return bool((steps.needed_bytes() <= self.cluster.capacity_bytes).any())


def _sure(found: Sequence[_Found], widest_log_sigma: float) -> list[_Found]:
    """What was found, without the counts whose step is known less well.

    Raises:
        MissingFactError: Nothing but such counts works.
    """
    unsure = {
        one.count: _Rejected(count=one.count, reason=width_words(one.log_sigma, one.count))
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
        [p.count for p in points],
        [p.items_per_s for p in points],
        single=throughput_per_device(points),
    )
    return ScalingCurve(
        points=points, rejected=rejected, knee=turn, reason=knee_reason(points, rejected, turn)
    )


def default_batch(
    job: Job, cluster: Cluster, rule: BatchRule, *, calibration: Calibration | None = None
) -> int:
    """Items per device where none are stated: the fewest that keep one device busy.

    Args:
        job: What is trained.
        cluster: On what.
        rule: Its largest global batch bounds the answer.
        calibration: Of the predictor; the built-in one by default.

    Raises:
        MissingFactError: The catalogue does not know what the times need.
    """
    if rule.batch_per_device:
        return rule.batch_per_device
    sizes = batch_sizes(rule.max_global_batch)
    alone = _Asked(job=job, cluster=cluster, calibration=calibration).alone(sizes)
    return settled_batch(sizes, simulate(*alone, calibration=calibration), cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rejected:
    """A count that does not work, and why."""

    count: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searchable(_Rejected):
    """A count at which data parallel does not work, or waits, and other strategies may do better.

    Attributes:
        global_batch: Items per step that they have.
        is_too_large: Whether memory is the reason.
        replicas: The best of data parallel, where it works.
    """

    global_batch: int
    is_too_large: bool = False
    replicas: CountedStep | None = None

    @property
    def is_searched(self) -> bool:
        """Whether nothing else works, layers are gathered or run again, or no gradients summed."""
        alone = self.replicas
        if alone is None or alone.global_batch < self.global_batch:
            return True
        return "zero3" in alone.strategy or "recompute" in alone.strategy


_Found = CountedStep | _Rejected


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ways:
    """Ways to use replicas at every count, and counts at which there is none.

    Attributes:
        cases: Every sharding level with every number of microbatches that divides a rank's items.
        count: Devices of each way.
        per_rank: Items per device and step, by count.
        without: Why a count has no way.
    """

    cases: Cases
    count: IntArray
    per_rank: dict[int, int]
    without: dict[int, _Rejected]


def _replicas(
    asked: _Asked, items: Mapping[int, int], rule: BatchRule, recompute: Checkpointing
) -> _Ways:
    """List plain data parallel and ZeRO 1 to 3 at every count, with so many items per device."""
    without = {count: why for count in items if (why := _no_way(asked, count, rule))}
    per_rank = {count: each for count, each in items.items() if count not in without}
    cases = replica_ways(asked.job, asked.machine(max(items)), per_rank, recompute=recompute)
    return _Ways(cases=cases, count=cases.replicas, per_rank=per_rank, without=without)


def _no_way(asked: _Asked, count: int, rule: BatchRule) -> _Rejected | None:
    """Why a count has no replicas; None where it has."""
    full = asked.cluster.devices_per_node
    if _items_per_rank(count, rule) < 1:
        return _too_few(count, rule)
    if count > full and count % full:
        return _Rejected(count=count, reason=f"{count} devices do not fill nodes of {full}")
    return None


def _replicated(asked: _Asked, items: Mapping[int, int], rule: BatchRule) -> list[_Found]:
    """The fastest way for each count, with blocks computed again where their memory is short."""
    ways = _replicas(asked, items, rule, "none")
    steps = simulate(ways.cases, calibration=asked.calibration)
    found = _best(asked, ways, steps, rule)
    is_short = steps.needed_bytes() > asked.cluster.capacity_bytes
    is_short &= ways.cases.microbatches == 1
    short = {count: items[count] for count in distinct(ways.count[is_short]).tolist()}
    if not short:
        return found
    ways = _replicas(asked, short, rule, "block")
    steps = simulate(ways.cases, calibration=asked.calibration)
    again = {one.count: one for one in _best(asked, ways, steps, rule)}
    return [_quicker(one, again.get(one.count, one)) for one in found]


def _best(asked: _Asked, ways: _Ways, steps: Steps, rule: BatchRule) -> list[_Found]:
    """The fastest way for each count, and what else may be tried there."""
    steps.check_known()
    needed_bytes = steps.needed_bytes()
    found: dict[int, _Found] = {**ways.without}
    for count, per_rank in ways.per_rank.items():
        rows = np.flatnonzero(ways.count == count)
        fits = needed_bytes[rows] <= asked.cluster.capacity_bytes
        step_s = np.where(fits, steps.step_s[rows], np.inf)
        row = int(rows[np.argmax(step_s <= _SAME_FRAC * step_s.min())])
        if not fits.any():
            found[count] = _too_large(asked, count, per_rank, float(needed_bytes[rows].min()), rule)
        elif not np.isfinite(steps.step_s[row]):
            found[count] = _Rejected(count=count, reason=_NO_LINK)
        else:
            found[count] = _or_shared(_counted(asked, ways.cases.job_at(row), steps, row), rule)
    return [found[count] for count in sorted(found)]


def _accumulated(asked: _Asked, found: list[_Found], rule: BatchRule) -> list[_Found]:
    """The same with gradients that are summed over a longer step where too much of it waits."""
    waiting = {
        one.count: one.global_batch // one.count
        for one in found
        if isinstance(one, _Searchable) and one.replicas
        and one.global_batch > one.replicas.global_batch
    }  # fmt: skip
    if not waiting:
        return found
    longer = {one.count: one for one in _replicated(asked, waiting, rule)}
    return [_quicker(one, longer.get(one.count, one)) for one in found]


def _quicker(replicas: _Found, longer: _Found) -> _Found:
    """What accumulates or computes again, if it is faster beyond doubt; else what does not."""
    summed = _replicas_of(longer)
    return longer if _faster(_replicas_of(replicas), summed) is summed else replicas


def _or_shared(found: CountedStep, rule: BatchRule) -> _Found:
    """Replicas, beside which others are looked for if much of a step waits or is done again."""
    waits = found.exposed_communication_s >= _WAITING_FRAC * found.step_s
    if not waits and "recompute" not in found.strategy:
        return found
    items = rule.shared_batch(found.global_batch) if waits else found.global_batch
    return _Searchable(count=found.count, reason="", global_batch=items, replicas=found)


def _with_searched(asked: _Asked, found: list[_Found], rule: BatchRule) -> list[_Found]:
    """The same with the best of the whole space where data parallel does not work, or waits."""
    shares_tables = is_mostly_tables(asked.job.workload.passes[0].graph)
    waiting = [one for one in found if isinstance(one, _Searchable)]
    searched = [one for one in waiting if one.is_searched or shares_tables]
    if not searched or len(asked.job.workload.passes) != 1:
        return [_replicas_of(one) for one in found]
    most, full = rule.global_batch or rule.batch_per_device or 1, asked.cluster.devices_per_node
    each = max(one.global_batch // one.count for one in searched)
    search = StrategySearch.of(
        asked.job, asked.machine(1), capacity_bytes=asked.cluster.capacity_bytes,
        microbatches=sorted({*microbatch_sizes(most, each * full), *([each] * shares_tables)}),
        calibration=asked.calibration,
    )  # fmt: skip
    better = {one.count: _searched(asked, search, one) for one in searched}
    found = [_replicas_of(one) for one in found]
    return [_faster(one, better[one.count]) if one.count in better else one for one in found]


def _replicas_of(found: _Found) -> _Found:
    """Data parallel where it works, of what other strategies may do better."""
    return (found.replicas or found) if isinstance(found, _Searchable) else found


def _faster(replicas: _Found, shared: _Found) -> _Found:
    """The more complex of two, if the simpler does not work or is slower by more than doubt."""
    if not isinstance(replicas, CountedStep):
        return shared
    if not isinstance(shared, CountedStep):
        return replicas
    ways = num_splits([kinds_of(Strategy.parse(one.strategy)) for one in (replicas, shared)])
    same = float(_same_frac(ways.sum()))
    return shared if shared.items_per_s > same * replicas.items_per_s else replicas


def _searched(asked: _Asked, search: StrategySearch, rejected: _Searchable) -> _Found:
    """The simplest of the best strategies of a space for a count, or why there is none."""
    count = rejected.count
    try:
        jobs, steps = search.best(
            num_devices=count, global_batch=rejected.global_batch, num_best=_NUM_SEARCHED,
            same_factor=float(_same_frac(_MOST_WAYS)),
        )  # fmt: skip
    except (DoesNotFitError, InvalidInputError) as error:
        reason = str(error) if rejected.is_too_large else rejected.reason
        return _Rejected(count=count, reason=reason)
    if not jobs:
        return _Rejected(count=count, reason=rejected.reason)
    kinds = [kinds_of(job.strategy) for job in jobs]
    ranks, ways = complexity(kinds), num_splits(kinds)
    same = _same_frac(ways + ways[np.argmin(steps.step_s)])
    is_same = steps.step_s <= same * steps.step_s.min()
    row = int(np.lexsort((steps.step_s, np.where(is_same, ranks, np.inf)))[0])
    if not math.isfinite(steps.step_s[row]):
        return _Rejected(count=count, reason=_NO_LINK)
    return _counted(asked, jobs[row], steps, row)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stated:
    """A strategy at several counts, in one or more batches, and counts at which it cannot be."""

    jobs: tuple[tuple[int, Job], ...]
    failures: dict[int, PacelineError]

    def pairs(self, asked: _Asked) -> tuple[list[Job], list[Machine]]:
        """What to simulate."""
        return [job for _, job in self.jobs], [asked.machine(count) for count, _ in self.jobs]

    def sized(self, rule: BatchRule) -> _Stated:
        """The same in each microbatch that may be the default; in one at least."""
        most = rule.max_global_batch or math.inf
        jobs = tuple(
            (count, replace(job, batch=size))
            for count, job in self.jobs
            for size in batch_sizes(rule.max_global_batch)
            if size == 1 or size * job.strategy.num_parts <= most
        )
        return replace(self, jobs=jobs)

    def settled(self, steps: Steps, cluster: Cluster) -> _Stated:
        """At each count the microbatch that keeps the devices busy, of some that were simulated."""
        found: dict[int, Job] = {}
        for count in dict.fromkeys(count for count, _ in self.jobs):
            rows = [row for row, (other, _) in enumerate(self.jobs) if other == count]
            shared, sizes = steps.take(rows), [int(self.jobs[row][1].batch) for row in rows]
            is_one = len(sizes) == 1 or any(shared.reasons)
            best = 1 if is_one else settled_batch(sizes, shared, cluster)
            found[count] = self.jobs[rows[sizes.index(best)]][1]
        return replace(self, jobs=tuple(found.items()))


def _stated_jobs(
    asked: _Asked, strategy: Strategy, counts: Sequence[int], rule: BatchRule
) -> _Stated:
    """One strategy on each count, in the batch that is stated; else in microbatches of one."""
    jobs: list[tuple[int, Job]] = []
    failures: dict[int, PacelineError] = {}
    for count in counts:
        try:
            wanted = at_count(strategy, count)
            each = count * rule.batch_per_device if rule.batch_per_device else wanted.num_parts
            items = rule.global_batch or each
            check_batch(wanted, items)
            job = replace(asked.job, strategy=wanted, batch=items // wanted.num_parts)
            jobs.append((count, job))
        except InvalidInputError as error:
            failures[count] = error
    return _Stated(jobs=tuple(jobs), failures=failures)


def _stated(asked: _Asked, tried: _Stated, steps: Steps) -> list[_Found]:
    """The strategy on each count.

    Raises:
        InvalidInputError: It can run on none of them.
        DoesNotFitError: It fits on none of them.
        MissingFactError: The catalogue does not know what its times need.
    """
    failures, capacity_bytes = dict(tried.failures), asked.cluster.capacity_bytes
    found: dict[int, _Found] = {}
    needed_bytes = steps.needed_bytes()
    for row, (count, job) in enumerate(tried.jobs):
        reason = steps.reasons[row]
        if isinstance(reason, (InvalidInputError, DoesNotFitError)):
            failures[count] = reason
        elif reason is not None:
            raise reason
        elif needed_bytes[row] > capacity_bytes:
            failures[count] = does_not_fit(
                job.strategy, float(needed_bytes[row]), asked.cluster.device.name, capacity_bytes
            )
        else:
            found[count] = _counted(asked, job, steps, row)
    if not found:
        raise failures[max(failures)]
    why = {count: _Rejected(count=count, reason=str(error)) for count, error in failures.items()}
    return [(found | why)[count] for count in sorted(found | why)]


def _counted(asked: _Asked, job: Job, steps: Steps, row: int) -> CountedStep:
    """One job with its step."""
    strategy, step_s = job.strategy, float(steps.step_s[row])
    items = int(job.batch) * strategy.num_parts
    return CountedStep(
        count=strategy.num_ranks,
        num_nodes=-(-strategy.num_ranks // asked.cluster.devices_per_node),
        strategy=str(strategy),
        microbatch=int(job.batch),
        global_batch=items,
        step_s=step_s,
        items_per_s=items / step_s,
        memory_bytes=float(steps.needed_bytes()[row]),
        memory_interval_bytes=held_memory(
            job, steps, row, capacity_bytes=asked.cluster.capacity_bytes
        ),
        communication_s=float(steps.communication_s[row]),
        exposed_communication_s=float(steps.exposed_s[row] + steps.tensor_s[row]),
        log_sigma=float(steps.log_sigma[row]),
    )


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
    )


def _too_large(
    asked: _Asked, count: int, per_rank: int, need_bytes: float, rule: BatchRule
) -> _Searchable:
    need, capacity = format_bytes(need_bytes), format_bytes(asked.cluster.capacity_bytes)
    return _Searchable(
        count=count,
        reason=f"needs {need} per device even fully sharded; {asked.cluster.device.name} has "
        f"{capacity}",
        global_batch=rule.shared_batch(per_rank * count),
        is_too_large=True,
    )
