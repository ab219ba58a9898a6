"""The search: places × nodes × sharding × configuration × batch, evaluated in arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from paceline.catalog.entities import Catalog, Device
from paceline.errors import InvalidInputError
from paceline.parallel import LinkTable
from paceline.plan.amounts import Job, is_generation, resolve_job
from paceline.plan.candidates import (
    BatchRule,
    CandidateTable,
    enumerate_candidates,
)
from paceline.plan.chance import normal_quantile
from paceline.plan.configurations import ConfiguredDevices, choose_configurations
from paceline.plan.evaluation import (
    Constraint,
    Evaluation,
    constraints,
    evaluate,
    objective_name,
    objective_values,
)
from paceline.plan.forecasts import BatchWindow, Forecast, can_split, forecast, join_forecasts
from paceline.plan.goal import Goal, Work
from paceline.plan.input_side import input_format, place_input_samples_per_s
from paceline.plan.interruption import Checkpointing
from paceline.plan.place_table import (
    BoolArray,
    PlaceTable,
    num_devices,
    place_memory_bytes,
    place_table,
)
from paceline.plan.places import PlaceSearch, find_places
from paceline.plan.support import device_support, platform_of
from paceline.predict import Calibration, builtin_calibration
from paceline.predict.input import SampleFormat
from paceline.trace.graph import FloatArray
from paceline.trace.workload import Workload

#: An 80 % interval wider than half to double is an abstention.
_WIDEST_LOG_SIGMA = math.log(2.0) / 1.2815515655446004

#: Language models from so many parameters on are also tried on several devices per answer.
_SPLIT_PARAMETERS = 1_000_000_000
_TENSOR_DEGREES = (2, 4, 8)

#: Where fewer items than this fit a device, recomputing activations is tried too.
_ROOMY_BATCH = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How far the search goes.

    Attributes:
        seq: Sequence length; None takes the workload's.
        max_batch: Largest batch per device that is tried.
        num_largest_batches: Batches kept per place, count, sharding and configuration in training.
        accumulates: Whether gradient accumulation is tried between devices.
        max_choices: Choices listed.
        setup_s: Paid time of a rented machine before work begins: booting, images, fetching data.
        checkpoint_bytes_per_s: Rate at which state is saved where machines can be taken back.
    """

    seq: int | None = None
    max_batch: int = 2048
    num_largest_batches: int = 4
    accumulates: bool = True
    max_choices: int = 8
    setup_s: float = 600.0
    checkpoint_bytes_per_s: float = 1e9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """Everything the search saw; the plan and its explanations are read from it.

    Attributes:
        workload: What is run.
        goal: What is wanted.
        work: As the user gave it.
        job: As it was resolved.
        options: How far it went.
        seq: Sequence length used.
        today: The day prices are judged on.
        stored: How samples lie on disk; None where the input is taken to keep up.
        found: Places and rejections.
        devices: Devices, by row of the forecast.
        forecast: Predictions of one device each.
        places: Places as arrays.
        candidates: Everything that fits.
        evaluation: Its figures.
        constraints: What the goal demands.
        is_certain: Finite figures, and an interval narrow enough to be an answer,
            (num_candidates,).
        is_ranked: Certain, with a fresh price, likewise.
        is_feasible: Ranked, and every constraint met, (num_candidates,).
        objective: What is to be small, (num_candidates,).
        calibration: Of the predictor.
    """

    workload: Workload
    goal: Goal
    work: Work
    job: Job
    options: SearchOptions
    seq: int
    today: date
    stored: SampleFormat | None
    found: PlaceSearch
    devices: tuple[Device, ...]
    forecast: Forecast
    places: PlaceTable
    candidates: CandidateTable
    evaluation: Evaluation
    constraints: tuple[Constraint, ...]
    is_certain: BoolArray
    is_ranked: BoolArray
    is_feasible: BoolArray
    objective: FloatArray
    calibration: Calibration


def run_search(
    workload: Workload,
    goal: Goal,
    work: Work,
    catalog: Catalog,
    *,
    today: date,
    options: SearchOptions,
    calibration: Calibration | None = None,
) -> Search:
    """Evaluate every candidate.

    Args:
        workload: The model with its task.
        goal: Constraints and objective.
        work: How much is to be done.
        catalog: Devices and offers.
        today: The day prices are judged on.
        options: How far to go.
        calibration: Of the predictor; the built-in one if None.
    """
    calibration = calibration or builtin_calibration()
    seq = options.seq or workload.default_seq
    job = resolve_job(workload, work, seq=seq)
    stored = input_format(workload, goal, work)
    found = find_places(catalog, goal, today=today)
    fed = [
        place_input_samples_per_s(p, workload, stored) if stored else math.inf for p in found.places
    ]
    devices = tuple({p.device.name: p.device for p in found.places}.values())
    predictions = _forecast(workload, goal, work, found, devices, options, seq, calibration)
    places = place_table(found.places, devices, fed, today=today, setup_s=options.setup_s)
    candidates = _restrict(
        enumerate_candidates(
            places,
            predictions,
            _batch_rule(workload, goal, options),
            node_counts=_node_counts(workload, goal, work),
            max_devices=goal.max_devices,
            is_training=workload.task == "train",
        ),
        goal,
    )
    links = [place.links for place in found.places]
    evaluation = evaluate(
        candidates,
        places,
        predictions,
        job.amount,
        LinkTable.from_links([link.device for link in links]),
        LinkTable.from_links([link.node for link in links]),
        _checkpointing(predictions, options),
    )
    stated = constraints(evaluation, goal, job.amount)
    is_certain = np.isfinite(evaluation.step_s) & (evaluation.log_sigma <= _WIDEST_LOG_SIGMA)
    is_ranked = places.is_ranked[candidates.place] & is_certain
    is_ranked &= np.isfinite(evaluation.pareto_cost)
    is_feasible = np.logical_and.reduce([is_ranked, *(c.is_met for c in stated)])
    return Search(
        workload=workload,
        goal=goal,
        work=work,
        job=job,
        options=options,
        seq=seq,
        today=today,
        stored=stored,
        found=found,
        devices=devices,
        forecast=predictions,
        places=places,
        candidates=candidates,
        evaluation=evaluation,
        constraints=stated,
        is_certain=is_certain,
        is_ranked=is_ranked,
        is_feasible=is_feasible,
        objective=objective_values(evaluation, goal),
        calibration=calibration,
    )


def batch_ladder(max_batch: int) -> FloatArray:
    """Powers of two and one and a half times them, up to a limit.

    >>> batch_ladder(8).tolist()
    [1.0, 2.0, 3.0, 4.0, 6.0, 8.0]
    """
    powers = 2 ** np.arange(0, 31, dtype=np.int64)
    ladder = np.unique(np.concatenate([powers, 3 * powers]))
    return ladder[ladder <= max_batch].astype(np.float64)


def _forecast(
    workload: Workload,
    goal: Goal,
    work: Work,
    found: PlaceSearch,
    devices: Sequence[Device],
    options: SearchOptions,
    seq: int,
    calibration: Calibration,
) -> Forecast:
    stacks = {place.device.name: place.stack for place in found.places}
    supports = [device_support(d, platform_of(stacks[d.name]) or "cuda") for d in devices]
    configured = choose_configurations(
        supports, goal, task=workload.task, num_parameters=workload.num_parameters
    )
    batch = _batches(workload, goal, work, options)
    window = _window(workload, goal, found, devices, options)
    plain = forecast(
        workload, configured, devices, batch, work, seq=seq, calibration=calibration, window=window
    )
    tight = _tight_devices(plain, devices, goal) if workload.task == "train" else frozenset()
    recomputed = tuple(
        replace(c, configuration=replace(c.configuration, checkpointing="full"), rows=rows)
        for c in configured
        if (rows := tuple(r for r in c.rows if r in tight))
    )
    others = recomputed + _tensor_parallel(workload, configured, found, devices)
    if not others:
        return plain
    more = forecast(
        workload, others, devices, batch, work, seq=seq, calibration=calibration, window=window
    )
    return join_forecasts(plain, more)


def _tensor_parallel(
    workload: Workload,
    configured: Sequence[ConfiguredDevices],
    found: PlaceSearch,
    devices: Sequence[Device],
) -> tuple[ConfiguredDevices, ...]:
    """Large language models also answer with each layer shared by devices of one machine."""
    if not is_generation(workload) or workload.num_parameters < _SPLIT_PARAMETERS:
        return ()
    counts: dict[str, set[int]] = {device.name: set() for device in devices}
    for place in found.places:
        if place.links.device is not None:
            counts[place.device.name].add(num_devices(place))
    return tuple(
        replace(c, rows=rows, tensor_degree=degree)
        for degree in _TENSOR_DEGREES
        if can_split(workload, degree)
        for c in configured
        if (rows := tuple(r for r in c.rows if _divides(degree, counts[devices[r].name])))
    )


def _divides(degree: int, counts: set[int]) -> bool:
    return any(count % degree == 0 for count in counts)


def _window(
    workload: Workload,
    goal: Goal,
    found: PlaceSearch,
    devices: Sequence[Device],
    options: SearchOptions,
) -> BatchWindow:
    memory: dict[str, list[float]] = {device.name: [] for device in devices}
    for place in found.places:
        memory[place.device.name].append(place_memory_bytes(place) or 0.0)
    limit = workload.max_global_batch or options.max_batch
    is_free = workload.task == "train" and goal.global_batch is None and "batch" not in goal.pins
    return BatchWindow(
        least_bytes=np.array([min(memory[d.name]) for d in devices]),
        most_bytes=np.array([max(memory[d.name]) for d in devices]),
        memory_z=normal_quantile(goal.memory_confidence),
        num_largest=options.num_largest_batches if is_free else None,
        least_batch=max(limit // goal.max_devices, 1),
    )


def _tight_devices(plain: Forecast, devices: Sequence[Device], goal: Goal) -> frozenset[int]:
    """Rows of devices on which so few items fit that recomputing activations competes."""
    is_cpu = np.array([device.kind == "cpu" for device in devices])
    capacity = np.where(is_cpu, np.inf, [device.memory_bytes or 0.0 for device in devices])
    needed = plain.memory_mid_bytes * np.exp(
        normal_quantile(goal.memory_confidence) * plain.memory_log_sigma
    )
    fits = (needed <= capacity[None, :, None]).any(axis=0)
    largest = np.max(np.where(fits, plain.batch[None, :], 0.0), axis=1, initial=0.0)
    roomy = min(_ROOMY_BATCH, plain.batch[-1])
    return frozenset(np.flatnonzero(largest < roomy).tolist())


def _batches(workload: Workload, goal: Goal, work: Work, options: SearchOptions) -> FloatArray:
    """Batch sizes worth predicting.

    Requests that arrive one by one, as a latency goal without a rate means, run at the stated
    concurrency and no other.
    """
    if "batch" in goal.pins:
        return np.array([_whole(goal.pins["batch"])], dtype=np.float64)
    is_interactive = goal.latency_s is not None or goal.ttft_s is not None
    is_stated = is_interactive and work.requests_per_s is None and is_generation(workload)
    if workload.task == "infer" and is_stated:
        return np.array([work.concurrency], dtype=np.float64)
    limit = goal.global_batch or workload.max_global_batch or options.max_batch
    return batch_ladder(min(options.max_batch, limit))


def _batch_rule(workload: Workload, goal: Goal, options: SearchOptions) -> BatchRule:
    is_training = workload.task == "train"
    return BatchRule(
        max_global_batch=workload.max_global_batch if is_training else None,
        exact_global_batch=goal.global_batch if is_training else None,
        num_largest=options.num_largest_batches if is_training else options.max_batch,
        accumulates=options.accumulates and is_training and goal.global_batch is None,
        memory_z=normal_quantile(goal.memory_confidence),
    )


def _node_counts(workload: Workload, goal: Goal, work: Work) -> tuple[int, ...]:
    """Machine counts: powers of two where ranks work together, finer where they only serve."""
    if "nodes" in goal.pins:
        return (_whole(goal.pins["nodes"]),)
    powers = [2**i for i in range(31) if 2**i <= goal.max_devices]
    if workload.task == "train":
        return tuple(powers)
    if not _needs_replicas(goal, work):
        return (1,)
    finer = {n for p in powers for n in (p, p + p // 4, p + p // 2, p + 3 * p // 4)}
    return tuple(sorted(n for n in finer if n <= goal.max_devices))


def _needs_replicas(goal: Goal, work: Work) -> bool:
    """Whether several machines could be better than one: only if speed is asked for."""
    limits = (goal.deadline_s, goal.min_samples_per_s, work.requests_per_s)
    return any(limits) or objective_name(goal) == "time"


def _checkpointing(predictions: Forecast, options: SearchOptions) -> Checkpointing:
    """What saving the state costs on machines that can be taken back."""
    state = predictions.parameter_bytes + predictions.optimizer_state_bytes
    save_s = float(state.max(initial=0.0)) / options.checkpoint_bytes_per_s
    return Checkpointing(save_s=max(save_s, 1.0), restart_s=options.setup_s)


def _restrict(candidates: CandidateTable, goal: Goal) -> CandidateTable:
    """Only the pinned strategy, if one is pinned."""
    if "strategy" not in goal.pins:
        return candidates
    from paceline.parallel import Strategy
    from paceline.plan.candidates import SHARDINGS

    pinned = Strategy.parse(goal.pins["strategy"])
    if pinned.num_ranks != pinned.size("dp") or pinned.sharding not in SHARDINGS:
        raise InvalidInputError(
            f"`{pinned}` is not among the strategies that are searched",
            hint="pin plain or sharded data parallel: dp8, dp8+zero2, dp8+zero3",
        )
    kept = (candidates.num_devices == pinned.num_ranks) & (
        candidates.sharding == SHARDINGS.index(pinned.sharding)
    )
    return candidates.take(np.flatnonzero(kept))


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInputError(f"`{text}` is not a count", hint="pin a whole number above zero")
    return int(text)
