"""What an engine's steps take on a machine, as tables over sequences and tokens, from its Steps.

One call of `simulate` fills the tables of all jobs on all machines: steps that write for a few
numbers of sequences, with and without context, and prompts of a few lengths. Between them tables
are interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypedDict

import numpy as np

from paceline.catalog.entities import Device
from paceline.errors import PacelineError
from paceline.model.graph.graph import FloatArray
from paceline.model.graph.workload import Workload
from paceline.parallelism.steps import Steps
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.step_loop import Batching, StepTimes
from paceline.simulation.simulator import simulate
from paceline.stack.engines import StepLimits
from paceline.values import dataclass

#: Sequences at once, and tokens of a prompt, at which steps are predicted.
_SEQUENCES = np.exp2(np.arange(11))
_PROMPTS = np.array([1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192], dtype=np.float64)
#: Items at once of what generates nothing.
_ITEMS = np.exp2(np.arange(12))
#: Contexts are told apart by powers of two.
_LEAST_CONTEXT, _LARGEST_CONTEXT = 64, 131_072


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineTable:
    """One replica of an engine.

    Attributes:
        batching: How it forms them.
        path_s: Way of a request to it and of its first token back.
        log_sigma: Standard deviation of the logarithm of its steps' times.
        memory_bytes: Of a device with one short request.
        capacity_bytes: Of a device; infinite where it is unknown.
        knowledge: ``Coverage`` code of the device.
    """

    times: StepTimes
    batching: Batching
    path_s: float
    log_sigma: float
    memory_bytes: float
    capacity_bytes: float
    knowledge: int

    @property
    def fits(self) -> bool:
        """Whether a device holds its part of the model and one short request."""
        return self.memory_bytes <= self.capacity_bytes

    def slower(self, factor: float) -> EngineTable:
        """The same with steps, and the host's work for them, that take so many times as long."""
        times = self.times
        scaled = replace(
            times,
            write_s=times.write_s * factor,
            context_s=times.context_s * factor,
            read_s=times.read_s * factor,
            attention_s=times.attention_s * factor,
            draft_s=times.draft_s * factor,
        )
        batching = self.batching
        hosted = replace(
            batching,
            host_s=batching.host_s * factor,
            host_step_s=batching.host_step_s * factor,
        )
        return replace(self, times=scaled, batching=hosted)


def context_of(mean_tokens: float) -> int:
    """The context whose table serves requests of such a length in the mean.

    >>> context_of(700), context_of(3)
    (512, 64)
    """
    nearest = 2 ** round(math.log2(max(mean_tokens, 1.0)))
    return int(np.clip(nearest, _LEAST_CONTEXT, _LARGEST_CONTEXT))


def engine_tables(
    jobs: Sequence[Job], machines: Sequence[Machine], *, calibration: Calibration | None = None,
    limits: Sequence[StepLimits | None] = (), loops_write: bool = False,
) -> list[EngineTable | PacelineError]:  # fmt: skip
    """A table of each job on its machine, or why it has none.

    Args:
        jobs: Of one replica each. Of an engine that generates, ``prompt_tokens`` are the context
            (`context_of`) at which its attention is predicted.
        machines: Of one replica each.
        calibration: Of the predictor; the built-in one if None.
        limits: What each engine is told to put into a step; its own where None, or without any.
        loops_write: Whether what plain loops answer is told token by token, at the context of
            ``prompt_tokens``; else they answer batches of requests whole.
    """
    if not jobs:
        return []
    writes = [_writes_tokens(job, loops_write=loops_write) for job in jobs]
    asked = [_asked(*one) for one in zip(jobs, writes, strict=True)]
    counts = [len(one) for one in asked]
    steps = simulate(
        [job for one in asked for job in one],
        [m for m, count in zip(machines, counts, strict=True) for _ in range(count)],
        calibration=calibration,
    )
    ends = np.cumsum(counts)
    found: list[EngineTable | PacelineError] = []
    told = limits or [None] * len(jobs)
    columns = (jobs, machines, ends, counts, told, writes)
    for job, machine, end, count, limit, is_written in zip(*columns, strict=True):
        part = steps.take(np.arange(end - count, end))
        try:
            part.check_known()
            table = _table if is_written else _table_of_items
            found.append(table(job, machine.device, part, limit))
        except PacelineError as error:
            found.append(error)
    return found


def _asked(job: Job, is_written: bool) -> list[Job]:
    if not is_written:
        return [replace(job, batch=float(count)) for count in _ITEMS]
    job = replace(job, workload=_found_nothing(job.workload))
    writing = [replace(job, batch=float(count), output_tokens=1) for count in _SEQUENCES]
    reading = [
        replace(job, batch=1, prompt_tokens=int(length), output_tokens=1) for length in _PROMPTS
    ]
    return writing + reading


def _writes_tokens(job: Job, *, loops_write: bool) -> bool:
    """Whether answers are told token by token: an engine's, and those of a loop if wanted."""
    by_loop = loops_write and job.is_generation and not job.workload.encodes
    return job.engine is not None or by_loop


@lru_cache(maxsize=8)
def _found_nothing(workload: Workload) -> Workload:
    """The same, whose prompts are read whole: what is found of each, the step loop leaves out."""
    return replace(workload, prefix_share=0.0) if workload.prefix_share else workload


def _table(job: Job, device: Device, steps: Steps, limits: StepLimits | None) -> EngineTable:
    num_written = len(_SEQUENCES)
    written, read = (
        steps.take(np.arange(num_written)),
        steps.take(np.arange(num_written, len(steps))),
    )
    if job.engine is None:
        return _table_of_loop(device, written, read)
    engine = job.engine
    limits = limits or engine.limits_on(device)
    replicas = job.strategy.size("ep")
    groups = replicas * job.strategy.size("pp")
    assert job.prompt_tokens is not None
    beams = job.workload.beams
    capacity_bytes = capacity_of(device)
    token_bytes = float(written.memory_mid_bytes[-1] - written.memory_mid_bytes[0])
    token_bytes /= (_SEQUENCES[-1] - _SEQUENCES[0]) * (job.prompt_tokens + 1) * beams
    chunk = np.searchsorted(_PROMPTS, min(job.prompt_tokens, limits.chunk_tokens), "right") - 1
    cached = beams * (_PROMPTS[chunk] + 1)
    fixed_bytes = float(read.memory_mid_bytes[chunk]) - token_bytes * cached
    room_bytes = engine.room_bytes(limits, capacity_bytes, fixed_bytes)
    return EngineTable(
        times=_step_times(job, written, read, limits),
        batching=Batching(
            max_requests=limits.max_requests * replicas,
            chunk_tokens=limits.chunk_tokens * groups,
            cache_tokens=groups * max(room_bytes, 0.0) / token_bytes
            if token_bytes > 0
            else math.inf,
            mixes_prompts=engine.mixes,
            reserves_answers=engine.reserves_answers,
            host_s=engine.request_s or 0.0,
            host_step_s=engine.step_s or 0.0,
            overlaps=engine.overlaps,
            beams=beams,
            prefix_share=job.workload.prefix_share,
            tokens_per_step=job.workload.tokens_per_step,
            tokens_checked=job.workload.tokens_checked,
            **_adapters(job.workload, device, written),
        ),
        path_s=engine.path_s or 0.0,
        log_sigma=math.hypot(float(np.median(written.log_sigma)), engine.log_sigma),
        memory_bytes=fixed_bytes,
        capacity_bytes=capacity_bytes,
        knowledge=int(written.knowledge[0]),
    )


class _Slots(TypedDict, total=False):
    """What `Batching` has of adapters."""

    num_adapters: int
    held_adapters: int
    load_s: float


def _adapters(workload: Workload, device: Device, written: Steps) -> _Slots:
    """The adapters of a service; one is brought over the link to the host, where that is known."""
    adapters = workload.adapters
    if adapters is None:
        return {}
    rate = device.pcie_bytes_per_s
    load_s = float(written.adapter_bytes[0]) / rate if rate else 0.0
    return {"num_adapters": adapters.count, "held_adapters": adapters.held, "load_s": load_s}


def capacity_of(device: Device) -> float:
    """Bytes that software sees; infinite where they are unknown."""
    return device.usable_memory_bytes or device.memory_bytes or math.inf


def _step_times(job: Job, written: Steps, read: Steps, limits: StepLimits) -> StepTimes:
    """Steps of all groups of a replica, which deal out requests and prompts evenly."""
    assert job.prompt_tokens is not None
    replicas = job.strategy.size("ep")
    groups = replicas * job.strategy.size("pp")
    known = groups * _SEQUENCES
    looked_back = (job.prompt_tokens + 0.5) * job.workload.beams
    sequences = np.arange(limits.max_requests * replicas + 1, dtype=np.float64)
    write_s = _between(sequences, known, written.weights_s + written.token_exchange_s)
    attention_s = np.maximum(written.token_s - written.weights_s, 0.0) / looked_back
    context_s = _between(sequences, known, attention_s) / np.maximum(sequences, 1.0)
    prompt_s = read.prompt_s + read.prompt_exchange_s
    square_s = (prompt_s[-1] - 2.0 * prompt_s[-2]) / (2.0 * _PROMPTS[-2] ** 2)
    square_s = float(max(square_s, 0.0))
    linear_s = np.maximum.accumulate(prompt_s - square_s * _PROMPTS**2 - read.prompt_joint_s)
    tokens = np.arange(limits.chunk_tokens * groups + 1, dtype=np.float64)
    fullest = np.maximum(np.minimum(tokens, job.prompt_tokens), tokens / groups)
    read_s = _between(fullest, _PROMPTS, linear_s)
    read_s = read_s + _between(tokens / groups, _PROMPTS, read.prompt_joint_s)
    return StepTimes(
        write_s=write_s, context_s=context_s, read_s=read_s, attention_s=square_s,
        draft_s=_between(sequences, known, written.draft_s),
    )  # fmt: skip


def _between(at: FloatArray, known: FloatArray, values: FloatArray) -> FloatArray:
    """Values between those that are known, and beyond the last of them in proportion."""
    found = np.interp(at, known, values)
    return np.asarray(np.where(at > known[-1], values[-1] * at / known[-1], found))


def _table_of_loop(device: Device, written: Steps, read: Steps) -> EngineTable:
    """A loop that reads the prompts of a batch, then writes for all of it, at one mean context."""
    sequences = np.arange(_SEQUENCES[-1] + 1.0)
    write_s = _between(sequences, _SEQUENCES, np.maximum.accumulate(written.per_token_s))
    tokens = np.arange(_PROMPTS[-1] + 1.0)
    read_s = _between(tokens, _PROMPTS, np.maximum.accumulate(read.first_token_s))
    return EngineTable(
        times=StepTimes(write_s=write_s, context_s=np.zeros(len(sequences)), read_s=read_s),
        batching=Batching(
            max_requests=len(sequences) - 1, chunk_tokens=len(tokens) - 1, mixes_prompts=False
        ),
        path_s=0.0,
        log_sigma=float(np.median(written.log_sigma)),
        memory_bytes=float(read.memory_mid_bytes[0]),
        capacity_bytes=capacity_of(device),
        knowledge=int(written.knowledge[0]),
    )


def _table_of_items(
    job: Job, device: Device, steps: Steps, limits: StepLimits | None
) -> EngineTable:
    """What runs batches as they are: reading or answering an item whole is all of a request."""
    capacity_bytes = capacity_of(device)
    fitting = np.flatnonzero(steps.memory_mid_bytes <= capacity_bytes)
    count = max(len(fitting), 1)
    items, step_s = _ITEMS[:count], np.maximum.accumulate(steps.step_s[:count])
    best = int(np.argmax(items / step_s))
    largest = int(items[best])
    sizes = np.arange(largest + 1, dtype=np.float64)
    nothing = np.zeros(2)
    return EngineTable(
        times=StepTimes(write_s=nothing, context_s=nothing, read_s=np.interp(sizes, items, step_s)),
        batching=Batching(
            max_requests=largest, chunk_tokens=largest, mixes_prompts=False, answers_whole=True
        ),
        path_s=0.0,
        log_sigma=float(steps.log_sigma[best]),
        memory_bytes=float(steps.memory_mid_bytes[0]),
        capacity_bytes=capacity_bytes,
        knowledge=int(steps.knowledge[0]),
    )
