"""What is predicted for a question: configurations, devices and batch sizes worth it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial

import numpy as np

from paceline.catalog.entities import Device
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.errors import InvalidInputError
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.tensor_groups import cuts_weights
from paceline.planning.forecast.forecasts import (
    AskedRanks,
    BatchWindow,
    Forecast,
    asked_ranks,
    can_split,
    gathered,
    lengths_of,
)
from paceline.planning.forecast.question import Question
from paceline.planning.goal.amounts import is_generation
from paceline.planning.goal.goal import Goal
from paceline.planning.goal.rewrites import OF_A_SEARCH, with_usual
from paceline.planning.goal.service import service_of
from paceline.planning.places.configurations import (
    ConfiguredDevices,
    choose_configurations,
    quantises_whole,
    with_common,
)
from paceline.planning.places.place_table import domain_of, place_memory_bytes
from paceline.planning.places.places import PlaceSearch
from paceline.planning.places.support import device_support, platform_of
from paceline.simulation.rank import rank_steps
from paceline.values import dataclass

#: Models from so many parameters on are also tried with each layer on several devices.
_SPLIT_PARAMETERS = {"infer": 1_000_000_000, "train": 5_000_000_000}
#: Questions whose forecasts and candidates are kept, some 10 MB each: a plan that is widened asks
#: two or three.
MOST_KEPT = 8
_HALF_PRECISIONS = ("bf16", "fp16")
_TENSOR_DEGREES = (2, 4, 8)
#: Stages that are tried where a machine is crowded: its weights take so much of its memory.
_STAGES = (2, 4)
_CROWDED_FRAC = 0.75

#: Where fewer items than this fit a device, recomputing activations is tried too.
_ROOMY_BATCH = 16.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ground:
    """What is predicted for; one is known by its identity.

    Attributes:
        question: What is asked.
        found: Where it could run.
        devices: Devices of the places, in the order of the forecast's rows.
    """

    question: Question
    found: PlaceSearch
    devices: tuple[Device, ...]


@lru_cache(maxsize=MOST_KEPT)
def choose_forecast(ground: Ground) -> Forecast:
    """Predict what candidates can be made of; the last few are kept."""
    question, found, devices = ground.question, ground.found, ground.devices
    configured = _configured(question, found, devices)
    lengths = lengths_of(_batches(question), question.work, seq=question.seq)
    window = _window(question, found, devices)
    asked, steps = list[AskedRanks](), list[Steps]()
    for is_first in (True, False):
        if not (is_first or configured):
            break
        more = asked_ranks(question.workload, configured, devices, lengths, window=window)
        steps += map(
            partial(rank_steps, calibration=question.calibration),
            [one.passes for one in more],
            [one.devices for one in more],
            [one.points for one in more],
        )
        asked += more
        forecast = gathered(asked, steps, lengths, num_devices=len(devices))
        configured = _others(question, forecast, found, devices, configured) if is_first else ()
    return forecast


def _others(
    question: Question,
    plain: Forecast,
    found: PlaceSearch,
    devices: Sequence[Device],
    configured: Sequence[ConfiguredDevices],
) -> tuple[ConfiguredDevices, ...]:
    """What is tried beside the plain configurations, where these leave little room."""
    recomputed = _recomputed(question, plain, devices, configured)
    split = recomputed if question.is_training else configured
    return (*recomputed, *_tensor_parallel(question, split, found, devices))


def batch_ladder(max_batch: int) -> FloatArray:
    """Powers of two and one and a half times them, up to a limit.

    >>> batch_ladder(8).tolist()
    [1.0, 2.0, 3.0, 4.0, 6.0, 8.0]
    """
    powers = 2 ** np.arange(0, 31, dtype=np.int64)
    ladder = distinct(np.concatenate([powers, 3 * powers]))
    return ladder[ladder <= max_batch].astype(np.float64)


def pinned_count(text: str) -> int:
    """A count that the user fixed.

    Raises:
        InvalidInputError: Not a whole number above zero.
    """
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInputError(f"`{text}` is not a count", hint="pin a whole number above zero")
    return int(text)


def _configured(
    question: Question, found: PlaceSearch, devices: Sequence[Device]
) -> tuple[ConfiguredDevices, ...]:
    stacks = {place.device.name: place.stack for place in found.places}
    framework = question.goal.software
    supports = [
        device_support(d, platform_of(stacks[d.name]) or "cuda", framework=framework)
        for d in devices
    ]
    configured = choose_configurations(
        supports,
        question.goal,
        num_parameters=question.workload.num_parameters,
        rewrite=with_usual(
            question.goal.rewrite,
            question.goal.framework,
            is_training=question.workload.task == "train",
            leaving=OF_A_SEARCH,
        ),
        service=service_of(question.goal, question.workload),
        released=question.workload.released,
        is_quantised_whole=quantises_whole(question.workload, question.goal),
        writes=question.workload.generates,
    )
    rows = {device.name: row for row, device in enumerate(devices)}
    pairs = [[rows[part.device.name] for part in p.parts] for p in found.places if p.parts]
    return with_common(configured, supports, [(one, other) for one, other in pairs])


def _recomputed(
    question: Question,
    plain: Forecast,
    devices: Sequence[Device],
    configured: Sequence[ConfiguredDevices],
) -> tuple[ConfiguredDevices, ...]:
    """Training with activations recomputed, on devices where little fits.

    A pinned strategy says itself what is recomputed.
    """
    if not question.is_training or "strategy" in question.goal.pins:
        return ()
    tight = _tight_devices(plain, devices, question.goal)
    return tuple(
        replace(c, configuration=replace(c.configuration, checkpointing="block"), rows=rows)
        for c in configured
        if (rows := tuple(r for r in c.rows if r in tight))
    )


def _tensor_parallel(
    question: Question,
    configured: Sequence[ConfiguredDevices],
    found: PlaceSearch,
    devices: Sequence[Device],
) -> tuple[ConfiguredDevices, ...]:
    """Large models also run with each layer shared by devices of one machine.

    In training that pays only where little else fits, so it comes with recomputing, and in half
    precision.
    """
    workload = question.workload
    degrees = _tensor_degrees(question)
    if question.is_training:
        configured = [
            c
            for c in configured
            if c.configuration.precision in _HALF_PRECISIONS and cuts_weights(c.configuration)
        ]
    counts: dict[str, set[int]] = {device.name: set() for device in devices}
    for place in found.places:
        if place.links.device is not None:
            counts[place.device.name].add(domain_of(place))
    splits = cache(partial(can_split, workload))
    shared = tuple(
        replace(c, rows=rows, tensor_degree=degree)
        for degree in degrees
        for c in configured
        if (rows := tuple(r for r in c.rows if _divides(degree, counts[devices[r].name])))
        if splits(degree, is_served=c.configuration.is_served)
    )
    grouped = (*shared, *_with_shared_experts(question, (*configured, *shared)))
    return (*grouped, *_staged(question, grouped, devices))


def _with_shared_experts(
    question: Question, configured: Sequence[ConfiguredDevices]
) -> Iterator[ConfiguredDevices]:
    """The same as groups with requests of their own that share experts, where that is pinned."""
    pinned = Strategy.parse(question.goal.pins.get("strategy", "dp1"))
    for one in configured:
        is_asked = one.engine is not None and one.tensor_degree == pinned.size("tp")
        if is_asked and pinned.size("ep") > 1:
            yield replace(one, experts=pinned.size("ep"))


def _staged(
    question: Question, shared: Sequence[ConfiguredDevices], devices: Sequence[Device]
) -> Iterator[ConfiguredDevices]:
    """Served models in stages of a machine each, on devices of which one machine is crowded."""
    strategy = Strategy.parse(question.goal.pins.get("strategy", "dp1"))
    pinned = strategy.size("pp")
    for one in shared:
        is_pinned = one.experts == strategy.size("ep")
        is_alone = one.tensor_degree * one.experts == 1
        if one.engine is None or one.engine.splits_layers or not is_pinned or is_alone:
            continue
        width = ELEMENT_BYTES[find_precision(one.configuration.precision).weight_dtype]
        rank_bytes = width * question.workload.num_parameters / one.num_sharing
        rows = tuple(
            row for row in one.rows
            if pinned > 1 or rank_bytes > _CROWDED_FRAC * (devices[row].capacity_bytes or math.inf)
        )  # fmt: skip
        for stages in _tried_stages(question, pinned):
            if rows and one.num_sharing * stages <= question.goal.most_devices:
                yield replace(one, rows=rows, stages=stages)


def _tried_stages(question: Question, pinned: int) -> tuple[int, ...]:
    """The pinned number of stages, or as many as machines that are; else those that are usual."""
    nodes = question.goal.pins.get("nodes")
    if pinned > 1:
        return (pinned,)
    return _STAGES if nodes is None else tuple(n for n in (pinned_count(nodes),) if n > 1)


def _tensor_degrees(question: Question) -> tuple[int, ...]:
    """Ways to share layers that are tried: the pinned one, or those that a large model pays."""
    workload = question.workload
    if "strategy" in question.goal.pins and not question.is_training:
        pinned = Strategy.parse(question.goal.pins["strategy"]).size("tp")
        return (pinned,) if pinned > 1 else ()
    return _TENSOR_DEGREES if workload.num_parameters >= _SPLIT_PARAMETERS[workload.task] else ()


def _divides(degree: int, counts: set[int]) -> bool:
    return any(count % degree == 0 for count in counts)


def _window(question: Question, found: PlaceSearch, devices: Sequence[Device]) -> BatchWindow:
    goal, options = question.goal, question.options
    room_bytes: dict[str, list[float]] = {device.name: [] for device in devices}
    for place in found.places:
        room_bytes[place.device.name].append(place_memory_bytes(place) or 0.0)
    limit = question.batch_limit.max_items or options.max_batch
    is_free = question.is_training and goal.global_batch is None and "batch" not in goal.pins
    return BatchWindow(
        least_bytes=np.array([min(room_bytes[d.name]) for d in devices]),
        most_bytes=np.array([max(room_bytes[d.name]) for d in devices]),
        memory_confidence=goal.memory_confidence,
        num_largest=options.num_largest_batches if is_free else None,
        least_batch=max(limit // goal.most_devices, 1),
    )


def _tight_devices(plain: Forecast, devices: Sequence[Device], goal: Goal) -> frozenset[int]:
    """Rows of devices on which so few items fit that recomputing activations competes."""
    is_cpu = np.array([device.kind == "cpu" for device in devices])
    capacity_bytes = np.where(is_cpu, np.inf, [d.capacity_bytes or 0.0 for d in devices])
    needed = plain.steps.needed_bytes(goal.memory_confidence)
    fits = (needed <= capacity_bytes[None, :, None]).any(axis=0)
    largest = np.max(np.where(fits, plain.batch[None, :], 0.0), axis=1, initial=0.0)
    roomy = min(_ROOMY_BATCH, plain.batch[-1])
    return frozenset(np.flatnonzero(largest < roomy).tolist())


def _batches(question: Question) -> FloatArray:
    """Batch sizes worth predicting.

    A stated concurrency is shared by replicas evenly; without one, a latency goal without a rate
    means requests that arrive one by one.
    """
    goal, work, options = question.goal, question.work, question.options
    if "batch" in goal.pins:
        return np.array([pinned_count(goal.pins["batch"])], dtype=np.float64)
    if question.is_training:
        limit = goal.global_batch or question.batch_limit.max_items or options.max_batch
        return batch_ladder(min(options.max_batch, limit))
    if work.concurrency is not None:
        return np.array(_shares(work.concurrency, goal.most_devices), dtype=np.float64)
    is_interactive = goal.latency_s is not None or goal.ttft_s is not None
    if is_interactive and work.requests_per_s is None and is_generation(question.workload):
        return np.ones(1)
    return batch_ladder(options.max_batch)


def _shares(count: int, most: int) -> list[int]:
    """What each of up to ``most`` replicas has of so many requests, smallest first.

    >>> _shares(12, 8)
    [2, 3, 4, 6, 12]
    """
    return sorted({-(-count // replicas) for replicas in range(1, min(count, most) + 1)})
