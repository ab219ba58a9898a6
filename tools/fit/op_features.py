"""Bounds and features of measured op rows, by the very functions that prediction uses."""

from __future__ import annotations

import numpy as np
import pandas as pd

from paceline.model.graph.graph import OpKind
from paceline.prediction.calibration.fitted import EfficiencyModel, builtin_calibration
from paceline.prediction.features import (
    STREAM_FLAGS,
    Bounds,
    Settings,
    attention_features,
    conv_features,
    product_features,
    stream_features,
)
from paceline.prediction.kernels.groups import conv_shape, product_dims
from paceline.prediction.kernels.product_tiles import Engine, TileConstants, tiled_s


def bounds_of(rows: pd.DataFrame) -> Bounds:
    """Physical bounds of rows with flop, moved_bytes, peak and device facts.

    Rows of a benchmark that repeats its calls say themselves how long their bytes take.
    """
    cold_s = rows.moved_bytes / rows.memory_bytes_per_s
    return Bounds(
        compute_s=(rows.flop / rows.peak).to_numpy(np.float32),
        memory_s=rows.get("memory_s", cold_s).to_numpy(np.float32),
        bytes_over_l2=(rows.moved_bytes / rows.l2_bytes).to_numpy(np.float32),
    )


def features_of(rows: pd.DataFrame, group: str, tiles: TileConstants | None = None) -> np.ndarray:
    """Features of rows.

    Args:
        rows: Op rows with device facts; attention with the time of its tile model.
        group: Efficiency model.
        tiles: Constants of the tile model; the built-in ones if None. A fold passes its own.
    """

    def columns(*names: str) -> tuple[np.ndarray, ...]:
        return tuple(rows[name].to_numpy(np.float32) for name in names)

    bounds, (num_sms,) = bounds_of(rows), columns("num_sms")
    if group.startswith("product"):
        product = columns("batch", "m", "n", "k")
        return product_features(bounds, product, num_sms, _tiled(rows, product, group, tiles))
    if group in ("attention", "attention_decode"):
        names = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_size", "is_causal")
        return attention_features(bounds, columns(*names), num_sms, *columns("tiled_s"))
    settings = Settings.of(compiler="eager", is_channels_last=False, chooses_by_graph=False)
    if group.startswith("conv"):
        return _conv_features(rows, bounds, num_sms, settings)
    zero = np.zeros(len(rows), np.float32)
    flags = (*columns("is_norm", "is_softmax"), *(zero for _ in STREAM_FLAGS[2:]))
    dims = columns("rows", "columns", "operands")
    return stream_features(bounds, dims, flags, num_sms, settings)


def network_log(
    model: EfficiencyModel, rows: pd.DataFrame, group: str, tiles: TileConstants | None = None
) -> np.ndarray:
    """Log of a network's time of op rows."""
    slowdown = model.log10_slowdown(features_of(rows, group, tiles)).astype(np.float64)
    return np.log(bounds_of(rows).roofline_s.astype(np.float64)) + np.log(10) * slowdown


def _conv_features(
    rows: pd.DataFrame, bounds: Bounds, num_sms: np.ndarray, settings: Settings
) -> np.ndarray:
    names = ("n", "c", "h", "w", "k", "r", "s", "out_h", "out_w", "groups")
    dims = np.stack([rows[name].to_numpy(np.float32) for name in names], axis=-1)[None]
    kind = np.full(len(rows), OpKind.CONV, np.int16)
    product = product_dims(kind, dims)
    moved = rows.moved_bytes.to_numpy(np.float32)[None]
    conv = conv_shape(kind, dims, product, moved)
    tiled = _tiled(rows.assign(element_bytes=4.0), product, "conv_vector", None)
    return conv_features(bounds, conv, product, num_sms, tiled, settings)[0]


def _tiled(
    rows: pd.DataFrame, product: tuple[np.ndarray, ...], group: str, tiles: TileConstants | None
) -> np.ndarray:
    """Time of the tile model."""
    name = "vector" if group.endswith("vector") else "tensor"
    own = builtin_calibration().constants["tiles"][name]
    constants = tiles or TileConstants.from_mapping(own)
    engine = Engine(
        num_sms=rows.num_sms.to_numpy(np.float32),
        clock_hz=(rows.clock_hz * rows.clock_frac).to_numpy(np.float32),
        peak_flop_per_s=rows.peak.to_numpy(np.float32),
        memory_bytes_per_s=rows.memory_bytes_per_s.to_numpy(np.float32),
        element_bytes=rows.element_bytes.to_numpy(np.float32),
        has_matrix_units=name == "tensor",
        hit_frac=rows.get("hit_frac", pd.Series(0.0, rows.index)).to_numpy(np.float32),
    )
    moved = rows.moved_bytes.to_numpy(np.float32)
    return tiled_s(product, moved, engine, constants)
