"""What is held out in each fold, with everything that would leak it."""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from fit.choosing import choose_options
from fit.datasets import fitted_rows, step_weights
from fit.joint import fit_jointly, predict_steps
from fit.operators import operators_of
from fit.options import FitOptions
from fit.step_model import Predictor
from fit.steps import Steps, select

FOLDS = Path(__file__).parent / "device_folds.csv"


def device_folds() -> dict[str, frozenset[str]]:
    """Fold name to the devices held out together: siblings never train for one another."""
    folds: dict[str, set[str]] = {}
    with FOLDS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            folds.setdefault(row["fold"], set()).add(row["device"])
    return {name: frozenset(devices) for name, devices in folds.items()}


def fit_without(
    steps: Steps, frames: Mapping[str, pd.DataFrame], held_devices: Collection[str],
    held_steps: np.ndarray, traits: Mapping[str, np.ndarray], options: FitOptions,
    log: Callable[[str], None] = lambda _: None,
) -> Predictor:  # fmt: skip
    """A fit on what is left when held-out rows are gone, before anything is drawn or scaled.

    Args:
        steps: All steps.
        frames: All op rows.
        held_devices: Devices whose op rows are dropped.
        held_steps: True for the steps that are dropped.
        traits: Log traits of each device.
        options: How the fit is run, but for what inner folds of these rows choose.
        log: Called with what they chose.
    """
    left_over = select(steps, np.flatnonzero(~held_steps))
    kept = select(left_over, fitted_rows(left_over))
    left = {name: rows[~rows.device.isin(list(held_devices))] for name, rows in frames.items()}
    options = choose_options(kept, left, traits, list(device_folds().values()), options, log)
    operators = operators_of(frames, without=held_devices)
    return fit_jointly(kept, operators, step_weights(kept), traits, options)


def predict_held_out(
    steps: Steps, frames: Mapping[str, pd.DataFrame], held_devices: Collection[str],
    held_steps: np.ndarray, traits: Mapping[str, np.ndarray], options: FitOptions,
    log: Callable[[str], None] = lambda _: None,
) -> np.ndarray:  # fmt: skip
    """Log of predicted time of the held-out steps; arguments as of `fit_without`."""
    predictor = fit_without(steps, frames, held_devices, held_steps, traits, options, log)
    return predict_steps(predictor, steps, np.flatnonzero(held_steps), traits)
