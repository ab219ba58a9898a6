"""Small networks from features to log10 of (time over bound), fitted deterministically."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPRegressor

from paceline.predict.calibration import EfficiencyModel
from paceline.predict.features import (
    STREAM_FLAGS,
    Bounds,
    Settings,
    attention_features,
    conv_features,
    product_features,
    stream_features,
)
from paceline.predict.groups import conv_shape, product_dims
from paceline.trace.graph import OpKind

_CACHE_CREDIT_LOG10 = -0.5
_LARGEST_SLOWDOWN_LOG10 = 2.5


def bounds_of(rows: pd.DataFrame) -> Bounds:
    """Physical bounds of rows with flop, moved_bytes, peak and device facts."""
    return Bounds(
        compute_s=(rows.flop / rows.peak).to_numpy(np.float32),
        memory_s=(rows.moved_bytes / rows.memory_bytes_per_s).to_numpy(np.float32),
        bytes_over_l2=(rows.moved_bytes / rows.l2_bytes).to_numpy(np.float32),
    )


def features_of(rows: pd.DataFrame, group: str) -> np.ndarray:
    """Features of rows, by the very functions that prediction uses."""

    def columns(*names: str) -> tuple[np.ndarray, ...]:
        return tuple(rows[name].to_numpy(np.float32) for name in names)

    bounds, (num_sms,) = bounds_of(rows), columns("num_sms")
    if group.startswith("product"):
        return product_features(bounds, columns("batch", "m", "n", "k"), num_sms)
    if group == "attention":
        names = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_size", "is_causal")
        return attention_features(bounds, columns(*names), num_sms)
    settings = Settings.of(compiler="eager", is_channels_last=False, framework="torch")
    if group.startswith("conv"):
        return _conv_features(rows, bounds, num_sms, settings)
    zero = np.zeros(len(rows), np.float32)
    flags = (*columns("is_norm", "is_softmax"), *(zero for _ in STREAM_FLAGS[2:]))
    dims = columns("rows", "columns", "operands")
    return stream_features(bounds, dims, flags, num_sms, settings)


def _conv_features(
    rows: pd.DataFrame, bounds: Bounds, num_sms: np.ndarray, settings: Settings
) -> np.ndarray:
    names = ("n", "c", "h", "w", "k", "r", "s", "out_h", "out_w", "groups")
    dims = np.stack([rows[name].to_numpy(np.float32) for name in names], axis=-1)[None]
    kind = np.full(len(rows), OpKind.CONV, np.int16)
    product = product_dims(kind, dims)
    moved = rows.moved_bytes.to_numpy(np.float32)[None]
    conv = conv_shape(kind, dims, product, moved)
    return conv_features(bounds, conv, product, num_sms, settings)[0]


def fit_network(
    features: np.ndarray, log10_slowdown: np.ndarray, *, hidden: tuple[int, ...] = (24, 24),
    max_rows: int = 60_000, max_iter: int = 40, seed: int = 0,
) -> EfficiencyModel:  # fmt: skip
    """Fit one network; the same rows and seed give the same coefficients to the bit."""
    rng = np.random.default_rng(seed)
    if len(features) > max_rows:
        kept = rng.choice(len(features), max_rows, replace=False)
        features, log10_slowdown = features[kept], log10_slowdown[kept]
    x = features.astype(np.float64)
    mean, scale = x.mean(0), x.std(0) + 1e-3
    regressor = MLPRegressor(
        hidden_layer_sizes=hidden,
        alpha=1e-3,
        batch_size=512,
        learning_rate_init=3e-3,
        max_iter=max_iter,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        regressor.fit((x - mean) / scale, log10_slowdown)
    return _export(regressor, mean, scale, x, log10_slowdown)


def _export(
    regressor: MLPRegressor, mean: np.ndarray, scale: np.ndarray, x: np.ndarray, y: np.ndarray
) -> EfficiencyModel:
    weights = [w.copy() for w in regressor.coefs_]
    biases = [b.copy() for b in regressor.intercepts_]
    weights[0] = weights[0] / scale[:, None]
    biases[0] = biases[0] - mean @ weights[0]
    return EfficiencyModel(
        low=np.quantile(x, 0.001, axis=0).astype(np.float32),
        high=np.quantile(x, 0.999, axis=0).astype(np.float32),
        weights=tuple(w.astype(np.float32) for w in weights),
        biases=tuple(b.astype(np.float32) for b in biases),
        floor=float(max(np.quantile(y, 0.005), _CACHE_CREDIT_LOG10)),
        ceiling=float(min(np.quantile(y, 0.995), _LARGEST_SLOWDOWN_LOG10)),
    )
