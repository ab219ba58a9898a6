"""The law of a board's power: its shares fitted, its limits, and rows predicted with it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import minimize

import paceline
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.kernels.power import PowerLaw, Use, power_frac, slowdown_under_limit

_LAW = Path(paceline.__file__).parent / "prediction" / "data" / "power.json"
_SHARES = ("busy_frac", "compute_frac", "memory_frac")
#: What boards draw with a job that leaves them idle: least of the Zeus rows.
_IDLE_FRAC = 0.12
_STARTS = (0.1, 0.3, 0.6)


def use_in(rows: pd.DataFrame) -> Use:
    """Columns of rows as the law takes them."""
    columns = {name: rows[name].to_numpy(float) for name in Use.__dataclass_fields__}
    return Use(**columns)


def fitted_law(rows: pd.DataFrame) -> PowerLaw:
    """Shares that make the mean absolute log error least, every model on a GPU counting the same.

    Rows under a limit that binds say nothing of what would be drawn without it.
    """
    rows = rows[~is_bound(rows)]
    use = use_in(rows)
    measured = (rows.measured_w / capacity_w(rows)).to_numpy()
    weight = 1.0 / rows.groupby(["table", "gpu", "model"]).measured_w.transform("size").to_numpy()

    def loss(shares: npt.NDArray[np.float64]) -> float:
        error = np.log(power_frac(use, _law(shares)) / measured)
        return float(np.sum(weight * np.abs(error)))

    found = [
        minimize(loss, [start] * len(_SHARES), method="Nelder-Mead",
                 options={"maxiter": 4000, "xatol": 1e-4, "fatol": 1e-6})
        for start in _STARTS
    ]  # fmt: skip
    return _law(min(found, key=lambda one: one.fun).x)


def _law(shares: npt.NDArray[np.float64]) -> PowerLaw:
    values = dict(zip(_SHARES, np.abs(shares).tolist(), strict=True))
    return PowerLaw(idle_frac=_IDLE_FRAC, **values)


def highest_limit_w(rows: pd.DataFrame) -> pd.Series:
    """Of the limits that a table sets on a GPU, the one that is none."""
    return rows.groupby(["table", "gpu"]).limit_w.transform("max")


def is_bound(rows: pd.DataFrame) -> pd.Series:
    """Whether a board was set to draw less than it may."""
    return rows.limit_w.notna() & (rows.limit_w < highest_limit_w(rows))


def capacity_w(rows: pd.DataFrame) -> pd.Series:
    """What a board may draw: its highest limit (the boards of one name differ), else its listed."""
    return highest_limit_w(rows).fillna(rows.tdp_w)


def predicted(rows: pd.DataFrame, law: PowerLaw) -> pd.DataFrame:
    """Rows with their power and the seconds of a step under the limit in force."""
    free_w = capacity_w(rows) * power_frac(use_in(rows), law)
    limit_w = rows.limit_w.fillna(np.inf)
    slower = [
        1.0 + busy * (slowdown_under_limit(free, limit, builtin_calibration()) - 1.0)
        for free, limit, busy in zip(free_w, limit_w, rows.busy_frac, strict=True)
    ]
    power_w = np.minimum(free_w, limit_w)
    return rows.assign(power_w=power_w, limited_s=rows.step_s * slower)


def held_out(rows: pd.DataFrame) -> pd.DataFrame:
    """Every row predicted with the law of the other GPUs."""
    parts = [
        predicted(rows[rows.gpu == gpu], fitted_law(rows[rows.gpu != gpu]))
        for gpu in rows.gpu.unique()
    ]
    return pd.concat(parts)


def write_law(law: PowerLaw) -> None:
    """The law into the package."""
    values = {name: round(getattr(law, name), 4) for name in PowerLaw.__dataclass_fields__}
    source = "tools/accuracy_power --fit: Zeus power traces and ML.ENERGY leaderboard v3"
    facts = {"power": values, "source": source, "fitted_on": str(datetime.now(tz=UTC).date())}
    _LAW.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
