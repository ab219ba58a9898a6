"""Matrix units under the power limit: the rate that a board holds for hours, from its bursts.

Op rows are measured in short loops, at a rate that many boards cannot hold: the power limit acts
within milliseconds of steady work. An H100 runs products at about four fifths of its burst rate
when it trains; boards with more arithmetic per watt lose more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.dtypes import ELEMENT_BYTES, DType, find_precision
from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, IntArray, OpKind, Phase
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.device_kinds import kind_facts, runs_of
from paceline.prediction.devices import PEAK_KEYS, DeviceTable
from paceline.prediction.features import Array, Bounds
from paceline.prediction.kernels.conv_transforms import operations_frac
from paceline.prediction.kernels.groups import Group, groups_of_rows, has_one_query
from paceline.prediction.kernels.op_shapes import OpShapes
from paceline.prediction.kernels.power import ClockConstants, clock_frac, sustained_clock_frac
from paceline.prediction.kernels.row_times import OpTimes, row_times

_MATRIX_GROUPS = (
    Group.PRODUCT_TENSOR,
    Group.CONV_TENSOR,
    Group.ATTENTION,
    Group.ATTENTION_BACKWARD,
)
_VECTOR_GROUPS = (Group.PRODUCT_VECTOR, Group.CONV_VECTOR)
#: Clock of desktop cards for consumers over the listed one, at which products run at most. Of 1,
#: 1.05 and 1.15 it leaves least of timm's transformers on RTX 3090 and 4090 (5.9, 4.9, 5.0 %; rows
#: that were fitted).
_CLOCK_OVER_LISTED = 1.05


def power_budget(calibration: Calibration) -> ClockConstants:
    """Of matrix products in 16 bits: ``data/sustained_clock.csv`` (source in each row)."""
    facts = calibration.constants["sustained_clock"]
    return ClockConstants(**{name: float(facts[name]) for name in ClockConstants.__slots__})


def steady_row_times(
    lowered: LoweredPass,
    shapes: OpShapes,
    devices: DeviceTable,
    calibration: Calibration,
    *,
    framework: str = "torch",
    part: IntArray | None = None,
) -> OpTimes:
    """As `kernels.row_times`, at the clock that a step repeated for hours holds.

    Whether steps are so limited is part of the calibration: they are where its networks were
    fitted with the law. Steps have a level beside the kernels that were timed alone, which makes
    memory no faster than it is. A device whose clock is known is shifted besides.
    """
    burst = row_times(lowered, shapes, devices, calibration, framework=framework, part=part)
    device_s = products_without_casts(burst, lowered, shapes, devices, calibration)
    if calibration.constants["device"]["is_power_limited"]:
        device_s = sustained_row_s(device_s, lowered, shapes, devices, calibration)
    level = _level(lowered, devices, calibration, framework)
    least_s = least_row_s(lowered, shapes, devices, burst.bounds, calibration)
    device_s = np.maximum(device_s * level[:, None, None], least_s)
    shift = np.array([calibration.device_log_shift.get(name, 0.0) for name in devices.names])
    return replace(burst, device_s=device_s * np.exp(shift, dtype=np.float32)[:, None, None])


def products_without_casts(
    burst: OpTimes, lowered: LoweredPass, shapes: OpShapes, devices: DeviceTable,
    calibration: Calibration,
) -> Array:  # fmt: skip
    """Time of one occurrence of each row in a short loop, less casts that stand by themselves.

    Products in 8 bits were timed as layers of an engine, which cast what enters them on the way
    (ai-dynamo/aiconfigurator, ``collector/vllm/collect_gemm.py``); a graph of training has its
    casts beside them. What such a cast took (``data/measured_casts.csv``) is the bytes of a number
    at the listed bandwidth, and cycles of a multiprocessor. Products in 4 bits are told as those in
    8 at twice the rate, with half of their casts.
    """
    costs = lowered.costs
    in_few_bits = np.isin(costs.matmul_dtype, (int(DType.FP8), int(DType.FP4)))
    rows = np.flatnonzero((costs.kind == OpKind.MATMUL) & in_few_bits)
    if not (rows.size and (costs.phase == Phase.BACKWARD).any()):
        return burst.device_s
    known, dims = calibration.constants["measured_casts"], shapes.dims[:, rows]
    cycles_per_s = devices.num_sms * devices.boost_clock_hz
    number_s = known["bytes"] / devices.memory_bytes_per_s + known["cycles"] / cycles_per_s
    cast_s = dims[..., 0] * dims[..., 1] * dims[..., 3] * np.nan_to_num(number_s)[:, None, None]
    cast_s *= np.array(ELEMENT_BYTES)[costs.matmul_dtype[rows]]
    timed_s = burst.device_s[..., rows]
    least_s = np.minimum(burst.bounds.rows(rows).roofline_s, timed_s)
    found = burst.device_s.copy()
    found[..., rows] = np.maximum(timed_s - cast_s, least_s)
    return found


def _level(
    lowered: LoweredPass, devices: DeviceTable, calibration: Calibration, framework: str
) -> Array:
    """Time in a step over that of the same kernels timed alone, (num_devices,).

    By framework and kind of pass, with that of the tables whose rows are read besides. Passes that
    make one token of each item were in no table of steps. Kernels of a sort of device that no fit
    saw have the level of published figures of it (``data/device_kinds.csv``).
    """
    attention = np.flatnonzero(lowered.costs.kind == OpKind.ATTENTION)
    is_decode = attention.size and has_one_query(lowered.costs, attention).all()
    task = "decode" if is_decode else "train" if Phase.BACKWARD in lowered.costs.phase else "infer"
    asked = f"{framework}/{task}"
    log_level = np.full(len(devices), calibration.constants["step_level"].get(asked, 0.0))
    runs = runs_of(lowered.configuration)
    of_kinds = [kind_facts(k, calibration, runs=runs).log_level for k in devices.kinds]
    is_measured = [name in calibration.measured_devices for name in devices.names]
    log_level += np.where(is_measured, 0.0, of_kinds)
    if calibration.source_levels is not None:
        log_level += calibration.source_levels.logs(devices, asked)
    level: Array = np.exp(log_level).astype(np.float32)
    return level


def least_row_s(
    lowered: LoweredPass, shapes: OpShapes, devices: DeviceTable, bounds: Bounds,
    calibration: Calibration,
) -> Array:  # fmt: skip
    """Time of one occurrence of each row below which no kernel comes, (D, P, R).

    The operations that no transform saves at the listed peak of the units that run them, and the
    bytes that the last-level cache cannot hold at the listed bandwidth, whatever was learned.
    Transforms run on vector units: libraries' convolutions on matrix units are products.

    Source:
        NVIDIA, "Convolutional Layers User's Guide": Tensor Cores run convolutions as implicit
        products of matrices.
    """
    precision = find_precision(lowered.configuration.precision)
    faster = np.where(devices.is_consumer > 0, _CLOCK_OVER_LISTED, 1.0)[:, None]
    on_vectors = among(groups_of_rows(lowered.costs, precision), _VECTOR_GROUPS)
    held = np.where(on_vectors, sustained_clock_frac(devices, calibration)[:, None], 1.0)
    share = np.where(on_vectors, operations_frac(lowered.costs.kind, shapes.dims), np.float32(1))
    faster = faster * _narrow_sums(lowered, devices)[:, None]
    compute_s = bounds.compute_s * (held / faster)[:, None, :].astype(np.float32) * share
    compute_s = np.nan_to_num(compute_s, posinf=0.0)
    least: Array = np.maximum(compute_s, bounds.uncached_s) * shapes.launches
    return least


def _narrow_sums(lowered: LoweredPass, devices: DeviceTable) -> FloatArray:
    """How much faster matrix units are than listed where FP16 is added up in FP16, (D,).

    TensorRT chooses such kernels; frameworks add in FP32, which peaks are listed for. Boards that
    halve the latter have four times as many operations in INT8, others twice (NVIDIA, "Ampere
    GA102 GPU Architecture", table 2).
    """
    precision = find_precision(lowered.configuration.precision)
    if lowered.configuration.compiler != "tensorrt" or precision.matmul_dtype != DType.FP16:
        return np.ones(len(devices))
    fp16, int8 = (devices.peaks[:, PEAK_KEYS.index(key)] for key in ("fp16", "int8"))
    ratio: FloatArray = np.nan_to_num(np.clip(int8 / (2 * fp16), 1.0, 2.0), nan=1.0)
    return ratio


def sustained_row_s(
    device_s: Array, lowered: LoweredPass, shapes: OpShapes, devices: DeviceTable,
    calibration: Calibration,
) -> Array:  # fmt: skip
    """Time of one occurrence of each row in steady work, (D, P, R).

    Args:
        device_s: Time in a short loop, (D, P, R).
        lowered: The pass.
        shapes: Its cost table at the points.
        devices: Where it runs.
        calibration: What an operation draws.
    """
    flop = shapes.launches * power_flop(lowered, shapes, calibration)
    energies = _energies(devices) * _widened(lowered, devices, calibration)
    burst_flop_per_s = flop * energies / np.maximum(device_s, 1e-12)
    frac = clock_frac(devices.tdp_w[:, None, None], burst_flop_per_s, power_budget(calibration))
    return (device_s / frac).astype(device_s.dtype)


def power_flop(lowered: LoweredPass, shapes: OpShapes, calibration: Calibration) -> Array:
    """Operations on matrix units of one launch, as so many in 16 bits by their power, (P, R).

    Operations in other formats draw power as ``data/operation_energy.csv`` has it.
    """
    precision = find_precision(lowered.configuration.precision)
    on_matrix_units = among(groups_of_rows(lowered.costs, precision), _MATRIX_GROUPS)
    share = np.zeros(len(lowered.costs.kind))
    known = calibration.constants["operation_energy"]
    dtypes = lowered.costs.matmul_dtype[on_matrix_units].tolist()
    share[on_matrix_units] = [known[ELEMENT_BYTES[one]] for one in dtypes]
    return (shapes.flop * share).astype(np.float32)


def _widened(lowered: LoweredPass, devices: DeviceTable, calibration: Calibration) -> Array:
    """Energy of an operation over that of its format, (D, 1, R).

    Kernels widen operands of 4 bits to 16 where a device has no units for them.
    """
    known = calibration.constants["operation_energy"]
    is_narrow = lowered.costs.matmul_dtype == int(DType.FP4)
    lacks = np.isnan(devices.peaks[:, PEAK_KEYS.index("fp4")])
    wider = known[ELEMENT_BYTES[DType.BF16]] / known[ELEMENT_BYTES[DType.FP4]]
    factor = np.where(lacks[:, None] & is_narrow, wider, 1.0)
    return factor[:, None, :].astype(np.float32)


def power_s(flop: Array, devices: DeviceTable, calibration: Calibration) -> Array:
    """Time in which the board's power serves operations on matrix units, (D, P, R).

    Work that takes the time t in a short loop takes `max(t, t^(1-x) power_s^x)` in the long run,
    with the exponent x of the law. Zero, which limits nothing, where the power is unknown.

    Args:
        flop: As of `power_flop`, (P, R).
        devices: Where they run.
        calibration: What an operation draws.
    """
    budget = power_budget(calibration)
    available_w = devices.tdp_w[:, None, None] * (1.0 - budget.idle_frac)
    needed_j = flop * _energies(devices) * budget.j_per_flop
    return np.nan_to_num(needed_j / available_w, posinf=0.0).astype(np.float32)


def _energies(devices: DeviceTable) -> Array:
    """Energy of an operation on matrix units over that of the reference, (D, 1, 1)."""
    energies = [one.operation_energy for one in devices.generations]
    return np.array(energies, dtype=np.float32)[:, None, None]
