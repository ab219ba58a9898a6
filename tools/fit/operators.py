"""Measured op rows of every model, ready for the joint fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fit import truth
from fit.attention import builtin_constants, with_tiles
from fit.op_features import bounds_of, features_of
from fit.residency import with_residency
from fit.served_streams import served_streams
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.kernels.product_tiles import TileConstants

#: A kernel's own launch gap, which op rows contain and steps add per kernel.
GAP_S = 1.5e-6
#: Rows within so many times the instrument's smallest reading say nothing about the kernel.
_ABOVE_FLOOR = 1.7
#: Streams are short: the empty interval is taken off, and must not be most of what is left.
_STREAM_ABOVE_FLOOR = 3.0
#: Kernels with less to do than this take about as long; the smallest readings are this quantile.
_TINY_S, _SMALLEST = 2e-6, 0.01
_CALL = ["source_name", "op"]
_MAX_ROWS = 60_000
#: Formats of aiconfigurator's products that are fitted: peak and bytes of an element.
_NARROW = {"bfloat16": ("peak_bf16", 2.0), "fp8": ("peak_fp8", 1.0)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operators:
    """Measured op rows of one model: features, log10 slowdown, weight, device names."""

    features: np.ndarray
    log10_slowdown: np.ndarray
    weight: np.ndarray
    device: np.ndarray


def operator_frames(folder: Path, facts: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """All op rows by model, with the time of the kernel alone."""
    products = graphs(narrow_products(folder, facts))
    attention = with_tiles(graphs(truth.aic_attention(folder, facts)), builtin_constants())
    constants = builtin_calibration().constants
    copies = float(constants["benchmarks"]["num_copies"])
    rate = float(constants["tiles"]["tensor"]["resident_bytes_per_cycle"])
    return {
        "product_vector": events(truth.neusight_products(folder, facts)),
        "product_tensor": with_residency(products, copies, rate),
        "conv_vector": events(truth.neusight_convolutions(folder, facts)),
        "attention": attention[attention.op == "prefill"],
        "attention_decode": attention[attention.op == "decode"],
        "stream": _streams(folder, facts),
    }


def _streams(folder: Path, facts: pd.DataFrame) -> pd.DataFrame:
    """Streaming ops: large ones timed by events, small ones as kernels of served models."""
    timed = events(truth.neusight_streams(folder, facts), above_floor=_STREAM_ABOVE_FLOOR)
    return pd.concat([timed, served_streams(folder, facts)], ignore_index=True)


def narrow_products(folder: Path, facts: pd.DataFrame) -> pd.DataFrame:
    """BF16 and FP8 matrix products, as they were timed."""
    return truth.aic_products(folder, facts, _NARROW)


def operators_of(
    frames: Mapping[str, pd.DataFrame], *, without: Collection[str] = ()
) -> dict[str, Operators]:
    """Op rows by model, each device of a table with the same total weight.

    Args:
        frames: What `operator_frames` read.
        without: Devices held out: their rows are dropped before anything is drawn or counted.
    """
    kept = {name: rows[~rows.device.isin(list(without))] for name, rows in frames.items()}
    return {name: as_operators(rows, name) for name, rows in kept.items() if len(rows)}


def as_operators(
    rows: pd.DataFrame, group: str, max_rows: int = _MAX_ROWS, tiles: TileConstants | None = None
) -> Operators:
    """Features and slowdowns of op rows, at most ``max_rows`` drawn with a fixed seed."""
    if len(rows) > max_rows:
        rows = rows.iloc[np.random.default_rng(0).choice(len(rows), max_rows, replace=False)]
    features = features_of(rows, group, tiles)
    slowdown = np.log10(rows.time_s.to_numpy() / bounds_of(rows).roofline_s)
    weight = 1.0 / rows.groupby("source_name").time_s.transform("size").to_numpy()
    keep = np.flatnonzero(np.isfinite(slowdown) & np.isfinite(features).all(1))
    return Operators(
        features=features[keep],
        log10_slowdown=slowdown[keep],
        weight=weight[keep] / weight[keep].mean(),
        device=rows.device.to_numpy(str)[keep],
    )


def events(rows: pd.DataFrame, *, above_floor: float = _ABOVE_FLOOR) -> pd.DataFrame:
    """Rows timed between two events: the empty interval of each call is taken off.

    Args:
        rows: Op rows as timed. Those of an op that no device ran on almost nothing are dropped:
            what its call alone takes is not known.
        above_floor: Rows shorter than so many empty intervals are dropped.
    """
    empty_s = _empty_intervals_s(rows)
    alone_s = rows.time_s - np.minimum(empty_s, 0.9 * rows.time_s)
    kept = rows.assign(time_s=alone_s, empty_s=empty_s, event_s=rows.time_s)
    return kept[rows.time_s > above_floor * empty_s].reset_index(drop=True)


def usual_intervals_s(rows: pd.DataFrame) -> pd.Series:
    """Empty interval between two events around a call of each op, the median of devices.

    A call of a layer norm keeps its host nearly twice as long as one of an addition.
    """
    return _smallest_s(rows).groupby("op").median()


def _empty_intervals_s(rows: pd.DataFrame) -> np.ndarray:
    """Of each row, as its device shows it or, where all its calls of the op are long, others."""
    own_s = _smallest_s(rows).reindex(pd.MultiIndex.from_frame(rows[_CALL])).to_numpy()
    usual_s = rows.op.map(usual_intervals_s(rows)).to_numpy(float)
    known_s: np.ndarray = np.where(np.isnan(own_s), usual_s, own_s)
    return known_s


def _smallest_s(rows: pd.DataFrame) -> pd.Series:
    """Time of calls that do almost nothing, less that of the kernel, by device and op."""
    tiny = rows[bounds_of(rows).roofline_s < _TINY_S]
    return tiny.groupby(_CALL).time_s.quantile(_SMALLEST) - _TINY_S


def graphs(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows replayed in a graph: the launch gap of the kernel is taken off."""
    return rows.assign(time_s=np.maximum(rows.time_s - GAP_S, 0.3 * rows.time_s))
