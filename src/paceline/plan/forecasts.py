"""Predictions of one batch on one device, for all configurations, devices and batch sizes at once.

Shape legend: C configurations, D devices, P batch sizes. NaN stands where a configuration is not
used on a device or a device's facts do not suffice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from paceline.catalog.entities import Device
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.errors import InvalidInputError
from paceline.parallel.replica_work import LoweredStep, ReplicaWork
from paceline.parallel.room import bound_bytes
from paceline.parallel.serving.answers import answers, answers_memory_bytes
from paceline.parallel.serving.batching import EnginePasses, ServingRuns
from paceline.parallel.serving.engine import PROMPT, TOKEN, predict_engine
from paceline.parallel.sharded_memory import PeakMoments, peak_moments, saved_process_bytes
from paceline.parallel.split import CallTable, RankGraph, SplitShape, calls_when_run, split
from paceline.parallel.split.calls import PointCalls
from paceline.parallel.spread import interval_of
from paceline.plan.configurations import ConfiguredDevices
from paceline.plan.goal import Work
from paceline.plan.service import Service, served_runs
from paceline.planfile import Interval
from paceline.predict import Calibration, DeviceTable, Points, StepPrediction, predict_pass
from paceline.predict.memory import peak_memory_bytes
from paceline.stack.engines import EngineProfile
from paceline.trace import lower
from paceline.trace.costs import Configuration, LoweredPass
from paceline.trace.graph import FloatArray, Graph, IntArray
from paceline.trace.master_weights import as_kept
from paceline.trace.workload import Pass, Workload

#: Narrow weights take less than this share of wide ones (embeddings and norms stay wide).
_NARROW_FRAC = 0.85

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
class _DeviceFigures:
    """What devices take for batches; the last two axes are devices and batches."""

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast(_DeviceFigures):
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
class _Cell(_DeviceFigures):
    """One configuration on its devices; shapes (rows, P), else as in `Forecast`."""

    bound: FloatArray
    flop: FloatArray


def forecast(
    workload: Workload,
    configured: Sequence[ConfiguredDevices],
    devices: Sequence[Device],
    batch: FloatArray,
    work: Work,
    *,
    seq: int,
    calibration: Calibration,
    service: Service | None = None,
    window: BatchWindow | None = None,
) -> Forecast:
    """Predict everything that candidates are gathered from.

    Args:
        workload: The passes.
        configured: C configurations with the devices that use them.
        devices: D devices.
        batch: P batch sizes.
        work: Prompt and output lengths of a generation.
        seq: Sequence length of the other passes.
        calibration: Of the predictor.
        service: The engine that runs the configurations that are served.
        window: Batches that can be candidates at all; None predicts them all.
    """
    splits = [_split_of(workload, c) for c in configured]
    lowered = [_lowered(workload, c, split) for c, split in zip(configured, splits, strict=True)]
    steps = [LoweredStep.of_passes(workload, passes) for passes in lowered]
    engine = None if service is None else service.engine
    length = work.prompt_tokens + work.output_tokens if workload.generates else seq
    longest = Points.of(batch, seq=length)
    parts = [
        _useful_batches(_memory_bounds(step, passes, longest, work), step, c.rows, longest, window)
        for step, passes, c in zip(steps, lowered, configured, strict=True)
    ]
    cells = [
        _cell(workload, passes, table, batch[part], work, seq, calibration, engine)
        for passes, table, part in zip(
            lowered,
            [DeviceTable.from_devices([devices[r] for r in c.rows]) for c in configured],
            parts,
            strict=True,
        )
    ]
    largest = [step.largest for step in steps]
    scattered = _scattered(cells, configured, parts, (len(devices), len(batch)))
    return Forecast(
        configurations=tuple(c.configuration for c in configured),
        batch=batch,
        bound=np.nan_to_num(scattered.pop("bound"), nan=0.0).astype(np.int8),
        flop=_flop(cells, parts, len(batch)),
        replicas=tuple(ReplicaWork.of(step, seq=seq) for step in steps),
        parameter_bytes=np.array([p.parameter_bytes for p in largest]),
        optimizer_state_bytes=np.array([p.optimizer_state_bytes for p in largest]),
        moments=tuple(peak_moments(p, Points.of(batch, seq=seq)) for p in largest),
        tensor_degree=np.array([c.tensor_degree for c in configured], dtype=np.int64),
        tensor_calls=tuple(
            _tensor_calls(split, c.configuration, batch, work, seq, engine)
            for c, split in zip(configured, splits, strict=True)
        ),
        runs=served_runs(work, batch) if workload.generates else None,
        engine=engine,
        **scattered,
    )


def _scattered(
    cells: Sequence[_Cell],
    configured: Sequence[ConfiguredDevices],
    parts: Sequence[slice],
    shape: tuple[int, int],
) -> dict[str, FloatArray]:
    """Every per-device figure of the cells in its place among all devices and batches."""
    rows = [np.array(c.rows, dtype=np.int64) for c in configured]
    return {
        f.name: _scatter([getattr(c, f.name) for c in cells], rows, parts, shape)
        for f in fields(_Cell)
        if f.name != "flop"
    }


def _flop(cells: Sequence[_Cell], parts: Sequence[slice], num_batches: int) -> FloatArray:
    """FLOP of a batch, (configurations, batches); NaN where no device is predicted."""
    flop = np.full((len(cells), num_batches), np.nan)
    for row, (cell, part) in enumerate(zip(cells, parts, strict=True)):
        flop[row, part] = cell.flop
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


def _split_of(workload: Workload, configured: ConfiguredDevices) -> dict[str, RankGraph]:
    """Each pass as one of the ranks runs it that share every layer."""
    degree, is_served = configured.tensor_degree, configured.configuration.is_served
    return {p.name: _split(p.graph, degree, is_served=is_served) for p in workload.passes}


def _lowered(
    workload: Workload, configured: ConfiguredDevices, splits: Mapping[str, RankGraph]
) -> dict[str, LoweredPass]:
    """Every pass of one rank in one configuration.

    Raises:
        InvalidInputError: The precision promises narrow weights and the lowering keeps wide ones.
    """
    how = configured.configuration
    passes = {p.name: lower(splits[p.name].graph, as_kept(p.graph, how)) for p in workload.passes}
    _check_weights(next(iter(passes.values())))
    return passes


def _check_weights(lowered: LoweredPass) -> None:
    """Refuse a precision that promises narrow weights where the lowering kept them wide."""
    precision = find_precision(lowered.configuration.precision)
    is_training = len(lowered.gradient_ready) > 0
    half_bytes = ELEMENT_BYTES[precision.activation_dtype] * lowered.num_parameters
    is_narrow = ELEMENT_BYTES[precision.weight_dtype] < ELEMENT_BYTES[precision.activation_dtype]
    is_kept = lowered.parameter_bytes > _NARROW_FRAC * half_bytes
    if is_narrow and is_kept and not is_training:
        raise InvalidInputError(
            f"weights in {precision.name} are not predicted for this model yet",
            hint="use --precision bf16 or fp16",
        )


def _split(graph: Graph, degree: int, *, is_served: bool) -> RankGraph:
    shape = SplitShape.of_engine(tensor=degree) if is_served else SplitShape(tensor=degree)
    return split(graph, shape)


def can_split(workload: Workload, degree: int, *, is_served: bool) -> bool:
    """Whether so many devices can share each layer, as engines do where one serves."""
    try:
        _split(workload.passes[0].graph, degree, is_served=is_served)
    except InvalidInputError:
        return False
    return True


def _tensor_calls(
    splits: Mapping[str, RankGraph],
    configuration: Configuration,
    batch: FloatArray,
    work: Work,
    seq: int,
    engine: EngineProfile | None,
) -> TensorCalls:
    is_served = engine is not None and configuration.is_served
    width = ELEMENT_BYTES[find_precision(configuration.precision).activation_dtype]

    def at(calls: CallTable, points: Points) -> PointCalls:
        return PointCalls.of(calls, points, element_bytes=width)

    def of(name: str, length: float) -> PointCalls:
        items = np.ones_like(batch) if is_served and name == PROMPT else batch
        return at(calls_when_run(splits[name], configuration), Points.of(items, seq=length))

    if TOKEN not in splits:
        nothing = at(CallTable.of([]), Points.of(batch, seq=seq))
        return TensorCalls(first=of(next(iter(splits)), seq), repeated=nothing, num_repeats=0)
    return TensorCalls(
        first=of(PROMPT, work.prompt_tokens),
        repeated=of(TOKEN, work.prompt_tokens),
        num_repeats=work.output_tokens,
        kernel=engine.all_reduce if engine is not None and is_served else None,
    )


def _scatter(
    values: Sequence[FloatArray],
    rows: Sequence[npt.NDArray[np.int64]],
    parts: Sequence[slice],
    shape: tuple[int, int],
) -> FloatArray:
    """Rows put back among all devices and batches, (C, D, P), NaN elsewhere."""
    whole = np.full((len(values), *shape), np.nan)
    for configuration, (value, index, part) in enumerate(zip(values, rows, parts, strict=True)):
        whole[configuration, index, part] = value
    return whole


def _memory_bounds(
    step: LoweredStep, lowered: Mapping[str, LoweredPass], points: Points, work: Work
) -> tuple[FloatArray, FloatArray]:
    """Median and bound of the memory of each batch."""
    if step.configuration.is_served:
        runs = served_runs(work, points.batch)
        return answers_memory_bytes(lowered, runs)[1:]
    bounds = [
        peak_memory_bytes(p.memory, points, platform=p.configuration.platform) for p in step.passes
    ]
    return np.max([b[1] for b in bounds], axis=0), np.max([b[2] for b in bounds], axis=0)


def _useful_batches(
    bounds: tuple[FloatArray, FloatArray],
    step: LoweredStep,
    rows: tuple[int, ...],
    points: Points,
    window: BatchWindow | None,
) -> slice:
    """Batches from the smallest that can be among a row's largest to the largest that can fit.

    The upper end lets ranks share all state; the lower end takes the smallest device at the chance
    that counts. Without a window all batches are useful.
    """
    batch = points.batch
    if window is None:
        return slice(0, len(batch))
    mid, high = bounds
    shared = saved_process_bytes(peak_moments(step.largest, points), _MANY_RANKS, "zero3")
    fits_somewhere = mid - shared <= window.most_bytes[list(rows)].max()
    end = max(int(fits_somewhere.sum()), 1)
    if window.num_largest is None:
        return slice(0, end)
    needed_bytes = bound_bytes(mid, high, window.memory_confidence)
    fits_everywhere = needed_bytes <= window.least_bytes[list(rows)].min()
    fits_everywhere &= batch <= window.least_batch
    return slice(max(int(fits_everywhere.sum()) - window.num_largest, 0), end)


def _cell(
    workload: Workload,
    lowered: Mapping[str, LoweredPass],
    table: DeviceTable,
    batch: FloatArray,
    work: Work,
    seq: int,
    calibration: Calibration,
    engine: EngineProfile | None,
) -> _Cell:
    def predict(name: str, length: float) -> StepPrediction:
        points = Points.of(batch, seq=length)
        return predict_pass(lowered[name], table, points, calibration=calibration)

    if TOKEN not in lowered:
        predictions = [(p, predict(p.name, seq)) for p in workload.passes if p.runs_on == "device"]
        return _sum_cell(predictions)
    if engine is not None and lowered[TOKEN].configuration.is_served:
        return _served_cell(lowered, table, served_runs(work, batch), engine, calibration)
    prompt, output = work.prompt_tokens, work.output_tokens
    # Decode is affine in the past length, so its mean over the answer is at the mean length.
    return _generation_cell(
        predict(PROMPT, prompt),
        predict(TOKEN, prompt + (output - 1) / 2),
        predict(TOKEN, prompt + output),
        output,
    )


def _served_cell(
    lowered: Mapping[str, LoweredPass], table: DeviceTable, runs: ServingRuns,
    engine: EngineProfile, calibration: Calibration,
) -> _Cell:  # fmt: skip
    """Requests in flight of an engine."""
    predicted = predict_engine(lowered, table, runs, engine, calibration=calibration)
    found, memory = answers(predicted, runs, engine), answers_memory_bytes(lowered, runs)
    low, mid, high = (np.broadcast_to(one, found.low_s.shape) for one in memory)
    none = np.zeros_like(found.low_s)
    return _Cell(
        step_s=found.times.request_s,
        low_s=found.low_s,
        high_s=found.high_s,
        backward_s=none,
        update_s=none,
        log_sigma=found.log_sigma,
        latency_s=found.times.per_token_s,
        ttft_s=found.times.first_token_s,
        prompt_s=found.passes.prompt_s,
        token_s=found.passes.step_s,
        weights_s=found.passes.weights_s,
        energy_j=found.energy_j,
        memory_low_bytes=low,
        memory_mid_bytes=mid,
        memory_high_bytes=high,
        bound=found.bound.astype(np.float64),
        flop=found.flop,
    )


def _sum_cell(predictions: Sequence[tuple[Pass, StepPrediction]]) -> _Cell:
    """Passes one after the other; the largest peak counts, and the longest pass binds."""
    if len(predictions) == 1 and predictions[0][0].repeats == 1.0:
        return _from_step(predictions[0][1])
    repeats = np.array([p.repeats for p, _ in predictions])

    def stacked(name: str) -> FloatArray:
        return np.stack([getattr(x, name) for _, x in predictions]).astype(np.float64)

    def total(name: str) -> FloatArray:
        return np.tensordot(repeats, stacked(name), axes=1)

    pass_s = repeats[:, None, None] * stacked("mid_s")
    step_s = pass_s.sum(axis=0)
    longest = pass_s.argmax(axis=0)[None]
    return _Cell(
        step_s=step_s,
        low_s=total("low_s"),
        high_s=total("high_s"),
        backward_s=total("backward_s"),
        update_s=total("update_s"),
        log_sigma=(pass_s * stacked("log_sigma")).sum(axis=0) / step_s,
        latency_s=step_s,
        ttft_s=np.full_like(step_s, np.nan),
        **_not_served(step_s),
        energy_j=total("energy_j"),
        memory_low_bytes=stacked("memory_low_bytes").max(axis=0),
        memory_mid_bytes=stacked("memory_mid_bytes").max(axis=0),
        memory_high_bytes=stacked("memory_high_bytes").max(axis=0),
        bound=np.take_along_axis(stacked("bound"), longest, axis=0)[0],
        flop=np.tensordot(repeats, np.stack([x.flop for _, x in predictions]), axes=1),
    )


def _not_served(step_s: FloatArray) -> dict[str, FloatArray]:
    """Figures of an engine's passes, where none serves."""
    return dict.fromkeys(("prompt_s", "token_s", "weights_s"), np.full_like(step_s, np.nan))


def _from_step(step: StepPrediction) -> _Cell:
    """One pass as it is, to the bit."""
    return _Cell(
        step_s=step.mid_s,
        low_s=step.low_s,
        high_s=step.high_s,
        backward_s=step.backward_s,
        update_s=step.update_s,
        log_sigma=step.log_sigma,
        latency_s=step.mid_s,
        ttft_s=np.full_like(step.mid_s, np.nan),
        **_not_served(step.mid_s),
        energy_j=step.energy_j,
        memory_low_bytes=step.memory_low_bytes,
        memory_mid_bytes=step.memory_mid_bytes,
        memory_high_bytes=step.memory_high_bytes,
        bound=step.bound.astype(np.float64),
        flop=step.flop,
    )


def _generation_cell(
    prefill: StepPrediction, decode: StepPrediction, last: StepPrediction, num_outputs: int
) -> _Cell:
    """A prompt read once and an answer written token by token, all requests of a batch together."""
    step_s = prefill.mid_s + num_outputs * decode.mid_s
    decode_frac = num_outputs * decode.mid_s / step_s
    is_mostly_decode = decode_frac > 0.5
    return _Cell(
        step_s=step_s,
        low_s=prefill.low_s + num_outputs * decode.low_s,
        high_s=prefill.high_s + num_outputs * decode.high_s,
        backward_s=np.zeros_like(step_s),
        update_s=np.zeros_like(step_s),
        log_sigma=decode_frac * decode.log_sigma + (1.0 - decode_frac) * prefill.log_sigma,
        latency_s=decode.mid_s,
        ttft_s=prefill.mid_s,
        **_not_served(step_s),
        energy_j=prefill.energy_j + num_outputs * decode.energy_j,
        memory_low_bytes=np.maximum(prefill.memory_low_bytes, last.memory_low_bytes),
        memory_mid_bytes=np.maximum(prefill.memory_mid_bytes, last.memory_mid_bytes),
        memory_high_bytes=np.maximum(prefill.memory_high_bytes, last.memory_high_bytes),
        bound=np.where(is_mostly_decode, decode.bound, prefill.bound).astype(np.float64),
        flop=prefill.flop + num_outputs * decode.flop,
    )
