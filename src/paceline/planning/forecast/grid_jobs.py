"""The jobs of a grid of predictions: every (place, batch, configuration), listed.

In inference a place is filled with replicas; where the weights of a model half fill a device, ways
in which ranks share every layer are listed too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from paceline.catalog.entities import Catalog, Device, OfferLinks
from paceline.catalog.entities import Machine as OwnMachine
from paceline.catalog.offer_links import machine_links, offer_links
from paceline.catalog.usual_hosts import usual_host
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Checkpointing
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.graph.workload import Workload
from paceline.model.table_updates import updates_rows
from paceline.parallelism.strategy.strategy import Schedule, Sharding, Strategy
from paceline.planning.forecast.forecasts import can_split, lengths_of
from paceline.planning.goal.amounts import resolve_job
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.goal.rewrites import with_usual
from paceline.planning.goal.service import (
    Service,
    arrival_words,
    kernels_words,
    service_of,
    service_words,
    widened_words,
)
from paceline.planning.places.configurations import (
    ConfiguredDevices,
    DeviceSupport,
    choose_configurations,
    quantises_whole,
    widens_fp8,
)
from paceline.planning.places.support import newest_support, unreleased_support, why_unmodelled
from paceline.simulation.cases import Cases
from paceline.simulation.job import Habit, Job, usual_habits
from paceline.simulation.machine import Machine
from paceline.simulation.rank import RankPasses, rank_memory_bytes
from paceline.stack.engines import EngineProfile, no_kernels
from paceline.values import dataclass

#: Devices that one machine can hold; beyond it a network is needed, which an offer names.
MAX_DEVICES_PER_MACHINE = 16

#: Devices of all machines among which the layers of a served model may be staged.
MAX_SERVING_DEVICES = 64

#: Stages that are tried where the devices of one machine do not hold a model.
_STAGES = (2, 4, 8)
#: Devices that may share every layer, most first.
_TENSOR_DEGREES = (8, 4, 2, 1)
#: Of its memory, from where on a device may be too small for a model with its caches.
_CROWDED_FRAC = 0.5
#: Where nobody says what the devices of a training job split.
UNSTATED_SHARDINGS = ("none", "auto")
#: Weights, gradients and two moments of a parameter in mixed precision.
#: Source: Rajbhandari et al., "ZeRO", SC 2020, section 3.1.
_STATE_BYTES = 16
#: Devices named in a sentence.
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class UnansweredDevice:
    """A device without a prediction.

    Attributes:
        device: ``Device.name``.
        reason: One sentence.
    """

    device: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GridAxes:
    """What the cells of a grid are, and what all of them have in common.

    Attributes:
        counts: Devices in one machine, data parallel in training; in inference replicas, or ranks
            that share every layer where one device cannot hold the model or one request is served.
        batches: Items per device.
        seq: Sequence length; the workload's own if None.
        keeps_best_batch_only: Keep the batch of highest throughput of each device and count; where
            the memory is not limited, the smallest that nearly has it.
        checkpointing: What training recomputes in the backward pass.
        rewrite: Further settings, as `paceline.model.settings.read_settings` reads them.
        sharding: What the devices of a training job split; ``auto`` is zero3 where one of them
            holds no batch, and nothing elsewhere.
        loop_compilers: Of what no engine serves, where the goal names none and the device has
            them; else its fastest.
        takes_unreleased: Whether devices are answered for which no release has kernels.
        has_load: Whether requests come by a load that says itself how, beside the cells.
    """

    devices: Sequence[Device]
    counts: Sequence[int] = (1,)
    batches: Sequence[int] = (1,)
    seq: int | None = None
    keeps_best_batch_only: bool = False
    checkpointing: Checkpointing = "none"
    rewrite: str = ""
    sharding: Sharding | Literal["auto"] = "none"
    loop_compilers: tuple[str, ...] = ()
    takes_unreleased: bool = False
    has_load: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridCases:
    """The jobs of a grid: every (place, batch, configuration), flat, in that order.

    Attributes:
        workload: The model with its task.
        goal: Its chance to fit counts.
        work: Prompt and output lengths of a generation.
        catalog: Where links were looked up.
        axes: What the cells are.
        batch: Items per device, rising.
        configured: How, and how many ranks share every layer.
        rows: Of the whole product, those that are predicted.
        cases: What they are.
        samples_per_item: Samples that a batch item counts for.
        assumptions: Printed first, one sentence each.
        supports: Devices with software.
        unanswered: Devices without.
    """

    workload: Workload
    goal: Goal
    work: Work
    catalog: Catalog
    axes: GridAxes
    places: tuple[GridPlace, ...]
    batch: FloatArray
    configured: tuple[ConfiguredDevices, ...]
    rows: IntArray
    cases: Cases
    samples_per_item: float
    assumptions: tuple[str, ...]
    supports: tuple[DeviceSupport, ...]
    unanswered: tuple[UnansweredDevice, ...]

    def along(self, axes: GridAxes) -> GridCases:
        """The jobs of the same question along other axes."""
        return grid_cases(self.workload, self.goal, self.work, self.catalog, axes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Places, batches and configurations."""
        return len(self.places), len(self.batch), len(self.configured)


def grid_cases(
    workload: Workload, goal: Goal, work: Work, catalog: Catalog, axes: GridAxes
) -> GridCases:
    """List the jobs of a grid; arguments are those of `predict_grid`."""
    work = work.of(workload)
    seq = axes.seq or workload.default_seq
    service = service_of(goal, workload)
    supports, unanswered = _supported(axes, goal, service)
    configured = choose_configurations(
        supports,
        goal,
        num_parameters=workload.num_parameters,
        checkpointing=axes.checkpointing,
        rewrite=with_usual(
            axes.rewrite,
            goal.framework,
            is_training=workload.task == "train",
            leaving=() if axes.checkpointing == "none" else ("checkpointing",),
        ),
        service=service,
        preferred=axes.loop_compilers,
        released=workload.released,
        is_quantised_whole=quantises_whole(workload, goal),
        writes=workload.generates,
    )
    configured = (
        *_stated(workload, configured, axes),
        *_shared(workload, configured, supports, axes, asks_service=service is not None),
        *_split_state(workload, configured, supports, axes),
    )
    places = _places(catalog, [support.device for support in supports], axes.counts)
    batch = np.array(sorted(set(axes.batches)), dtype=np.float64)
    rows, cases = _cases(workload, work, configured, places, batch, axes, goal)
    return GridCases(
        workload=workload,
        goal=goal,
        work=work,
        catalog=catalog,
        axes=axes,
        places=places,
        batch=batch,
        configured=configured,
        rows=rows,
        cases=cases,
        samples_per_item=resolve_job(workload, work, seq=seq).amount.samples_per_item,
        assumptions=(
            *filter(None, (kernels_words(goal, workload),)),
            *_assumptions(workload, work, places, seq),
            *_table_words(configured, axes),
            *_served_words(configured, supports, service, _arrivals(work, axes), workload),
            *_widened_words(configured, supports, goal),
            *(one.assumption for one in supports if one.assumption),
        ),
        supports=supports,
        unanswered=unanswered,
    )


def _habits(
    workload: Workload, goal: Goal, configured: ConfiguredDevices, count: int
) -> tuple[Habit, ...]:
    """What named software does where replicas split a training state."""
    if count == 1 or configured.sharding == "none":
        return ()
    return usual_habits(
        goal.framework or "", model=workload.name, device=None,
        configuration=configured.configuration,
    )  # fmt: skip


def _cases(
    workload: Workload, work: Work, configured: Sequence[ConfiguredDevices],
    places: Sequence[GridPlace], batch: FloatArray, axes: GridAxes, goal: Goal,
) -> tuple[IntArray, Cases]:  # fmt: skip
    """Rows of the product that a device runs, and what they are."""
    shape = (len(places), len(batch), len(configured))
    place, item, configuration = (index.ravel() for index in np.indices(shape))
    runs = np.zeros((len(places), len(configured)), dtype=bool)
    for column, one in enumerate(configured):
        runs[:, column] = [p.row in one.rows and _shares(p, one) for p in places]
    counts = sorted({p.count for p in places})
    number = np.array([counts.index(p.count) for p in places], dtype=np.int64)
    is_answered = workload.generates
    jobs = tuple(
        Job(
            workload=workload,
            configuration=one.configuration,
            strategy=_strategy(count, one),
            seq=axes.seq,
            prompt_tokens=work.prompt_length if is_answered else None,
            output_tokens=work.output_length if is_answered else None,
            profile=one.profile,
            habits=_habits(workload, goal, one, count),
        )
        for count in counts
        for one in configured
    )
    machines = tuple(
        Machine.of(
            p.device,
            p.count,
            devices_per_node=p.per_node if is_staged else None,
            device_link=p.links.device,
            node_link=p.links.node,
            num_vcpus=p.num_vcpus,
        )
        for is_staged in (False, True)
        for p in places
    )  # fmt: skip
    can_be_best = runs[place, configuration]
    if axes.keeps_best_batch_only and counts == [1] and workload.task == "train":
        least_bytes = np.zeros((len(jobs), len(batch)))
        # Programs of one platform come one after another, as the last few are kept.
        for row in sorted(range(len(jobs)), key=lambda row: jobs[row].configuration.platform):
            least_bytes[row] = _least_bytes(jobs[row], batch, work)
        capacities_bytes = np.array([capacity_bytes(p.device) for p in places])
        can_be_best &= (item == 0) | (least_bytes[configuration, item] <= capacities_bytes[place])
    rows = np.flatnonzero(can_be_best)
    at, counts_of = place[rows], np.array([p.count for p in places], dtype=np.int64)
    each = [max(counts) if one.shares_tables else one.num_sharing for one in configured]
    degrees = np.array(each, dtype=np.int64)
    stages = np.array([one.stages for one in configured], dtype=np.int64)[configuration[rows]]
    return rows, Cases(
        jobs=jobs,
        machines=machines,
        job=number[at] * len(configured) + configuration[rows],
        machine=at + len(places) * (stages > 1),
        batch=batch[item[rows]],
        replicas=np.maximum(counts_of[at] // degrees[configuration[rows]], 1),
        microbatches=stages,
    )


def _least_bytes(job: Job, batch: FloatArray, work: Work) -> FloatArray:
    """Median peak of one rank alone, (P,); nothing where it cannot run, which its step says."""
    try:
        passes = RankPasses.of(job)
    except InvalidInputError:
        return np.zeros_like(batch)
    return rank_memory_bytes(passes, lengths_of(batch, work, seq=job.length))[1]


def _places(
    catalog: Catalog, devices: Sequence[Device], counts: Sequence[int]
) -> tuple[GridPlace, ...]:
    return tuple(
        _place(catalog, device, row, count)
        for row, device in enumerate(devices)
        for count in counts
    )  # fmt: skip


def _strategy(count: int, how: ConfiguredDevices) -> Strategy:
    """Replicas of so many ranks that share layers, or ranks that share tables."""
    if how.shares_tables:
        return Strategy.from_degrees(ep=count)
    replicas = max(count // how.num_sharing, 1)
    return Strategy.from_degrees(
        dp=replicas, tp=how.tensor_degree, pp=how.stages,
        schedule=Schedule.filled(how.stages),
        sharding=how.sharding if replicas > 1 else "none",
    )  # fmt: skip


def _shares(place: GridPlace, how: ConfiguredDevices) -> bool:
    """Whether ranks share in a place what they would: every layer by as many as engines take."""
    degree = how.tensor_degree
    if how.stages > 1:
        is_filled = place.per_node == degree and place.count % how.num_sharing == 0
        return is_filled and place.links.node is not None
    return degree == 1 or (degree == _engine_degree(place.count) and place.links.device is not None)


def _engine_degree(count: int) -> int:
    """Of so many devices, those that share every layer where one cannot hold the model.

    >>> [_engine_degree(count) for count in (1, 2, 4, 6, 16)]
    [1, 2, 4, 2, 8]
    """
    return next(degree for degree in _TENSOR_DEGREES if count % degree == 0)


def _shared(
    workload: Workload, configured: Sequence[ConfiguredDevices], supports: Sequence[DeviceSupport],
    axes: GridAxes, *, asks_service: bool,
) -> Iterator[ConfiguredDevices]:  # fmt: skip
    """Inference whose ranks share every layer, on devices that the weights alone half fill.

    Everywhere where one request at a time is served, by an engine or by the plain loop that stands
    for one: all devices write its tokens.
    """
    degrees = sorted({_engine_degree(count) for count in axes.counts} - {1})
    if workload.task == "train":
        return
    for one in configured:
        precision = find_precision(one.configuration.precision)
        weights_bytes = ELEMENT_BYTES[precision.weight_dtype] * workload.num_parameters
        is_served = one.configuration.is_served
        rows = tuple(
            row
            for row in one.rows
            if (asks_service and 1 in axes.batches)
            or weights_bytes > _CROWDED_FRAC * capacity_bytes(supports[row].device)
        )
        for degree in degrees if rows else ():
            if can_split(workload, degree, is_served=is_served):
                yield replace(one, rows=rows, tensor_degree=degree)
        yield from _staged(workload, one, supports, axes)


def _staged(
    workload: Workload, one: ConfiguredDevices, supports: Sequence[DeviceSupport], axes: GridAxes
) -> Iterator[ConfiguredDevices]:
    """The same in stages of a machine each, on devices of which one machine is crowded."""
    degree = _TENSOR_DEGREES[0]
    if one.engine is None or one.engine.splits_layers or max(axes.counts) <= degree:
        return
    precision = find_precision(one.configuration.precision)
    weights_bytes = ELEMENT_BYTES[precision.weight_dtype] * workload.num_parameters
    rows = tuple(
        row
        for row in one.rows
        if weights_bytes / degree > _CROWDED_FRAC * capacity_bytes(supports[row].device)
    )
    if rows and can_split(workload, degree, is_served=True):
        for stages in (s for s in _STAGES if degree * s <= max(axes.counts)):
            yield replace(one, rows=rows, tensor_degree=degree, stages=stages)


def _stated(
    workload: Workload, configured: Sequence[ConfiguredDevices], axes: GridAxes
) -> Iterator[ConfiguredDevices]:
    """The same, with what is stated of the training state; else tables as trainers share them."""
    for one in configured:
        if axes.sharding != "auto":
            yield replace(one, sharding=axes.sharding)
        else:
            how = one.configuration.table_updates
            yield replace(one, shares_tables=updates_rows(workload.passes[0].graph, how))


def _split_state(
    workload: Workload, configured: Sequence[ConfiguredDevices], supports: Sequence[DeviceSupport],
    axes: GridAxes,
) -> Iterator[ConfiguredDevices]:  # fmt: skip
    """Training whose state all devices share, on those that it alone would half fill."""
    if workload.task != "train" or axes.sharding != "auto" or max(axes.counts) == 1:
        return
    state_bytes = _STATE_BYTES * workload.num_parameters
    for one in configured:
        rows = tuple(
            row
            for row in one.rows
            if state_bytes > _CROWDED_FRAC * capacity_bytes(supports[row].device)
        )
        if rows and not one.shares_tables:
            yield replace(one, rows=rows, sharding="zero3")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridPlace:
    """So many devices of a kind, in one machine but where stages are in several.

    Attributes:
        device: Of all of them.
        row: Of the device.
        count: How many there are.
        links: Between them.
        num_vcpus: As many as machines for rent have for each, in the median; None where none has.
        per_node: Of them, what one machine has where stages are in several.
    """

    device: Device
    row: int
    count: int
    links: OfferLinks
    num_vcpus: int | None
    per_node: int


def _supported(
    axes: GridAxes, goal: Goal, service: Service | None
) -> tuple[tuple[DeviceSupport, ...], tuple[UnansweredDevice, ...]]:
    stated = service.engine if service is not None and service.is_stated else goal.engine
    supports: list[DeviceSupport] = []
    unanswered: list[UnansweredDevice] = []
    for device in axes.devices:
        support = newest_support(device, framework=goal.software)
        if support is None and axes.takes_unreleased:
            support = unreleased_support(device, framework=goal.software)
            if support is not None and stated is not None and stated.is_portable:
                support = replace(support, assumption="")  # No release of the framework is asked.
        if support is None:
            reason = why_unmodelled(device, framework=goal.software)
            unanswered.append(UnansweredDevice(device=device.name, reason=reason))
        elif stated is not None and not stated.serves_on(device, support.platform):
            reason = no_kernels(stated, device)
            unanswered.append(UnansweredDevice(device=device.name, reason=reason))
        elif device.memory_bytes is None and device.kind != "cpu":
            reason = "the size of its memory is unknown"
            unanswered.append(UnansweredDevice(device=device.name, reason=reason))
        else:
            supports.append(support)
    return tuple(supports), tuple(unanswered)


def capacity_bytes(device: Device) -> float:
    """What one device has; a CPU takes the memory of its machine, which is not said here."""
    return device.capacity_bytes or math.inf


def _place(catalog: Catalog, device: Device, row: int, count: int) -> GridPlace:
    """As the largest machine for rent joins these devices, else as a machine of one's own would."""
    offers = [offer for offer in catalog.offers if offer.device_name == device.name]
    if not offers:
        machine = OwnMachine(name="machine", device_name=device.name, num_devices=count)
        links, num_vcpus, per_node = machine_links(catalog, machine), None, count
    else:
        largest = max(offers, key=lambda offer: offer.num_devices)
        links = offer_links(catalog, replace(largest, num_devices=float(count)))
        share = usual_host(catalog, device.name).num_vcpus
        num_vcpus = max(round(share * count), 1) if share else None
        per_node = min(count, max(int(largest.num_devices), 1))
    return GridPlace(
        device=device,
        row=row,
        count=count,
        links=links,
        num_vcpus=num_vcpus,
        per_node=per_node,
    )


def _assumptions(
    workload: Workload, work: Work, places: Sequence[GridPlace], seq: int
) -> Iterator[str]:
    yield from filter(None, (workload.item,))
    parts = [workload.input_description]
    if workload.generates:
        parts.append(f"prompt {work.prompt_length}, answer {work.output_length} tokens")
    elif seq > 1:
        parts.append(f"{workload.length_name} {seq}")
    parts += [f"{workload.optimizer}"] if workload.optimizer else []
    parts.append("input fed fast enough")
    yield ", ".join(part for part in parts if part)
    yield from _joints(places)


def _table_words(configured: Sequence[ConfiguredDevices], axes: GridAxes) -> Iterator[str]:
    if max(axes.counts) > 1 and any(one.shares_tables for one in configured):
        yield "devices share its tables, each with items of its own (--sharding none for replicas)"


def _joints(places: Sequence[GridPlace]) -> Iterator[str]:
    """By what several devices are joined, one sentence per device; counts where that differs."""
    joined: dict[str, dict[str, list[str]]] = {}
    for place in places:
        if place.count > 1 and place.links.device is not None:
            by_link = joined.setdefault(place.device.name, {})
            by_link.setdefault(place.links.device.name, []).append(str(place.count))
    for device, by_link in joined.items():
        if len(by_link) == 1:
            yield f"{device}: joined by {next(iter(by_link))}"
        else:
            each = (f"{' or '.join(counts)} by {link}" for link, counts in by_link.items())
            yield f"{device}: joined {', '.join(each)}"


def _arrivals(work: Work, axes: GridAxes) -> str:
    return "" if axes.has_load else arrival_words(work)


def _served_words(
    configured: Sequence[ConfiguredDevices], supports: Sequence[DeviceSupport],
    service: Service | None, arrivals: str, workload: Workload,
) -> Iterator[str]:  # fmt: skip
    """How requests are served, and where they are not."""
    if service is None:
        return
    served: dict[EngineProfile, set[int]] = {}
    for one in configured:
        if one.engine is not None:
            served.setdefault(one.engine, set()).update(one.rows)
    for engine, rows in served.items():
        words = service_words(engine, arrivals, is_stated=service.is_stated, window=workload.window)
        yield words if len(served) == 1 else f"{_some(supports, rows)}: {words}"
    if served:
        runs = {c.configuration.precision for c in configured if c.configuration.is_served}
        if own := sorted(runs & set(workload.released)):
            yield f"weights as they are released ({', '.join(own)}; --precision bf16 else)"
    others = {row for c in configured if c.engine is None for row in c.rows}
    if others:
        yield f"a plain loop on {_some(supports, others)}, where no engine is modelled"


def _widened_words(
    configured: Sequence[ConfiguredDevices], supports: Sequence[DeviceSupport], goal: Goal
) -> Iterator[str]:
    rows = {
        row for one in configured for row in one.rows if widens_fp8(one, supports[row].device, goal)
    }
    if rows:
        yield widened_words(_some(supports, rows))


def _some(supports: Sequence[DeviceSupport], rows: Collection[int]) -> str:
    """The first of some devices by name, and how many more there are."""
    names = ", ".join(supports[row].device.name for row in sorted(rows)[:_NAMED])
    return f"{names} and {len(rows) - _NAMED} more" if len(rows) > _NAMED else names
