"""Device time of every distinct op: a physical bound times a learned slowdown.

Shape legend: D devices, P points, R rows of the cost table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.dtypes import find_precision
from paceline.predict.calibration import Calibration
from paceline.predict.devices import DeviceTable, dtype_peaks, matrix_peaks
from paceline.predict.features import (
    Array,
    Bounds,
    Settings,
    attention_features,
    conv_features,
    product_features,
    stream_features,
)
from paceline.predict.groups import (
    Group,
    conv_shape,
    groups_of_rows,
    product_dims,
    sequential_launches,
    stream_dims,
    stream_flags,
)
from paceline.predict.prediction import Points
from paceline.trace.costs import CostTable, LoweredPass
from paceline.trace.graph import FloatArray, OpKind, monomials


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowShapes:
    """The cost table evaluated at the points; all (P, R), dims (P, R, NUM_DIMS).

    Attributes:
        flop: FLOP of one launch.
        moved_bytes: Device-memory bytes of one launch.
        dims: Shape numbers of the kind.
        launches: Launches that must follow one another in one occurrence: the steps and layers
            of recurrent cells, else 1.
    """

    flop: Array
    moved_bytes: Array
    dims: Array
    launches: Array


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowTimes:
    """Time of one occurrence of each row, (D, P, R).

    Attributes:
        device_s: Predicted time on the device, launch gap included.
        bounds: The physical bounds.
    """

    device_s: Array
    bounds: Bounds


def evaluate_shapes(costs: CostTable, points: Points) -> RowShapes:
    """Evaluate the polynomials of ``costs`` at ``points`` with one matrix product each."""
    powers = monomials(points.batch, points.seq)
    num_rows, num_dims = costs.dims.shape[:2]
    dims = powers @ costs.dims.reshape(num_rows * num_dims, -1).T
    dims = dims.reshape(len(powers), num_rows, num_dims)
    launches = sequential_launches(costs.kind, dims)
    moved = powers @ (costs.read_bytes + costs.write_bytes).T
    return RowShapes(
        flop=(powers @ costs.flop.T / launches).astype(np.float32),
        moved_bytes=(moved / launches).astype(np.float32),
        dims=dims.astype(np.float32),
        launches=launches.astype(np.float32),
    )


def row_times(
    lowered: LoweredPass,
    shapes: RowShapes,
    devices: DeviceTable,
    calibration: Calibration,
    *,
    framework: str = "torch",
) -> RowTimes:
    """Time of one occurrence of each row on each device at each point.

    Args:
        lowered: The pass; its configuration chooses the peak.
        shapes: Its cost table at the points.
        devices: Where it would run; a missing fact gives NaN.
        calibration: Slowdowns.
        framework: Whose kernels run.
    """
    costs = lowered.costs
    bounds = row_bounds(shapes, devices, row_peaks(lowered, devices, calibration))
    slowdown = np.zeros(bounds.compute_s.shape, dtype=np.float32)
    for rows, model, features in grouped_features(lowered, shapes, bounds, devices, framework):
        learned = calibration.models[model].log10_slowdown(features)
        slowdown[..., rows] = learned + _kind_offset(costs.kind[rows], calibration)
    generic = np.float32(calibration.constant("device", "generic_log10_slowdown"))
    slowdown = np.where(devices.is_gpu[:, None, None] > 0, slowdown, generic)
    busy = bounds.roofline_s * np.power(np.float32(10), slowdown)
    gap_s = calibration.constant("device", "launch_gap_s") * costs.num_kernels
    device_s = (busy + gap_s.astype(np.float32)) * shapes.launches
    return RowTimes(device_s=device_s, bounds=bounds)


def _kind_offset(kind: npt.NDArray[np.int16], calibration: Calibration) -> Array:
    offsets = calibration.constants["kind_log10"]
    return np.array([offsets.get(OpKind(k).name, 0.0) for k in kind], dtype=np.float32)


def grouped_features(
    lowered: LoweredPass, shapes: RowShapes, bounds: Bounds, devices: DeviceTable, framework: str
) -> Iterator[tuple[npt.NDArray[np.intp], str, Array]]:
    """For each efficiency model: the rows it serves, its name, their features (D, P, rows, F)."""
    configuration = lowered.configuration
    settings = Settings.of(
        compiler=configuration.compiler,
        is_channels_last=configuration.channels_last,
        framework=framework,
    )
    group_r = groups_of_rows(lowered.costs)
    for number in np.unique(group_r):
        group, rows = Group(number), np.flatnonzero(group_r == number)
        kind = lowered.costs.kind[rows]
        yield rows, group.model, _features(group, kind, rows, shapes, bounds, devices, settings)


def row_peaks(lowered: LoweredPass, devices: DeviceTable, calibration: Calibration) -> FloatArray:
    """Peak that applies to each row under the power limit, (D, R); NaN if a device has none.

    Ops that only stream through memory need no peak: an unknown one is no limit for them.
    """
    precision = find_precision(lowered.configuration.precision)
    dtype_r = lowered.costs.matmul_dtype
    peak_dr = dtype_peaks(devices)[:, dtype_r]
    own = dtype_r == int(precision.matmul_dtype)
    peak_dr[:, own] = matrix_peaks(devices, precision)[:, None]
    streams = groups_of_rows(lowered.costs) == Group.STREAM
    peak_dr[:, streams] = np.where(np.isnan(peak_dr[:, streams]), np.inf, peak_dr[:, streams])
    return peak_dr


def row_bounds(shapes: RowShapes, devices: DeviceTable, peak_dr: FloatArray) -> Bounds:
    """Physical bounds of every row, (D, P, R)."""
    peak = peak_dr[:, None, :].astype(np.float32)
    bandwidth = devices.memory_bytes_per_s[:, None, None].astype(np.float32)
    compute = np.where(shapes.flop > 0, shapes.flop / peak, np.float32(0))
    l2 = np.maximum(devices.l2_bytes, 1.0)[:, None, None].astype(np.float32)
    return Bounds(
        compute_s=compute.astype(np.float32),
        memory_s=shapes.moved_bytes / bandwidth,
        bytes_over_l2=shapes.moved_bytes / l2,
    )


def _features(
    group: Group, kind: npt.NDArray[np.int16], rows: npt.NDArray[np.intp], shapes: RowShapes,
    all_bounds: Bounds, devices: DeviceTable, settings: Settings,
) -> Array:  # fmt: skip
    bounds = all_bounds.rows(rows)
    num_sms = devices.num_sms[:, None, None].astype(np.float32)
    dims = shapes.dims[:, rows]
    if group.is_product:
        return product_features(bounds, product_dims(kind, dims), num_sms)
    if group.is_convolution:
        product = product_dims(kind, dims)
        conv = conv_shape(kind, dims, product, shapes.moved_bytes[:, rows])
        return conv_features(bounds, conv, product, num_sms, settings)
    if group in (Group.ATTENTION, Group.ATTENTION_BACKWARD):
        columns = tuple(dims[..., i] for i in range(7))
        return attention_features(bounds, columns, num_sms)
    return stream_features(bounds, stream_dims(kind, dims), stream_flags(kind), num_sms, settings)
