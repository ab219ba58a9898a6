"""T4: what a few measured shapes of a new device change, shrunk towards nothing.

The residual of the prior model is a Gaussian process over the logs of m, n and k and of what tiling
costs: a level, a slope along each, and a rest that is alike for near shapes and may break between
them, as libraries change kernels from shape to shape. Residuals far from the median count as if
they were nearer, since a few shapes are off by half and say nothing of others. How much each may
move is chosen by the marginal likelihood of the measured shapes themselves (empirical Bayes;
Rasmussen, Williams, *Gaussian Processes for Machine Learning*, 5.4), so that shapes which scatter
move nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

#: Logs to the base 2 over so much: a step of one is a sixteenfold size.
_OCTAVES = 4.0
#: Log10 of the tile model over the bound, over so much.
_TILING = 0.3
#: Farthest that a residual may lie from the median.
_REACH = 0.25
#: Standard deviations before anything is measured: level, slopes, rest, noise; and the
#: distance over which the rest holds.
_START = np.log([0.1, 0.05, 0.1, 0.12, 1.0])
#: How far in log these may move from there, as a standard deviation.
_PRIOR = 1.0


def places(rows: pd.DataFrame, log10_tiled_over_bound: np.ndarray) -> np.ndarray:
    """Where shapes lie, (num_rows, 4)."""
    sizes: np.ndarray = np.log2(rows[["m", "n", "k"]].to_numpy(float)) / _OCTAVES
    return np.column_stack([sizes - 8.0 / _OCTAVES, log10_tiled_over_bound / _TILING])


def correction(known: np.ndarray, residual: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Expected residual at other shapes.

    Args:
        known: Places of the measured shapes, (num_known, 4).
        residual: Log of measured over predicted time there.
        asked: Places asked for, (num_asked, 4).
    """
    middle = np.median(residual)
    residual = np.clip(residual, middle - _REACH, middle + _REACH)

    def loss(logs: np.ndarray) -> float:
        factor, weights = _solve(known, residual, logs)
        half_log_determinant = np.log(np.diag(factor[0])).sum()
        prior = ((logs - _START) ** 2).sum() / (2 * _PRIOR**2)
        return float(0.5 * residual @ weights + half_log_determinant + prior)

    best = minimize(loss, _START, method="L-BFGS-B", options={"maxiter": 40}).x
    weights = _solve(known, residual, best)[1]
    expected: np.ndarray = _kernel(asked, known, best) @ weights
    return expected


def _solve(known: np.ndarray, residual: np.ndarray, logs: np.ndarray) -> tuple[Any, np.ndarray]:
    noise = np.exp(2 * logs[3]) * np.eye(len(known))
    factor = cho_factor(_kernel(known, known, logs) + noise, lower=True)
    return factor, cho_solve(factor, residual)


def _kernel(a: np.ndarray, b: np.ndarray, logs: np.ndarray) -> np.ndarray:
    level, slope, rest = np.exp(2 * logs[:3])
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    near = np.exp(-np.sqrt(np.maximum(squares, 0)) / np.exp(logs[4]))
    kernel: np.ndarray = level + slope * (a @ b.T) + rest * near
    return kernel
