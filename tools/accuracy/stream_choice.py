"""What answers for the streams of T1 and T2: the law of rows, or a network, as inner folds choose.

Each device of the train split is held out in turn. Elementwise ops, softmax and layer norm count
the same, and what is scored is the time between two events, as it is on the unseen devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from fit.joint import fit_alone
from fit.op_features import network_log
from fit.operators import as_operators
from fit.options import FitOptions
from fit.row_kernels import fit_rows, row_log

#: Log seconds of the kernels of streams.
StreamLog = Callable[[pd.DataFrame], np.ndarray]

_NETWORK = FitOptions(members=3)
#: Noise on the features of the networks that are tried.
_NOISES = (0.3, 0.6, 1.0)
_LAW = "law of rows"
#: Inner fits are small and short: only the order of the candidates matters.
_INNER = {"max_rows": 20_000, "updates": 1000, "batch_rows": 1024, "members": 1}


def choose_streams(rows: pd.DataFrame, log: Callable[[str], None] = print) -> StreamLog:
    """Fit what the folds choose to all rows.

    Args:
        rows: Streams with the time of the kernel alone, ``empty_s`` and ``event_s``.
        log: Called with the errors in percent.
    """
    error = pd.DataFrame([_errors(rows, device) for device in np.unique(rows.source_name)]).mean()
    best = error.idxmin()
    log(f"streams: {error.round(1).to_dict()}: {best}")
    return _fitted(rows, best)


def _fitted(rows: pd.DataFrame, candidate: str, *, is_short: bool = False) -> StreamLog:
    if candidate == _LAW:
        return partial(row_log, constants=fit_rows(rows))
    options = replace(_NETWORK, noise=_noises()[candidate])
    if is_short:
        operators = as_operators(rows, "stream", max_rows=_INNER["max_rows"])
        options = replace(options, members=_INNER["members"])
        model = fit_alone(
            operators, options=options, updates=_INNER["updates"], batch_rows=_INNER["batch_rows"]
        )
    else:
        model = fit_alone(as_operators(rows, "stream"), options=options)
    return partial(network_log, model, group="stream")


def _noises() -> dict[str, float]:
    return {f"network, noise {noise}": noise for noise in _NOISES}


def _errors(rows: pd.DataFrame, device: str) -> dict[str, float]:
    """Percent error of each candidate on one device, the mean of the three classes."""
    kept, held = rows[rows.source_name != device], rows[rows.source_name == device]
    empty_s = held.op.map(
        kept.groupby(["source_name", "op"]).empty_s.first().groupby("op").median()
    )
    kind = (held.is_norm + 2 * held.is_softmax).to_numpy()
    errors = {}
    for candidate in (_LAW, *_noises()):
        own_s = np.exp(_fitted(kept, candidate, is_short=True)(held)) + empty_s
        error = pd.Series(100 * np.abs(own_s / held.event_s.to_numpy() - 1))
        errors[candidate] = float(error.groupby(kind).mean().mean())
    return errors
