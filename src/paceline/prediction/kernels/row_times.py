"""Device time of every distinct op: a physical bound times a learned slowdown.

Shape legend: D devices, P points, R rows of the cost table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.dtypes import ELEMENT_BYTES, DType, find_precision
from paceline.model.graph.costs import CostTable, LoweredPass
from paceline.model.graph.distinct import among, distinct
from paceline.model.graph.graph import FloatArray, IntArray, OpKind, Phase
from paceline.model.ops.optable import variants
from paceline.model.ops.registry import kinds_where
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.device_kinds import has_early_kernels
from paceline.prediction.devices import (
    DeviceTable,
    calculates_in_fp32,
    dtype_peaks,
    has_matrix_units,
    matrix_peaks,
    unhalved_peaks,
)
from paceline.prediction.features import (
    Array,
    Bounds,
    Settings,
    attention_features,
    conv_features,
    product_features,
    stream_features,
)
from paceline.prediction.kernels.attention_generations import log10_slower
from paceline.prediction.kernels.attention_tiles import (
    AttentionConstants,
    attention_tiled_s,
    kernel_head_size,
)
from paceline.prediction.kernels.conv_transforms import has_rare_filter
from paceline.prediction.kernels.device_effects import EFFECT_OF_MODEL, Effect, log10_effects
from paceline.prediction.kernels.early_kernels import with_early
from paceline.prediction.kernels.experts.expert_tiles import beside_experts
from paceline.prediction.kernels.experts.times import experts_s
from paceline.prediction.kernels.groups import (
    Group,
    conv_shape,
    folded_product,
    groups_of_rows,
    has_one_query,
    product_dims,
    rows_alike,
    stream_dims,
    stream_flags,
)
from paceline.prediction.kernels.host_copies import through_host_link
from paceline.prediction.kernels.op_shapes import OpShapes
from paceline.prediction.kernels.portable_products import Products, with_portable
from paceline.prediction.kernels.power import sustained_clock_frac
from paceline.prediction.kernels.product_tiles import (
    Engine,
    TileConstants,
    batched_tiles,
    tiled_s,
    tuned_s,
)
from paceline.prediction.kernels.serial_accesses import no_faster_than_accesses
from paceline.prediction.kernels.unaligned_products import no_faster_unaligned
from paceline.prediction.matrix_engines import with_unmeasured
from paceline.values import dataclass

#: Models of attention: of one query row per head, which reads memory, and of more, which compute.
_DECODE, _PREFILL = "attention_decode", "attention"
_PRODUCTS = kinds_where(lambda facts: facts.efficiency == "product")
#: Recurrent cells, and to how many items their batch may be filled up.
_CELLS = kinds_where(lambda facts: facts.is_cell)
_FILLED_BATCHES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: Where the shape numbers of attention say how wide heads are.
_HEAD_SIZE = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpTimes:
    """Time of one occurrence of each row, (D, P, R).

    Attributes:
        device_s: Predicted time on the device, launch gap included.
        bounds: The physical bounds.
    """

    device_s: Array
    bounds: Bounds


def row_times(
    lowered: LoweredPass,
    shapes: OpShapes,
    devices: DeviceTable,
    calibration: Calibration,
    *,
    framework: str = "torch",
    part: IntArray | None = None,
) -> OpTimes:
    """Time of one occurrence of each row on each device at each point.

    Args:
        lowered: The pass; its configuration chooses the peak.
        shapes: Its cost table at the points.
        devices: Where it would run; a missing fact gives NaN.
        calibration: Slowdowns.
        framework: Whose kernels run.
        part: Of several passes in one table, the pass of each row, ascending: the answers are those
            of each alone, to the bit.
    """
    ask = partial(
        question, lowered, shapes, calibration=calibration, framework=framework, part=part
    )
    in_fp32 = calculates_in_fp32(devices, find_precision(lowered.configuration.precision))
    if in_fp32.all() or not in_fp32.any():
        return _times(ask(devices))
    kinds = [np.flatnonzero(in_fp32), np.flatnonzero(~in_fp32)]
    times = [_times(ask(devices.take(kind))) for kind in kinds]
    return _merged(times, np.argsort(np.concatenate(kinds)))


def question(
    lowered: LoweredPass, shapes: OpShapes, devices: DeviceTable, calibration: Calibration, *,
    framework: str, part: IntArray | None = None,
) -> Question:  # fmt: skip
    """What is asked of devices of which all or none calculate 16-bit products in FP32."""
    precision = find_precision(lowered.configuration.precision)
    on_vector_units = bool(calculates_in_fp32(devices, precision).all())
    peak_dr = row_peaks(lowered, devices, calibration, on_vector_units=on_vector_units)
    return Question(
        lowered=lowered, shapes=shapes, devices=devices, peak_dr=peak_dr,
        bounds=row_bounds(shapes, devices, peak_dr), calibration=calibration, framework=framework,
        on_vector_units=on_vector_units,
        part=np.zeros(len(lowered.costs.kind), dtype=np.int64) if part is None else part,
    )  # fmt: skip


def _merged(parts: Sequence[OpTimes], order: npt.NDArray[np.intp]) -> OpTimes:
    """Times on several groups of devices, one after another and then in an order."""

    def joined(values: Sequence[Array]) -> Array:
        shape = np.broadcast_shapes(*(v.shape[1:] for v in values))
        whole = [np.broadcast_to(v, (len(v), *shape)) for v in values]
        return np.concatenate(whole)[order]

    bounds = {n: joined([getattr(part.bounds, n) for part in parts]) for n in Bounds.__slots__}
    return OpTimes(device_s=joined([part.device_s for part in parts]), bounds=Bounds(**bounds))


def _times(asked: Question) -> OpTimes:
    shapes, devices, bounds = asked.shapes, asked.devices, asked.bounds
    calibration, framework = asked.calibration, asked.framework
    costs, configuration = asked.lowered.costs, asked.lowered.configuration
    factor = np.power(np.float32(10), _log10_slowdown(asked))
    busy_s = np.maximum(bounds.roofline_s * factor, bounds.uncached_s)
    busy_s = no_faster_than_accesses(
        busy_s, costs, shapes.dims, devices, configuration, calibration, framework
    )
    busy_s = no_faster_unaligned(
        busy_s, costs, shapes.flop, devices, configuration, calibration, framework
    )
    if has_early_kernels(configuration):
        busy_s = with_early(busy_s, costs, shapes.flop, shapes.dims, devices, calibration)
    if configuration.engine_kernels == "portable":
        rows = np.flatnonzero(among(costs.kind, _PRODUCTS))
        num_rows = folded_product(product_dims(costs.kind[rows], shapes.dims[:, rows]))[1]
        precision = find_precision(configuration.precision)
        products = Products(
            rows=rows, num_rows=num_rows, moved_bytes=shapes.moved_bytes, flop=shapes.flop,
            are_widened=precision.weight_dtype != precision.activation_dtype,
        )  # fmt: skip
        busy_s = with_portable(busy_s, products, devices, calibration)
    gap_s = calibration.constant("device", "launch_gap_s") * costs.num_kernels
    device_s = (busy_s + gap_s.astype(np.float32)) * shapes.launches
    if configuration.is_served and configuration.engine_kernels == "tuned":
        device_s = beside_experts(device_s, bounds, costs, shapes.dims, devices)
    device_s, bounds = through_host_link(
        device_s, bounds, shapes.moved_bytes, costs, devices, calibration
    )
    return OpTimes(device_s=device_s, bounds=bounds)


def _log10_slowdown(asked: Question) -> Array:
    """Log10 of the time of each row over its physical bound, (D, P, R)."""
    lowered, devices, calibration = asked.lowered, asked.devices, asked.calibration
    costs = lowered.costs
    clock_frac = sustained_clock_frac(devices, calibration)
    effects = log10_effects(devices, clock_frac, calibration, lowered.configuration.libraries)
    older = log10_slower(devices, lowered.configuration, asked.software)
    slowdown = np.zeros(asked.bounds.compute_s.shape, dtype=np.float32)
    for one in grouped_features(asked):
        offset = _kind_offset(costs.kind[one.rows], calibration)
        slower = (_learned_log10(one, asked) + offset).astype(np.float32, copy=False)
        if one.model == _PREFILL:
            slower += older[:, None, None]
        slower += _effect(one, effects, asked.bounds)
        slowdown[..., one.served] = slower[..., one.index]
    if lowered.configuration.is_served:
        experts = costs.expert_rows()
        slowdown[..., experts] = _expert_log10(experts, asked)
    return with_unmeasured(slowdown, costs.kind, asked.bounds, devices, calibration)


def _learned_log10(one: GroupFeatures, asked: Question) -> Array:
    """What the group's model says, and no more than a kernel takes that is tuned by hand."""
    if one.model == _PREFILL:
        return _whole_heads_log10(one, asked)
    model = asked.calibration.models[one.model]
    learned = model.log10_slowdown(one.features, asked.part[one.rows])
    cells = np.flatnonzero(among(asked.lowered.costs.kind[one.rows], _CELLS))
    if one.model == Group.PRODUCT_TENSOR.model and cells.size:
        learned[..., cells] = np.minimum(learned[..., cells], _filled_log10(one.rows[cells], asked))
    rare = np.flatnonzero(has_rare_filter(asked.lowered.costs.kind, asked.shapes.dims)[one.rows])
    if rare.size:
        learned[..., rare] = np.maximum(learned[..., rare], _product_log10(one.rows[rare], asked))
    is_tuned = asked.lowered.configuration.convolutions == "tuned"
    if is_tuned and one.model == Group.CONV_TENSOR.model:
        return np.minimum(learned, _tuned_log10(one.rows, asked))
    return learned


def _whole_heads_log10(one: GroupFeatures, asked: Question) -> Array:
    """What the model of attention says, with heads as wide as their kernels, (D, P, rows)."""
    model = asked.calibration.models[one.model]
    learned = model.log10_slowdown(one.features, asked.part[one.rows])
    own = asked.shapes.dims[:, :, _HEAD_SIZE]
    between = np.flatnonzero((kernel_head_size(own) != own).any(axis=0)[one.rows])
    if not between.size:
        return learned
    rows = one.rows[between]
    wide = _with_whole_heads(rows, asked)
    groups = groups_of_rows(
        asked.lowered.costs,
        find_precision(asked.lowered.configuration.precision),
        on_vector_units=asked.on_vector_units,
    )
    features = _features(one.model, Group(groups[rows[0]]), rows, wide)
    times_bound = wide.bounds.rows(rows).roofline_s / np.maximum(
        asked.bounds.rows(rows).roofline_s, 1e-12
    )
    wide_log10 = model.log10_slowdown(features, asked.part[rows])
    learned[..., between] = wide_log10 + np.log10(times_bound)
    return learned


def _with_whole_heads(rows: npt.NDArray[np.intp], asked: Question) -> Question:
    """The question with heads of some rows filled up to what a kernel is built for."""
    dims, flop = asked.shapes.dims.copy(), asked.shapes.flop.copy()
    own = dims[:, rows, _HEAD_SIZE]
    dims[:, rows, _HEAD_SIZE] = kernel_head_size(own)
    flop[:, rows] *= dims[:, rows, _HEAD_SIZE] / np.maximum(own, 1)
    shapes = replace(asked.shapes, dims=dims, flop=flop)
    return replace(asked, shapes=shapes, bounds=row_bounds(shapes, asked.devices, asked.peak_dr))


def _product_log10(rows: npt.NDArray[np.intp], asked: Question) -> Array:
    """Log10 slowdown of convolutions as the products that they are, (D, P, rows)."""
    precision = find_precision(asked.lowered.configuration.precision)
    costs = asked.lowered.costs
    groups = groups_of_rows(costs, precision, on_vector_units=asked.on_vector_units)
    product = product_dims(costs.kind[rows], asked.shapes.dims[:, rows])
    seconds = _tiled_s(Group(groups[rows[0]]), rows, product, asked)
    slowdown: Array = np.log10(seconds / np.maximum(asked.bounds.rows(rows).roofline_s, 1e-12))
    return slowdown


def _filled_log10(rows: npt.NDArray[np.intp], asked: Question) -> Array:
    """Log10 slowdown of cells that are run with more items than they have, (D, P, rows).

    Tiles of matrix units are whole, so a batch that fills them is a bound for a smaller one.
    Networks saw few products with so few rows and so small weights, and rise and fall with them.
    """
    model = Group.PRODUCT_TENSOR.model
    own_s = asked.bounds.rows(rows).roofline_s
    best = np.full(own_s.shape, np.inf, dtype=np.float32)
    for batch in _FILLED_BATCHES:
        filled = _with_batch(rows, batch, asked)
        features = _features(model, Group.PRODUCT_TENSOR, rows, filled)
        seconds = filled.bounds.rows(rows).roofline_s * np.power(
            np.float32(10),
            asked.calibration.models[model].log10_slowdown(features, asked.part[rows]),
        )
        is_larger = asked.shapes.dims[:, rows, 0] <= batch
        best = np.where(is_larger, np.minimum(best, seconds), best)
    slowdown: Array = np.log10(best / np.maximum(own_s, 1e-12))
    return slowdown


def _with_batch(rows: npt.NDArray[np.intp], batch: int, asked: Question) -> Question:
    """The question with another batch in some rows."""
    shapes, costs = asked.shapes, asked.lowered.costs
    dims, flop, moved = (x.copy() for x in (shapes.dims, shapes.flop, shapes.moved_bytes))
    ratio = np.float32(batch) / np.maximum(dims[:, rows, 0], 1)
    weights = costs.weight_bytes[rows, 0].astype(np.float32) / shapes.launches[:, rows]
    flop[:, rows] *= ratio
    moved[:, rows] = weights + (moved[:, rows] - weights) * ratio
    dims[:, rows, 0] = batch
    shapes = replace(shapes, dims=dims, flop=flop, moved_bytes=moved)
    return replace(asked, shapes=shapes, bounds=row_bounds(shapes, asked.devices, asked.peak_dr))


def _tuned_log10(rows: npt.NDArray[np.intp], asked: Question) -> Array:
    """Log10 slowdown of convolutions written by hand, (D, P, rows): products of their size."""
    kind, dims = asked.lowered.costs.kind[rows], asked.shapes.dims[:, rows]
    constants = TileConstants.from_mapping(asked.calibration.constants["tiles"]["tensor"])
    moved, engine = asked.shapes.moved_bytes[:, rows], _engine(rows, asked)
    seconds = tuned_s(product_dims(kind, dims), moved, engine, constants)
    slowdown: Array = np.log10(seconds / np.maximum(asked.bounds.rows(rows).roofline_s, 1e-12))
    return slowdown


def _expert_log10(rows: npt.NDArray[np.intp], asked: Question) -> Array:
    """Log10 slowdown of the products of fused experts, (D, P, rows)."""
    costs, dims = asked.lowered.costs, asked.shapes.dims[:, rows]
    num_experts, each, outputs, inputs = (dims[..., i] for i in range(4))
    reached = 1.0 - costs.unread_frac(rows, each.astype(np.float64)).astype(np.float32)
    product = (num_experts * reached, each / np.maximum(reached, 1e-9), outputs, inputs, each)
    sorts = (costs.variant[rows] != variants()["MATMUL", "adapters"]).astype(np.float32)
    seconds = experts_s(
        product, asked.shapes.moved_bytes[:, rows], _engine(rows, asked), asked.devices,
        asked.lowered.configuration, asked.calibration, sorts=sorts,
    )  # fmt: skip
    return np.asarray(np.log10(seconds / np.maximum(asked.bounds.rows(rows).roofline_s, 1e-12)))


def _effect(one: GroupFeatures, effects: Array, bounds: Bounds) -> Array | float:
    """Log10 by which devices slow the rows of a group, (D, P, rows)."""
    effect = EFFECT_OF_MODEL.get(one.model)
    if effect is None:
        return 0.0
    slower = effects[:, None, effect, None]
    return slower if effect == Effect.STREAM else slower * bounds.rows(one.rows).compute_frac


def _kind_offset(kind: npt.NDArray[np.int16], calibration: Calibration) -> Array:
    offsets = calibration.constants["kind_log10"]
    return np.array([offsets.get(OpKind(k).name, 0.0) for k in kind], dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """A pass at some points on some devices, with what was worked out on the way.

    Attributes:
        lowered: The pass.
        shapes: Its cost table at the points.
        devices: The devices.
        peak_dr: Peak of each row, (D, R).
        bounds: Physical bounds, (D, P, R).
        calibration: Constants.
        framework: Whose kernels run.
        on_vector_units: Products of 16 bits are calculated in FP32.
        part: Part of each row, ascending, (R,); models are asked of those of one at a time.
    """

    lowered: LoweredPass
    shapes: OpShapes
    devices: DeviceTable
    peak_dr: FloatArray
    bounds: Bounds
    calibration: Calibration
    framework: str
    on_vector_units: bool
    part: IntArray

    @property
    def software(self) -> Mapping[str, str]:
        """Facts of the framework: rows of ``data/frameworks.csv``."""
        facts: Mapping[str, Mapping[str, str]] = self.calibration.constants["frameworks"]
        return facts[self.framework]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupFeatures:
    """Rows that one efficiency model serves.

    Attributes:
        served: Row numbers.
        rows: Of these, one of each that differs at the points.
        index: Which of ``rows`` each of ``served`` is alike.
        model: Name of the model.
        features: (D, P, rows, F).
    """

    served: npt.NDArray[np.intp]
    rows: npt.NDArray[np.intp]
    index: npt.NDArray[np.intp]
    model: str
    features: Array


def grouped_features(asked: Question) -> Iterator[GroupFeatures]:
    """Features of all rows, one efficiency model after another."""
    costs, precision = asked.lowered.costs, find_precision(asked.lowered.configuration.precision)
    group_r = groups_of_rows(costs, precision, on_vector_units=asked.on_vector_units)
    shapes = asked.shapes
    at_points = (shapes.flop, shapes.moved_bytes, shapes.launches, shapes.dims)
    for number in distinct(group_r):
        group = Group(number)
        for model, served in _models(group, np.flatnonzero(group_r == number), costs):
            first, index = rows_alike(costs, served, at_points, asked.part)
            yield GroupFeatures(
                served=served, rows=served[first], index=index, model=model,
                features=_features(model, group, served[first], asked),
            )  # fmt: skip


def _models(
    group: Group, rows: npt.NDArray[np.intp], costs: CostTable
) -> Iterator[tuple[str, npt.NDArray[np.intp]]]:
    """Models that serve the rows of a group: attention of one query row has its own kernels."""
    is_decode = np.zeros(len(rows), dtype=bool)
    if group == Group.ATTENTION:
        is_decode = has_one_query(costs, rows)
    for model, chosen in ((group.model, rows[~is_decode]), (_DECODE, rows[is_decode])):
        if len(chosen):
            yield model, chosen


def row_peaks(
    lowered: LoweredPass, devices: DeviceTable, calibration: Calibration, *,
    on_vector_units: bool = False,
) -> FloatArray:  # fmt: skip
    """Peak that applies to each row, (D, R); NaN if a device has none.

    Vector units run at the clock that the power limit leaves them. Ops that only stream through
    memory need no peak: an unknown one is no limit for them.
    """
    precision = find_precision(lowered.configuration.precision)
    formats, of_row = np.unique(lowered.costs.matmul_dtype, return_inverse=True)
    peak_dr = dtype_peaks(devices, map(DType, formats.tolist()))[:, of_row]
    own = lowered.costs.matmul_dtype == int(precision.matmul_dtype)
    trains = Phase.BACKWARD in lowered.costs.phase
    peak_dr[:, own] = matrix_peaks(devices, precision, is_training=trains)[:, None]
    group_r = groups_of_rows(lowered.costs, precision, on_vector_units=on_vector_units)
    streams = group_r == Group.STREAM
    peak_dr[:, streams] = np.where(np.isnan(peak_dr[:, streams]), np.inf, peak_dr[:, streams])
    vectors = among(group_r, (Group.PRODUCT_VECTOR, Group.CONV_VECTOR))
    peak_dr[:, vectors] *= sustained_clock_frac(devices, calibration)[:, None]
    return peak_dr


def row_bounds(shapes: OpShapes, devices: DeviceTable, peak_dr: FloatArray) -> Bounds:
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


def _features(model: str, group: Group, rows: npt.NDArray[np.intp], asked: Question) -> Array:
    kind, bounds = asked.lowered.costs.kind[rows], asked.bounds.rows(rows)
    num_sms = asked.devices.num_sms[:, None, None].astype(np.float32)
    dims = asked.shapes.dims[:, rows]
    if group.is_product or group.is_convolution:
        product = product_dims(kind, dims)
        if group == Group.PRODUCT_TENSOR:
            product = folded_product(product)
        tiled = _tiled_s(group, rows, product, asked)
        if group.is_product:
            return product_features(bounds, product, num_sms, tiled)
        conv = conv_shape(kind, dims, product, asked.shapes.moved_bytes[:, rows])
        settings = _conv_settings(group, asked)
        return conv_features(bounds, conv, product, num_sms, tiled, settings)
    if group in (Group.ATTENTION, Group.ATTENTION_BACKWARD):
        columns = tuple(dims[..., i] for i in range(7))
        tiled = _attention_tiled_s(model, rows, columns, asked)
        return attention_features(bounds, columns, num_sms, tiled)
    flags = stream_flags(kind)
    return stream_features(bounds, stream_dims(kind, dims), flags, num_sms, _settings(asked))


def _tiled_s(
    group: Group, rows: npt.NDArray[np.intp], product: tuple[Array, ...], asked: Question
) -> Array:
    """Time of the tile model, (D, P, rows)."""
    devices = asked.devices
    is_vector = group in (Group.PRODUCT_VECTOR, Group.CONV_VECTOR)
    frac = sustained_clock_frac(devices, asked.calibration) if is_vector else None
    engine = _engine(rows, asked, frac)
    if group == Group.PRODUCT_VECTOR:
        own_rows, own_columns = batched_tiles(devices.generations)
        engine = replace(engine, batched_tile=(_per_device(own_rows), _per_device(own_columns)))
    name = "vector" if is_vector else "tensor"
    constants = TileConstants.from_mapping(asked.calibration.constants["tiles"][name])
    return tiled_s(product, asked.shapes.moved_bytes[:, rows], engine, constants)


def _attention_tiled_s(
    model: str, rows: npt.NDArray[np.intp], dims: tuple[Array, ...], asked: Question
) -> Array:
    """Time of the tile model of attention, (D, P, rows)."""
    name = "decode" if model == _DECODE else "prefill"
    constants = AttentionConstants.from_mapping(
        asked.calibration.constants["attention_tiles"][name]
    )
    work = (asked.shapes.flop[:, rows], asked.shapes.moved_bytes[:, rows])
    return attention_tiled_s(dims, work, _engine(rows, asked), constants)


def _engine(
    rows: npt.NDArray[np.intp], asked: Question, clock_frac: FloatArray | None = None
) -> Engine:
    """The devices as what runs some rows: vector units, if a share of the clock is given."""
    devices, dtype_r = asked.devices, asked.lowered.costs.matmul_dtype[rows]
    clock_hz = devices.boost_clock_hz * (1.0 if clock_frac is None else clock_frac)
    return Engine(
        num_sms=_per_device(devices.num_sms),
        clock_hz=_per_device(clock_hz),
        peak_flop_per_s=asked.peak_dr[:, None, rows].astype(np.float32),
        memory_bytes_per_s=_per_device(devices.memory_bytes_per_s),
        element_bytes=np.array(ELEMENT_BYTES, dtype=np.float32)[dtype_r],
        has_matrix_units=clock_frac is None,
        unhalved_flop_per_s=tuple(map(_per_device, unhalved_peaks(devices))),
    )


def _per_device(values: npt.NDArray[Any]) -> Array:
    return values[:, None, None].astype(np.float32)


def _conv_settings(group: Group, asked: Question) -> Settings:
    """Settings of convolutions; where kernels are chosen op by op, compilers change few of them.

    The same kernels run on vector units whether a graph is compiled or not.
    """
    settings = _settings(asked)
    if asked.software["chooses_by_graph"] == "yes":
        return settings
    is_on_matrix_units = has_matrix_units(asked.devices) & (group == Group.CONV_TENSOR)
    return replace(settings, is_compiled=settings.is_compiled * _per_device(is_on_matrix_units))


def _settings(asked: Question) -> Settings:
    """Settings of the job; a compiler's learned effect is credited only where it was measured.

    Compiled inference was measured everywhere, compiled training under some frameworks
    (``data/frameworks.csv``). Elsewhere the compiler saves the bytes and launches that its fusion
    removes, and no more. How images are stored says nothing of a model that has none.
    """
    configuration, costs = asked.lowered.configuration, asked.lowered.costs
    is_measured = Phase.BACKWARD not in costs.phase or asked.software["trained_compiled"] == "yes"
    return Settings.of(
        compiler=configuration.compiler if is_measured else "eager",
        is_channels_last=configuration.channels_last and OpKind.CONV in costs.kind,
        chooses_by_graph=asked.software["chooses_by_graph"] == "yes",
    )
