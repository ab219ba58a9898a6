"""Seconds of layers of experts on each device, by the kernel that engines run there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from paceline.dtypes import ELEMENT_BYTES, DType, find_precision
from paceline.model.graph.costs import Configuration
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable, dtype_peaks, operand_bytes
from paceline.prediction.features import Array
from paceline.prediction.kernels.experts.expert_tiles import expert_constants, expert_product_s
from paceline.prediction.kernels.experts.marlin import (
    block_height,
    blocks_of_expert,
    marlin_constants,
    marlin_product_s,
)
from paceline.prediction.kernels.product_tiles import Engine

_MARLIN = "marlin"
#: Chosen by widths.
_ANY = ""


def experts_s(
    product: tuple[Array, ...], moved_bytes: Array, engine: Engine, devices: DeviceTable,
    configuration: Configuration, calibration: Calibration, *, sorts: Array | float = 1.0,
) -> Array:  # fmt: skip
    """Seconds of one of the two products of a layer on each device, (D, P, products).

    Args:
        product: Experts that tokens reach, rows of each on average, outputs, inputs, and rows of
            all experts on average.
        moved_bytes: As of `expert_product_s`.
        engine: The devices.
        devices: Likewise.
        configuration: Its precision, and whose kernels run.
        calibration: Has the tables of kernels and their constants.
        sorts: As of `expert_product_s`.
    """
    precision = find_precision(configuration.precision)
    widths = operand_bytes(devices, precision)
    kernels = expert_kernels(devices, configuration, calibration.constants["expert_kernels"])
    seconds: Array = np.full((), np.nan, dtype=np.float32)
    for kernel, width in sorted(set(zip(kernels, widths.tolist(), strict=True))):
        if kernel == _MARLIN:
            told = _marlin_s(product, moved_bytes, engine, precision.name, calibration, sorts)
        else:
            rows = calibration.constants["expert_tiles"]
            tiles = expert_constants(ELEMENT_BYTES[precision.weight_dtype], width, rows, kernel)
            is_narrower = kernel != _ANY and tiles.operand_bytes < width
            own = _in_8_bits(engine, devices) if is_narrower else engine
            told = expert_product_s(product[:4], moved_bytes, own, tiles, sorts=sorts)
        is_here = np.array([k == kernel for k in kernels]) & (widths == width)
        seconds = np.where(is_here[:, None, None], told, seconds)
    return seconds


def expert_kernels(
    devices: DeviceTable, configuration: Configuration, rows: Sequence[Mapping[str, str]]
) -> tuple[str, ...]:
    """The kernel of each device for weights that are widened; empty where widths say it.

    Args:
        devices: The devices.
        configuration: Its precision, and whose kernels run.
        rows: As ``data/expert_kernels.csv`` has them.
    """
    precision = find_precision(configuration.precision)
    is_widened = operand_bytes(devices, precision) > ELEMENT_BYTES[precision.weight_dtype]
    rows = [row for row in rows if row["weights"] == precision.name]
    if configuration.engine_kernels == "portable":
        rows = []
    facts = zip(is_widened.tolist(), devices.kinds, devices.generations, strict=True)
    return tuple(
        _kernel(rows, maker, generation.code) if widened else _ANY
        for widened, (maker, _), generation in facts
    )


def _kernel(rows: Sequence[Mapping[str, str]], maker: str, code: str) -> str:
    for row in rows:
        if row["vendor"] == maker and code in (row["codes"].split() or [code]):
            return row["kernel"]
    return _ANY


def _in_8_bits(engine: Engine, devices: DeviceTable) -> Engine:
    """The devices where a kernel narrows what meets the weights, and multiplies both in 8 bits."""
    peaks = dtype_peaks(devices, [DType.FP8])[:, :, None].astype(np.float32)
    width = np.array(ELEMENT_BYTES[DType.FP8], dtype=np.float32)
    return replace(engine, peak_flop_per_s=peaks, element_bytes=width)


def _marlin_s(
    product: tuple[Array, ...], moved_bytes: Array, engine: Engine, weights: str,
    calibration: Calibration, sorts: Array | float,
) -> Array:  # fmt: skip
    reached, rows, outputs, inputs, all_rows = product
    height = block_height(all_rows)
    blocks = reached * blocks_of_expert(rows, height), height
    constants = marlin_constants(weights, calibration.constants["expert_marlin"])
    return marlin_product_s(
        (reached, rows, outputs, inputs), blocks, moved_bytes, engine, constants,
        sorted_rows=reached * rows, sorts=sorts,
    )  # fmt: skip
