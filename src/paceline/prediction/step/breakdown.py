"""What a pass consists of: the ops that take most time and why, and who owns memory at the peak."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline.model.graph.costs import CostTable, LoweredPass
from paceline.model.graph.graph import FloatArray, OpKind, Owner, Phase
from paceline.model.ops.registry import FACTS
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.op_shapes import OpShapes, evaluate_shapes
from paceline.prediction.kernels.row_times import OpTimes
from paceline.prediction.kernels.sustained_rate import steady_row_times
from paceline.prediction.kernels.unaligned_products import has_narrow_loads
from paceline.prediction.memory.peak import peak_by_owner_bytes
from paceline.prediction.prediction import Points
from paceline.prediction.step.host_dispatch import num_waits, waits_of
from paceline.prediction.step.one_pass import OVERHEAD_FACTOR, predict_pass
from paceline.prediction.uncertainty.posterior_correction import correction_of
from paceline.values import dataclass

Limit = Literal["compute", "bandwidth", "overhead", "odd width"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpShare:
    """All occurrences of one distinct op in a pass.

    Attributes:
        kind: Word of ``OpKind``.
        phase: Word of ``Phase``.
        module: Where it first occurs.
        shape: Its shape numbers by name.
        count: Occurrences.
        flop: Of all of them.
        moved_bytes: Device-memory bytes of all of them.
        device_s: Time of all of them; None without a device, as below.
        time_frac: Share of the device's busy time.
        limit: Which physical bound holds it back; ``overhead`` where it is far from both, and
            ``odd width`` where that is as its rows begin at no multiple of 16 bytes.
        bound_frac: Physical bound over predicted time.
    """

    kind: str
    phase: str
    module: str
    shape: dict[str, int]
    count: float
    flop: float
    moved_bytes: float
    device_s: float | None
    time_frac: float | None
    limit: Limit | None
    bound_frac: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerBytes:
    """Live bytes of one owner at the moment of the peak, before allocator rounding.

    Attributes:
        owner: Word of ``Owner``.
        live_bytes: How many.
    """

    owner: str
    live_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBreakdown:
    """One pass at one batch and sequence length.

    Attributes:
        name: Of the pass.
        batch: Items.
        seq: Sequence or past length.
        num_ops: Operations in execution order.
        num_kernels: Kernels they launch.
        num_waits: How often the host waits for the device within the pass.
        waiting_frac: Share of the pass that is lost so; None without a device, as below.
        num_parameters: Of the model.
        num_trainable_parameters: Those that receive gradients.
        flop: Of the pass.
        flop_by_phase: The same by word of ``Phase``.
        moved_bytes: Device-memory bytes of the pass.
        device: ``Device.name``; None without one, as below.
        device_s: Busy time of the device.
        ops: Largest first: by time on a device, else by FLOP.
        memory: By owner at the peak, largest first.
    """

    name: str
    batch: int
    seq: int
    num_ops: int
    num_kernels: float
    num_waits: int
    waiting_frac: float | None
    num_parameters: int
    num_trainable_parameters: int
    flop: float
    flop_by_phase: dict[str, float]
    moved_bytes: float
    device: str | None
    device_s: float | None
    ops: tuple[OpShare, ...]
    memory: tuple[OwnerBytes, ...]


def break_down(
    lowered: LoweredPass,
    device: DeviceTable | None,
    *,
    batch: int,
    seq: int,
    num_ops: int = 10,
    calibration: Calibration | None = None,
) -> PassBreakdown:
    """Take a pass apart.

    Args:
        lowered: The pass.
        device: A table of one device, or None.
        batch: Items.
        seq: Sequence or past length.
        num_ops: How many ops to list.
        calibration: Coefficients; the built-in ones if None.
    """
    points = Points.of([batch], seq=seq)
    rows = _Rows.of(lowered, device, points, calibration or builtin_calibration())
    return PassBreakdown(
        name=lowered.name,
        batch=batch,
        seq=seq,
        num_ops=len(rows.costs.order),
        num_kernels=float(rows.costs.count @ rows.costs.num_kernels),
        num_waits=round(float(num_waits(lowered, rows.shapes.dims)[0])),
        waiting_frac=_waiting_frac(lowered, device, points, calibration),
        num_parameters=lowered.num_parameters,
        num_trainable_parameters=lowered.num_trainable_parameters,
        flop=float(rows.flop.sum()),
        flop_by_phase=_by_phase(rows.costs, rows.flop),
        moved_bytes=float(rows.moved_bytes.sum()),
        device=None if device is None else device.names[0],
        device_s=None if rows.seconds is None else float(rows.seconds.sum()),
        ops=tuple(_op_share(rows, row) for row in rows.largest(num_ops)),
        memory=_memory_by_owner(lowered, points),
    )


def _waiting_frac(
    lowered: LoweredPass,
    device: DeviceTable | None,
    points: Points,
    calibration: Calibration | None,
) -> float | None:
    """Share of the pass that would be saved if the host never waited within it."""
    if device is None:
        return None
    if not waits_of(lowered).size:
        return 0.0
    whole = predict_pass(lowered, device, points, calibration=calibration)
    return float(whole.wait_s[0, 0] / whole.mid_s[0, 0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """Distinct ops of a pass at one point; totals are over all occurrences, (num_rows,).

    Attributes:
        costs: The ops.
        shapes: At that point.
        times: Of one occurrence; None without a device.
        flop: In total.
        moved_bytes: In total.
        seconds: In total; None without a device.
        is_narrow: Whether kernels with narrow loads run it; nowhere without a device.
    """

    costs: CostTable
    shapes: OpShapes
    times: OpTimes | None
    flop: FloatArray
    moved_bytes: FloatArray
    seconds: FloatArray | None
    is_narrow: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, lowered: LoweredPass, device: DeviceTable | None, points: Points,
        calibration: Calibration,
    ) -> _Rows:  # fmt: skip
        """Work of every row at one point, and its time where a device is named."""
        costs, shapes = lowered.costs, evaluate_shapes(lowered.costs, points)
        times = None if device is None else steady_row_times(lowered, shapes, device, calibration)
        seconds = None
        if device is not None and times is not None:
            lesson = correction_of(
                lowered, shapes, times.device_s, device, calibration, framework="torch"
            )
            seconds = times.device_s[0, 0] * costs.count * np.exp(lesson.log_shift[0, 0])
        return cls(
            costs=costs,
            shapes=shapes,
            times=times,
            flop=_totals(costs, shapes, shapes.flop),
            moved_bytes=_totals(costs, shapes, shapes.moved_bytes),
            seconds=seconds,
            is_narrow=np.zeros(len(costs.kind), bool)
            if device is None
            else has_narrow_loads(costs, device, lowered.configuration),
        )

    def largest(self, num_rows: int) -> list[int]:
        """Rows that take most time; without a device, those with most FLOP."""
        weight = self.flop if self.seconds is None else self.seconds
        found: list[int] = np.argsort(-weight, kind="stable")[:num_rows].tolist()
        return found


def _memory_by_owner(lowered: LoweredPass, points: Points) -> tuple[OwnerBytes, ...]:
    """Live bytes by owner at the moment where their sum is largest, at the first point."""
    at_peak = peak_by_owner_bytes(lowered.memory, points)[:, 0]
    owners = np.argsort(-at_peak, kind="stable")
    return tuple(
        OwnerBytes(owner=_word(Owner(int(owner)).name), live_bytes=float(at_peak[owner]))
        for owner in owners
        if at_peak[owner] > 0
    )


def _op_share(rows: _Rows, row: int) -> OpShare:
    costs, seconds, kind = rows.costs, rows.seconds, OpKind(int(rows.costs.kind[row]))
    limit, bound_frac = (None, None) if rows.times is None else _limit(rows, rows.times, row)
    return OpShare(
        kind=_word(kind.name),
        phase=_word(Phase(int(costs.phase[row])).name),
        module=_first_module(costs, row),
        shape=_shape(kind, rows.shapes.dims[0, row]),
        count=float(costs.count[row]),
        flop=float(rows.flop[row]),
        moved_bytes=float(rows.moved_bytes[row]),
        device_s=None if seconds is None else float(seconds[row]),
        time_frac=None if seconds is None else float(seconds[row] / seconds.sum()),
        limit=limit,
        bound_frac=bound_frac,
    )


def _limit(rows: _Rows, times: OpTimes, row: int) -> tuple[Limit, float]:
    compute_s = float(times.bounds.compute_s[0, 0, row])
    memory_s = float(times.bounds.memory_s[0, 0, row])
    bound_s = max(compute_s, memory_s) * float(rows.shapes.launches[0, row])
    frac = bound_s / max(float(times.device_s[0, 0, row]), 1e-12)
    if frac * OVERHEAD_FACTOR < 1:
        return ("odd width" if rows.is_narrow[row] else "overhead"), frac
    return ("compute" if compute_s > memory_s else "bandwidth"), frac


def _totals(costs: CostTable, shapes: OpShapes, per_launch: npt.NDArray[np.float32]) -> FloatArray:
    total: FloatArray = per_launch[0].astype(np.float64) * shapes.launches[0] * costs.count
    return total


def _by_phase(costs: CostTable, flop: FloatArray) -> dict[str, float]:
    sums = np.bincount(costs.phase, weights=flop, minlength=len(Phase))
    return {_word(phase.name): float(sums[phase]) for phase in Phase if sums[phase] > 0}


def _first_module(costs: CostTable, row: int) -> str:
    return costs.modules[int(costs.module[np.flatnonzero(costs.order == row)[0]])]


def _shape(kind: OpKind, dims: npt.NDArray[np.float32]) -> dict[str, int]:
    names = FACTS[kind].dims
    return {name: int(size) for name, size in zip(names, dims, strict=False)}


def _word(name: str) -> str:
    return name.lower().replace("_", " ")
