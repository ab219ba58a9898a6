"""Which regularisation a fit gets: chosen by inner folds of the rows that it may see.

Whole groups of devices are held out from each other, as the devices are that the fit will be asked
about. Inner fits are small and short: only the order of the candidates matters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fit.datasets import step_weights
from fit.joint import fit_jointly, predict_steps
from fit.operators import operators_of
from fit.options import FitOptions
from fit.steps import Steps, select

#: What may be changed: matrix units without a power limit. Noises of 0.05, 0.1 and 0.2 were
#: candidates too; over 23 choices their errors lay within 0.6 % on the mean, and which was least
#: was chance.
_CANDIDATES: tuple[dict[str, Any], ...] = ({}, {"is_power_limited": False})
#: Another candidate than the first must be better by so much.
_LEAST_GAIN_FRAC = 0.01
_NUM_GROUPS = 2
_MAX_STEPS = 2400
_EPOCHS = 6


def choose_options(
    steps: Steps, frames: Mapping[str, pd.DataFrame], traits: Mapping[str, np.ndarray],
    folds: Sequence[Collection[str]], options: FitOptions, log: Callable[[str], None],
) -> FitOptions:  # fmt: skip
    """The candidate with clearly the least weighted absolute log error on devices held out.

    Args:
        steps: Steps that may be seen.
        frames: Op rows that may be seen.
        traits: Log traits of each device.
        folds: Groups of devices that leave together; those without steps are passed over.
        options: What the candidates do not change.
        log: Called with one line.
    """
    seen = set(steps.device)
    present = [sorted(seen & set(fold)) for fold in folds if seen & set(fold)]
    groups = [sorted(set().union(*present[i::_NUM_GROUPS])) for i in range(_NUM_GROUPS)]
    candidates = [dataclasses.replace(options, **change) for change in _CANDIDATES]
    if sum(bool(group) for group in groups) < 2:
        return candidates[0]
    error = np.mean(
        [_errors(steps, frames, traits, group, candidates) for group in groups if group], axis=0
    )
    is_better = error.min() < (1.0 - _LEAST_GAIN_FRAC) * error[0]
    best = int(np.argmin(error)) if is_better else 0
    log(f"inner folds: {np.round(error, 3)}: {_CANDIDATES[best] or 'as stated'}")
    return candidates[best]


def _errors(
    steps: Steps, frames: Mapping[str, pd.DataFrame], traits: Mapping[str, np.ndarray],
    held_devices: Sequence[str], candidates: Sequence[FitOptions],
) -> list[float]:  # fmt: skip
    """Of each candidate, on devices held out."""
    held = np.isin(steps.device, held_devices)
    kept = select(steps, _drawn(np.flatnonzero(~held)))
    asked = _drawn(np.flatnonzero(held))
    measured, weight = np.log(steps.step_s[asked]), step_weights(select(steps, asked))
    operators = operators_of(frames, without=held_devices)
    errors = []
    for options in candidates:
        short = dataclasses.replace(options, epochs=_EPOCHS)
        predictor = fit_jointly(kept, operators, step_weights(kept), traits, short)
        answer = predict_steps(predictor, steps, asked, traits)
        errors.append(float(np.average(np.abs(answer - measured), weights=weight)))
    return errors


def _drawn(rows: np.ndarray) -> np.ndarray:
    if len(rows) <= _MAX_STEPS:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, _MAX_STEPS, replace=False))
