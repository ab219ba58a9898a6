"""Predictions of one batch on one device, for all configurations, devices and batch sizes at once.

Shape legend: C configurations, D devices, P batch sizes. NaN stands where a configuration is not
used on a device or a device's facts do not suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from paceline.catalog.entities import Device
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.graph.workload import Workload
from paceline.parallelism.memory.memory_fit import bound_bytes
from paceline.parallelism.memory.sharded_memory import (
    PeakMoments,
    peak_moments,
    saved_process_bytes,
)
from paceline.parallelism.replicas.data_parallel_work import ReplicaWork
from paceline.parallelism.serving.batching import EnginePasses, ServingRuns
from paceline.parallelism.serving.engine import PROMPT, TOKEN
from paceline.parallelism.split import CallTable, calls_when_run
from paceline.parallelism.split.calls import PointCalls
from paceline.parallelism.uncertainty import interval_of
from paceline.planfile import Interval
from paceline.planning.goal.goal import Work
from paceline.planning.goal.service import Service, rounds_of, served_runs
from paceline.planning.places.configurations import ConfiguredDevices
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.simulation.job import Job
from paceline.simulation.rank import Lengths, RankPasses, cut, rank_memory_bytes
from paceline.simulation.steps import Steps
from paceline.stack.engines import USUAL_LOOP, EngineProfile

#: Columns of `Steps` that a forecast lays out by configuration, device and batch.
_COLUMNS = {
    "step_s": "step_s", "low_s": "step_low_s", "high_s": "step_high_s", "backward_s": "backward_s",
    "update_s": "update_s", "log_sigma": "log_sigma", "latency_s": "per_token_s",
    "ttft_s": "first_token_s", "prompt_s": "prompt_s", "token_s": "token_s",
    "weights_s": "weights_s", "energy_j": "energy_j", "memory_low_bytes": "memory_low_bytes",
    "memory_mid_bytes": "memory_mid_bytes", "memory_high_bytes": "memory_high_bytes",
    "bound": "bound",
}  # fmt: skip

#: Tuples of a forecast, with an element for each configuration.
_TUPLES = ("configurations", "replicas", "moments", "tensor_calls")

#: What all configurations have in common.
_COMMON = ("batch", "runs", "engine")

#: So many ranks share state that more would make no difference.
_MANY_RANKS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorCalls:
    """Collectives of a whole batch: once, and once per output token.

    Attributes:
        first: Of the step, or of the prefill.
        repeated: Of one decode; none unless text is generated.
        num_repeats: Output tokens.
        kernel: The engine's own one for sums, where an engine runs them.
    """

    first: PointCalls
    repeated: PointCalls
    num_repeats: int
    kernel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """What one batch asks of one device.

    Attributes:
        configurations: C of them.
        batch: Batch sizes, rising, (P,).
        step_s: Median time of one batch: a training step, an inference, a whole generation,
            (C, D, P), as all below unless said otherwise.
        low_s: Lower end of its 80 % interval.
        high_s: Upper end.
        backward_s: Of it, the backward part that communication can hide behind.
        update_s: Of it, the optimizer's update.
        log_sigma: Standard deviation of log time.
        latency_s: Time per output token of a generation, else ``step_s``.
        ttft_s: Time to first token; NaN where it does not apply.
        prompt_s: Reading one prompt, of an engine that serves; NaN of all others, as the next two.
        token_s: Its step that writes a token for every request.
        weights_s: Of that, all but what grows with the context.
        energy_j: Device energy of one batch.
        memory_low_bytes: Peak memory of the process, lower end of its 80 % interval.
        memory_mid_bytes: Median.
        memory_high_bytes: Bound that holds at 95 %.
        bound: ``Bound`` code, int8.
        flop: Of one batch, (C, P).
        replicas: What a step asks of replicas, C of them.
        parameter_bytes: As stored on the device, (C,).
        optimizer_state_bytes: Including master weights, (C,).
        moments: When memory can be at its peak, C of them.
        tensor_degree: Devices that share each layer; figures are then of one of them, (C,).
        tensor_calls: What they exchange, C of them.
        runs: Requests in flight, as many as the batch holds; None where nothing is generated.
        engine: That serves them; None of a plain loop.
    """

    configurations: tuple[Configuration, ...]
    batch: FloatArray
    step_s: FloatArray
    low_s: FloatArray
    high_s: FloatArray
    backward_s: FloatArray
    update_s: FloatArray
    log_sigma: FloatArray
    latency_s: FloatArray
    ttft_s: FloatArray
    prompt_s: FloatArray
    token_s: FloatArray
    weights_s: FloatArray
    energy_j: FloatArray
    memory_low_bytes: FloatArray
    memory_mid_bytes: FloatArray
    memory_high_bytes: FloatArray
    bound: npt.NDArray[np.int8]
    flop: FloatArray
    replicas: tuple[ReplicaWork, ...]
    parameter_bytes: FloatArray
    optimizer_state_bytes: FloatArray
    moments: tuple[PeakMoments, ...]
    tensor_degree: npt.NDArray[np.int64]
    tensor_calls: tuple[TensorCalls, ...]
    runs: ServingRuns | None = None
    engine: EngineProfile | None = None

    def engine_passes(self, cell: tuple[IntArray, IntArray, IntArray]) -> EnginePasses:
        """Passes of the engine in some cells, without what ranks exchange."""
        return EnginePasses(
            prompt_s=self.prompt_s[cell], step_s=self.token_s[cell], weights_s=self.weights_s[cell]
        )


def step_interval_of(
    forecast: Forecast, cell: tuple[int, int, int], step_s: float, log_sigma: float
) -> Interval:
    """80 % interval of a candidate's step, with all that is added to one device's.

    On one device without accumulation it is the prediction's own interval, to the bit.

    Args:
        forecast: Of one device each.
        cell: Configuration, device and batch.
        step_s: Median of the candidate's step.
        log_sigma: Standard deviation of its logarithm.
    """
    if step_s != float(forecast.step_s[cell]):
        return interval_of(step_s, log_sigma)
    return Interval(low=float(forecast.low_s[cell]), mid=step_s, high=float(forecast.high_s[cell]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchWindow:
    """Which batches can be candidates, known before time is predicted.

    Attributes:
        least_bytes: Memory of the smallest place of each device, (D,).
        most_bytes: Of the largest, (D,).
        memory_confidence: Chance at which the memory of a device must suffice.
        num_largest: Batches kept per candidate; None keeps the small ones too.
        least_batch: Largest batch allowed on the most devices at once.
    """

    least_bytes: FloatArray
    most_bytes: FloatArray
    memory_confidence: float
    num_largest: int | None
    least_batch: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskedRanks:
    """What is predicted of the ranks of one configuration.

    Attributes:
        configured: The configuration with its devices.
        passes: What a rank runs.
        devices: Of ``configured``, as arrays.
        points: Batches that can be candidates.
        part: Where these stand among all batches.
    """

    configured: ConfiguredDevices
    passes: RankPasses
    devices: DeviceTable
    points: Lengths
    part: slice

    def scattered(self, values: FloatArray, shape: tuple[int, int]) -> FloatArray:
        """A column of its steps among all devices and batches, NaN elsewhere."""
        whole = np.full(shape, np.nan)
        rows = np.array(self.configured.rows, dtype=np.int64)
        whole[rows, self.part] = values.reshape(len(rows), len(self.points))
        return whole


def asked_ranks(
    workload: Workload,
    configured: Sequence[ConfiguredDevices],
    devices: Sequence[Device],
    batch: FloatArray,
    work: Work,
    *,
    seq: int,
    service: Service | None = None,
    window: BatchWindow | None = None,
) -> list[AskedRanks]:
    """List what a forecast predicts.

    Args:
        workload: The passes.
        configured: C configurations with the devices that use them.
        devices: D devices.
        batch: P batch sizes.
        work: Prompt and output lengths of a generation.
        seq: Sequence length of the other passes.
        service: The engine that runs the configurations that are served.
        window: Batches that can be candidates at all; None takes them all.

    Raises:
        InvalidInputError: A configuration cannot run the model.
    """
    asked = []
    for one in configured:
        job = Job(
            workload=workload, configuration=one.configuration, seq=seq,
            profile=profile_of(one, service),
        )  # fmt: skip
        passes = RankPasses.of(job, tensor=one.tensor_degree)
        part = _useful_batches(passes, one.rows, _lengths(batch, work, seq), window)
        asked.append(
            AskedRanks(
                configured=one,
                passes=passes,
                devices=DeviceTable.from_devices([devices[row] for row in one.rows]),
                points=_lengths(batch[part], work, seq),
                part=part,
            )
        )
    return asked


def profile_of(configured: ConfiguredDevices, service: Service | None) -> str:
    """The engine of what is served, with its release; a plain loop is dispatched as PyTorch's."""
    is_served = service is not None and configured.configuration.is_served
    return str(service.engine) if service is not None and is_served else USUAL_LOOP


def gathered(
    asked: Sequence[AskedRanks], steps: Sequence[Steps], batch: FloatArray, work: Work, *,
    num_devices: int, seq: int,
) -> Forecast:  # fmt: skip
    """The forecast whose cells are these steps.

    Args:
        asked: What was predicted.
        steps: Of each.
        batch: P batch sizes.
        work: Prompt and output lengths of a generation.
        num_devices: D.
        seq: Sequence length of the other passes.
    """
    shape = (num_devices, len(batch))
    columns = {
        name: np.array(
            [one.scattered(getattr(s, column), shape) for one, s in zip(asked, steps, strict=True)]
        ).reshape(len(asked), *shape)
        for name, column in _COLUMNS.items()
    }
    largest = [one.passes.step.largest for one in asked]
    generates = any(one.passes.is_generation for one in asked)
    engines = [one.passes.engine for one in asked if one.passes.engine is not None]
    return Forecast(
        configurations=tuple(one.configured.configuration for one in asked),
        batch=batch,
        bound=np.nan_to_num(columns.pop("bound"), nan=0.0).astype(np.int8),
        flop=_flop(asked, steps, len(batch)),
        replicas=tuple(ReplicaWork.of(one.passes.step, seq=seq) for one in asked),
        parameter_bytes=np.array([one.parameter_bytes for one in largest]),
        optimizer_state_bytes=np.array([one.optimizer_state_bytes for one in largest]),
        moments=tuple(peak_moments(one, Points.of(batch, seq=seq)) for one in largest),
        tensor_degree=np.array([one.configured.tensor_degree for one in asked], dtype=np.int64),
        tensor_calls=tuple(_tensor_calls(one, batch, work, seq) for one in asked),
        runs=served_runs(work, batch) if generates else None,
        engine=engines[0] if engines else None,
        **columns,
    )


def _lengths(batch: FloatArray, work: Work, seq: int) -> Lengths:
    """What is asked of a rank at some batches."""
    return Lengths(
        batch=batch,
        seq=np.full_like(batch, seq),
        prompt=np.full_like(batch, work.prompt_tokens),
        output=np.full_like(batch, work.output_tokens),
        rounds=rounds_of(work),
    )


def _flop(asked: Sequence[AskedRanks], steps: Sequence[Steps], num_batches: int) -> FloatArray:
    """FLOP of a batch, (configurations, batches); NaN where no device is predicted."""
    flop = np.full((len(asked), num_batches), np.nan)
    for row, (one, found) in enumerate(zip(asked, steps, strict=True)):
        flop[row, one.part] = found.flop[: len(one.points)]
    return flop


def join_forecasts(first: Forecast, second: Forecast) -> Forecast:
    """The configurations of both, for the same devices and batch sizes."""
    joined = {
        f.name: np.concatenate([getattr(first, f.name), getattr(second, f.name)])
        for f in fields(Forecast)
        if f.name not in (*_TUPLES, *_COMMON)
    }
    return Forecast(
        configurations=first.configurations + second.configurations,
        batch=first.batch,
        replicas=first.replicas + second.replicas,
        moments=first.moments + second.moments,
        tensor_calls=first.tensor_calls + second.tensor_calls,
        runs=first.runs,
        engine=first.engine,
        **joined,
    )


def can_split(workload: Workload, degree: int, *, is_served: bool) -> bool:
    """Whether so many devices can share each layer, as engines do where one serves."""
    try:
        cut(workload.passes[0].graph, degree, is_served=is_served)
    except InvalidInputError:
        return False
    return True


def _tensor_calls(asked: AskedRanks, batch: FloatArray, work: Work, seq: int) -> TensorCalls:
    passes, configuration = asked.passes, asked.configured.configuration
    splits, engine = passes.splits, passes.engine
    width = ELEMENT_BYTES[find_precision(configuration.precision).activation_dtype]

    def at(calls: CallTable, points: Points) -> PointCalls:
        return PointCalls.of(calls, points, element_bytes=width)

    def of(name: str, length: float) -> PointCalls:
        items = np.ones_like(batch) if engine is not None and name == PROMPT else batch
        return at(calls_when_run(splits[name], configuration), Points.of(items, seq=length))

    if TOKEN not in splits:
        nothing = at(CallTable.of([]), Points.of(batch, seq=seq))
        return TensorCalls(first=of(next(iter(splits)), seq), repeated=nothing, num_repeats=0)
    return TensorCalls(
        first=of(PROMPT, work.prompt_tokens),
        repeated=of(TOKEN, work.prompt_tokens),
        num_repeats=work.output_tokens,
        kernel=None if engine is None else engine.all_reduce,
    )


def _useful_batches(
    passes: RankPasses, rows: tuple[int, ...], asked: Lengths, window: BatchWindow | None
) -> slice:
    """Batches from the smallest that can be among a row's largest to the largest that can fit.

    The upper end lets ranks share all state; the lower end takes the smallest device at the chance
    that counts. Without a window all batches are useful.
    """
    batch = asked.batch
    if window is None:
        return slice(0, len(batch))
    _, mid, high = rank_memory_bytes(passes, asked)
    length = asked.prompt + asked.output if passes.is_generation else asked.seq
    moments = peak_moments(passes.step.largest, Points(batch=batch, seq=length))
    shared = saved_process_bytes(moments, _MANY_RANKS, "zero3")
    fits_somewhere = mid - shared <= window.most_bytes[list(rows)].max()
    end = max(int(fits_somewhere.sum()), 1)
    if window.num_largest is None:
        return slice(0, end)
    needed_bytes = bound_bytes(mid, high, window.memory_confidence)
    fits_everywhere = needed_bytes <= window.least_bytes[list(rows)].min()
    fits_everywhere &= batch <= window.least_batch
    return slice(max(int(fits_everywhere.sum()) - window.num_largest, 0), end)
