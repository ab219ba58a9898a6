"""`predict_pass`: the time, memory and energy of one pass on one device each.

Shape legend: D devices, P points, R rows of the cost table, N ops in execution order.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.columns import ByContent, join_tables, take_rows
from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, OpKind, Phase, monomials
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.device_kinds import runs_of
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array, Bounds
from paceline.prediction.kernels.op_shapes import OpShapes, evaluate_shapes
from paceline.prediction.kernels.power import mean_power_w, power_law, use_of
from paceline.prediction.kernels.row_times import OpTimes, row_peaks
from paceline.prediction.kernels.sustained_rate import least_row_s, steady_row_times
from paceline.prediction.memory.peak import peak_memory_bytes
from paceline.prediction.prediction import Bound, PassPrediction, Points
from paceline.prediction.step.host_dispatch import (
    beyond_queue_s,
    dispatch_s,
    list_transfer_s,
    num_waits,
    turns_in_order,
    waits_of,
)
from paceline.prediction.step.timeline import step_ends_s, waiting_end_s
from paceline.prediction.uncertainty.intervals import (
    Z_80,
    UncertaintyTerms,
    knowledge_of,
    log_sigma,
    with_observations,
)
from paceline.prediction.uncertainty.posterior_correction import correction_of
from paceline.values import dataclass

#: An op that takes more than so many times its physical bound is held back by neither limit.
OVERHEAD_FACTOR = 3.0
#: Upper limit of the elements of one working array, which bounds memory.
_CHUNK_ELEMENTS = 400_000
#: Predictions that are kept: a goal that is moved asks for the same again.
_NUM_KEPT = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Question:
    """What is asked of one pass, with the host's time for each op in execution order, (N,).

    ``waits`` are the ops after which the host waits for the device.
    """

    lowered: LoweredPass
    devices: DeviceTable
    calibration: Calibration
    framework: str
    host_d1n: Array
    waits: npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Times:
    """Sums over a step by the built-in coefficients, and what measurements tell; all (D, P).

    ``computing_s`` and ``moving_s`` are those of ops that the limit holds: what goes through steps
    one after the other, far from both limits, is in neither.
    """

    device_s: FloatArray
    computing_s: FloatArray
    moving_s: FloatArray
    host_s: FloatArray
    end_s: FloatArray
    wait_s: FloatArray
    num_waits: FloatArray
    backward_s: FloatArray
    update_s: FloatArray
    compute_bound_s: FloatArray
    bandwidth_bound_s: FloatArray
    roofline_s: FloatArray
    unmeasured_s: FloatArray
    log_shift: FloatArray
    left_frac: FloatArray

    def corrected(self) -> _Times:
        """As measurements of such steps have them; physical bounds stay what they are."""
        factor = np.exp(self.log_shift)
        names = ("device_s", "computing_s", "moving_s", "host_s", "end_s", "wait_s", "backward_s",
                 "update_s", "compute_bound_s", "bandwidth_bound_s", "unmeasured_s")  # fmt: skip
        return dataclasses.replace(self, **{name: getattr(self, name) * factor for name in names})


def predict_pass(
    lowered: LoweredPass,
    devices: DeviceTable,
    points: Points,
    *,
    calibration: Calibration | None = None,
    framework: str = "torch",
) -> PassPrediction:
    """Predict one pass for every device and point.

    A device with a missing fact (bandwidth, or a peak for the precision) gets NaN; `abstentions`
    says why.

    Args:
        lowered: The pass with its configuration.
        devices: Where it would run, D of them.
        points: Batch sizes and sequence lengths, P of them.
        calibration: Coefficients; the built-in ones if None.
        framework: Whose host dispatch applies: a name in the calibration's ``host`` table.

    Returns:
        Arrays of (D, P), which are not written to.
    """
    calibration = calibration or builtin_calibration()
    return _predicted(lowered, ByContent(devices), ByContent(points), calibration, framework)


@lru_cache(maxsize=_NUM_KEPT)
def _predicted(
    lowered: LoweredPass, at: ByContent[DeviceTable], asked: ByContent[Points],
    calibration: Calibration, framework: str,
) -> PassPrediction:  # fmt: skip
    """`predict_pass`, once for the same passes, devices and points."""
    devices, points = at.table, asked.table
    question = _Question(
        lowered=lowered,
        devices=devices,
        calibration=calibration,
        framework=framework,
        host_d1n=dispatch_s(lowered, framework, devices, calibration)[:, None],
        waits=waits_of(lowered),
    )
    found = _prediction(question, points, _all_times(question, points))
    for column in dataclasses.fields(found):
        getattr(found, column.name).setflags(write=False)
    return found


def abstentions(
    lowered: LoweredPass, devices: DeviceTable, calibration: Calibration | None = None
) -> tuple[str | None, ...]:
    """Why `predict_pass` answers NaN for a device; None where it answers.

    Args:
        lowered: The pass; its precision decides which peak is needed.
        devices: The devices asked for.
        calibration: Clocks under load; the built-in ones if None.
    """
    needed = lowered.costs.flop.any(axis=1)
    peak_dr = row_peaks(lowered, devices, calibration or builtin_calibration())[:, needed]
    precision = lowered.configuration.precision
    reasons: list[str | None] = []
    for device, name in enumerate(devices.names):
        if np.isnan(devices.memory_bytes_per_s[device]):
            reasons.append(f"the memory bandwidth of {name} is unknown")
        elif np.isnan(devices.num_sms[device]):
            reasons.append(f"the number of multiprocessors of {name} is unknown")
        elif devices.is_gpu[device] and np.isnan(devices.boost_clock_hz[device]):
            reasons.append(f"the clock of {name} is unknown")
        elif np.isnan(peak_dr[device]).any():
            reasons.append(f"{name} has no known peak for {precision}")
        else:
            reasons.append(None)
    return tuple(reasons)


def _all_times(asked: _Question, points: Points) -> _Times:
    """`_times_of` in chunks of points, so that working memory stays bounded."""
    costs = asked.lowered.costs
    widest = max(len(costs.order), 16 * len(costs.kind), 1)
    size = max(1, _CHUNK_ELEMENTS * 16 // (widest * max(len(asked.devices), 1)))
    chunks = [take_rows(points, slice(i, i + size)) for i in range(0, len(points.batch), size)]
    parts = [_times_of(asked, chunk) for chunk in chunks]
    return parts[0] if len(parts) == 1 else join_tables(*parts, axis=1)


def _times_of(asked: _Question, points: Points) -> _Times:
    costs, calibration = asked.lowered.costs, asked.calibration
    shapes = evaluate_shapes(costs, points)
    rows = steady_row_times(
        asked.lowered, shapes, asked.devices, calibration, framework=asked.framework
    )
    total = rows.device_s * costs.count.astype(np.float32)
    backward = among(costs.phase, (Phase.BACKWARD, Phase.RECOMPUTE))
    compute_bound = rows.bounds.compute_s > rows.bounds.memory_s
    busy = _sum(total)
    compute_s = _sum(np.where(compute_bound, total, 0))
    host_s, end_s, wait_s, update_s = _timelines(asked, shapes, rows.device_s[..., costs.order])
    roofline = _roofline(rows, shapes.launches)
    is_stepwise = (shapes.launches > 1) & (rows.device_s > OVERHEAD_FACTOR * roofline)
    lesson = correction_of(
        asked.lowered, shapes, rows.device_s, asked.devices, calibration, framework=asked.framework
    )
    return _Times(
        device_s=busy,
        computing_s=_sum(np.where(compute_bound & ~is_stepwise, total, 0)),
        moving_s=_sum(np.where(~compute_bound & ~is_stepwise, total, 0)),
        host_s=host_s,
        end_s=end_s,
        wait_s=wait_s,
        num_waits=np.broadcast_to(num_waits(asked.lowered, shapes.dims), busy.shape),
        backward_s=_sum(total[..., backward]),
        update_s=update_s,
        compute_bound_s=compute_s,
        bandwidth_bound_s=busy - compute_s,
        roofline_s=_sum(roofline * costs.count.astype(np.float32)),
        unmeasured_s=_sum(total[..., _is_unmeasured(costs.kind, calibration)]),
        log_shift=_within_peaks(lesson.log_shift, asked, shapes, rows.bounds, busy),
        left_frac=lesson.left_frac,
    )


def _within_peaks(
    log_shift: FloatArray, asked: _Question, shapes: OpShapes, bounds: Bounds, busy_s: FloatArray
) -> FloatArray:
    """What measurements tell, but that no kernels are faster than their units and memory, (D, P).

    Args:
        log_shift: Log of the factor that measurements tell.
        asked: The pass.
        shapes: Its cost table at the points.
        bounds: Of its rows.
        busy_s: Time of its kernels without that factor.
    """
    if not (log_shift < 0).any():
        return log_shift
    least = least_row_s(asked.lowered, shapes, asked.devices, bounds, asked.calibration)
    least_s = _sum(least * asked.lowered.costs.count.astype(np.float32))
    return np.maximum(log_shift, np.minimum(np.log(np.maximum(least_s / busy_s, 1e-12)), 0.0))


def _timelines(
    asked: _Question, shapes: OpShapes, device_dpn: Array
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Host time, when the last kernel ends, and what waits and the update add to that, (D, P)."""
    turns_pn = turns_in_order(asked.lowered, shapes.dims)
    host_dpn = asked.host_d1n * turns_pn
    host_s = np.broadcast_to(_sum(host_dpn), device_dpn.shape[:-1])
    num_before = _num_before_update(asked.lowered)
    end_s, before_s = step_ends_s(host_dpn, device_dpn, num_before)
    late_s = beyond_queue_s(asked.lowered, host_dpn, asked.calibration)
    end_s = np.maximum(end_s, before_s + late_s)
    update_s = end_s - before_s
    if not asked.waits.size:
        return host_s, end_s, np.zeros_like(end_s), update_s
    listing_pn = turns_pn * list_transfer_s(asked.lowered, shapes.dims, asked.calibration)
    waiting_s = waiting_end_s(host_dpn + listing_pn, device_dpn, asked.waits)
    wait_s = asked.calibration.constant("host_waits", "wait_s")
    waiting_s += num_waits(asked.lowered, shapes.dims) * wait_s
    return host_s + _sum(listing_pn), waiting_s, waiting_s - np.maximum(end_s, host_s), update_s


def _num_before_update(lowered: LoweredPass) -> int:
    """Ops in execution order before the first of the optimizer."""
    is_update = lowered.costs.phase[lowered.costs.order] == Phase.OPTIMIZER
    return int(is_update.argmax()) if is_update.any() else len(is_update)


def _roofline(rows: OpTimes, launches: Array) -> Array:
    return rows.bounds.roofline_s * launches


def _is_unmeasured(kind: npt.NDArray[np.int16], calibration: Calibration) -> npt.NDArray[np.bool_]:
    names = calibration.constants["unmeasured_kinds"]
    return np.isin(kind, [int(OpKind[name]) for name in names])


def _sum(values: Array) -> FloatArray:
    total: FloatArray = values.sum(axis=-1, dtype=np.float64)
    return total


def _prediction(asked: _Question, points: Points, times: _Times) -> PassPrediction:
    lowered, devices, calibration = asked.lowered, asked.devices, asked.calibration
    fixed_s = float(calibration.constants["host"]["step_s"][asked.framework])
    times = times.corrected()
    mid_s = np.maximum(times.end_s, times.host_s) + fixed_s * np.exp(times.log_shift)
    knowledge = knowledge_of(devices, calibration)
    doubts = UncertaintyTerms(
        framework=asked.framework,
        host_frac=times.host_s / mid_s,
        unmeasured_frac=times.unmeasured_s / np.maximum(times.device_s, 1e-12),
        device_frac=times.device_s / mid_s,
        runs=runs_of(lowered.configuration),
    )
    sigma = log_sigma(devices, knowledge, doubts, calibration) * np.sqrt(times.left_frac)
    use = use_of(mid_s, times.device_s, times.roofline_s, times.compute_bound_s)
    power_w = mean_power_w(devices, use, power_law(calibration))
    memory = peak_memory_bytes(
        lowered.memory, points, platform=lowered.configuration.platform, calibration=calibration
    )
    low_b, mid_b, high_b = (np.broadcast_to(m, mid_s.shape) for m in memory)
    return PassPrediction(
        low_s=mid_s * np.exp(-Z_80 * sigma),
        mid_s=mid_s,
        high_s=mid_s * np.exp(Z_80 * sigma),
        device_s=times.device_s,
        host_s=times.host_s,
        wait_s=times.wait_s,
        num_waits=times.num_waits,
        backward_s=times.backward_s,
        update_s=times.update_s,
        compute_bound_s=times.compute_bound_s,
        bandwidth_bound_s=times.bandwidth_bound_s,
        roofline_s=times.roofline_s,
        flop=_model_flop(lowered, points),
        memory_low_bytes=low_b,
        memory_mid_bytes=mid_b,
        memory_high_bytes=high_b,
        energy_j=power_w * mid_s,
        power_w=power_w,
        bound=_bound(times, mid_s),
        knowledge=with_observations(knowledge, devices, calibration),
        log_sigma=sigma,
    )


def _model_flop(lowered: LoweredPass, points: Points) -> FloatArray:
    """FLOP that the model itself asks for: what backward repeats of forward is not among them."""
    costs = lowered.costs
    count = costs.count * (costs.phase != Phase.RECOMPUTE)
    flop: FloatArray = monomials(points.batch, points.seq) @ (count @ costs.flop)
    return flop


def _bound(times: _Times, mid_s: FloatArray) -> npt.NDArray[np.int8]:
    """Launch where the host takes longer than the device, or the device idles for longest.

    A device that goes through short steps one after the other waits for their launches, too.
    """
    by_device = np.where(times.computing_s > times.moving_s, Bound.COMPUTE, Bound.BANDWIDTH)
    most_s = np.maximum(times.computing_s, times.moving_s)
    idle_s = mid_s - times.computing_s - times.moving_s
    held_back = (times.host_s > times.device_s) | (idle_s > most_s)
    return np.where(held_back, Bound.LAUNCH, by_device).astype(np.int8)
