"""What is held out in each fold, with everything that would leak it."""

from __future__ import annotations

import csv
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd
from fit.datasets import step_weights
from fit.joint import Predictor, fit_jointly, predict_steps
from fit.operators import GAP_S, operators_of
from fit.steps import Steps, select

#: A fold is fitted on so many steps drawn from what is left: the scoreboard takes minutes, and its
#: figures are, if anything, worse than those of the shipped coefficients.
_MAX_STEPS = 2500
FOLDS = Path(__file__).parent / "device_folds.csv"


def device_folds() -> dict[str, frozenset[str]]:
    """Fold name to the devices held out together: siblings never train for one another."""
    folds: dict[str, set[str]] = {}
    with FOLDS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            folds.setdefault(row["fold"], set()).add(row["device"])
    return {name: frozenset(devices) for name, devices in folds.items()}


def fit_without(
    steps: Steps, frames: dict[str, pd.DataFrame], held_devices: Collection[str],
    held_steps: np.ndarray, *, epochs: int, seed: int = 0,
) -> Predictor:  # fmt: skip
    """A fit on what is left when held-out rows are gone, before anything is drawn or scaled.

    Args:
        steps: All steps.
        frames: All op rows.
        held_devices: Devices whose op rows are dropped.
        held_steps: True for the steps that are dropped.
        epochs: Length of the fit.
        seed: Of the fit.
    """
    left = np.flatnonzero(~held_steps)
    if len(left) > _MAX_STEPS:
        left = np.sort(np.random.default_rng(seed).choice(left, _MAX_STEPS, replace=False))
    kept = select(steps, left)
    operators = operators_of(frames, without=held_devices)
    weight = step_weights(kept)
    return fit_jointly(
        kept,
        operators,
        weight,
        epochs=epochs,
        gap_s=GAP_S,
        seed=seed,
        operator_rows=768,
        batch_steps=128,
    )


def predict_held_out(
    steps: Steps, frames: dict[str, pd.DataFrame], held_devices: Collection[str],
    held_steps: np.ndarray, *, epochs: int, seed: int = 0,
) -> np.ndarray:  # fmt: skip
    """Log of predicted time of the held-out steps; arguments as of `fit_without`."""
    predictor = fit_without(steps, frames, held_devices, held_steps, epochs=epochs, seed=seed)
    return predict_steps(predictor, steps, np.flatnonzero(held_steps))
