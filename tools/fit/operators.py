"""Measured op rows of every model, ready for the joint fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fit import truth
from fit.joint import Operators
from fit.networks import bounds_of, features_of

#: A kernel's own launch gap, which op rows contain and steps add per kernel.
GAP_S = 1.5e-6
#: Rows within so many times the instrument's smallest reading say nothing about the kernel.
_ABOVE_FLOOR = 1.7


def load_operators(folder: Path, facts: pd.DataFrame) -> dict[str, Operators]:
    """Op rows by model, each device with the same total weight."""
    narrow = {"bfloat16": ("peak_bf16", 2.0), "fp8": ("peak_fp8", 1.0)}
    return {
        "product_vector": _slowed(_events(truth.neusight_products(folder, facts)), "product"),
        "product_tensor": _slowed(_graphs(truth.aic_products(folder, facts, narrow)), "product"),
        "conv_vector": _slowed(_events(truth.neusight_convolutions(folder, facts)), "conv"),
        "attention": _slowed(_graphs(truth.aic_attention(folder, facts)), "attention"),
        "stream": _slowed(_events(truth.neusight_streams(folder, facts)), "stream"),
    }


def _events(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows timed between two events: the empty interval of each device is taken off."""
    smallest = rows.groupby("source_name").time_s.transform(lambda t: t.quantile(0.001))
    empty_s = np.maximum(smallest - 2e-6, 0)
    rows = rows.assign(time_s=rows.time_s - np.minimum(empty_s, 0.9 * rows.time_s))
    return rows[rows.time_s + empty_s > _ABOVE_FLOOR * empty_s]


def _graphs(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows replayed in a graph: the launch gap of the kernel is taken off."""
    return rows.assign(time_s=np.maximum(rows.time_s - GAP_S, 0.3 * rows.time_s))


def _slowed(rows: pd.DataFrame, group: str, max_rows: int = 60_000) -> Operators:
    features = features_of(rows, group)
    slowdown = np.log10(rows.time_s.to_numpy() / bounds_of(rows).roofline_s)
    weight = 1.0 / rows.groupby("device").time_s.transform("size").to_numpy()
    keep = np.flatnonzero(np.isfinite(slowdown) & np.isfinite(features).all(1))
    if len(keep) > max_rows:
        keep = np.random.default_rng(0).choice(keep, max_rows, replace=False)
    return Operators(
        features=features[keep],
        log10_slowdown=slowdown[keep],
        weight=weight[keep] / weight[keep].mean(),
    )
