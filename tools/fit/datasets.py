"""Which published tables are fitted, and how much each counts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fit.steps import Steps

STEP_TABLES: tuple[str, ...] = (
    "lambda_tensorflow_benchmark",
    "lambda_deeplearning_benchmark",
    "lambda_deeplearning_benchmark_v0",
    "mxnet_perf",
    "nvidia_deeplearningexamples",
    "timm",
    "convnet_benchmarks",
)
#: Tables whose input pipeline may hold a step back count half.
_REAL_INPUT = frozenset(
    {
        "lambda_deeplearning_benchmark",
        "lambda_deeplearning_benchmark_v0",
        "nvidia_deeplearningexamples",
    }
)
#: Rows of one model, table, task and device that a fit sees. The others are other batches and
#: releases of it: they cost time and teach little.
_ROWS_PER_MODEL = 2
#: Tables that measured so many models that the rule is needed.
_WIDE = frozenset({"timm"})


def fitted_rows(steps: Steps, seed: int = 0) -> np.ndarray:
    """Numbers of the steps that a fit sees.

    All that say what ran, but of wide tables a few of each model.
    """
    names = ("source", "task", "entry", "device")
    frame = pd.DataFrame({name: getattr(steps, name) for name in names})
    frame["draw"] = np.random.default_rng(seed).random(len(frame))
    rank = frame.groupby(list(names)).draw.rank().to_numpy()
    is_drawn = (rank <= _ROWS_PER_MODEL) | ~frame.source.isin(_WIDE).to_numpy()
    return np.flatnonzero(is_drawn & ~steps.is_open)


def step_weights(steps: Steps) -> np.ndarray:
    """Each table, device and task counts with the root of its number of rows."""
    frame = pd.DataFrame({"source": steps.source, "device": steps.device, "task": steps.task})
    size = frame.groupby(["source", "device", "task"]).source.transform("size").to_numpy(float)
    weight = size**-0.5 * np.where(frame.source.isin(_REAL_INPUT), 0.5, 1.0)
    return weight / weight.mean()
