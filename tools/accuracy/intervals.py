"""T11: intervals of devices that were not measured, wider the less they resemble measured ones.

Residuals of held-out devices calibrate the widths (split conformal), divided first by how far
each device is from the nearest one that its fit had seen (normalised conformal; Papadopoulos,
Gammerman, Vovk, "Normalized nonconformity measures for regression conformal prediction", 2008).
The width of a fold is taken from the other folds alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from paceline.catalog.entities import Device
from paceline.predict.devices import DeviceTable
from paceline.predict.nearness import coordinates, distances

#: Half-width in log beyond which an interval is wider than times or divided by two.
_ABSTAIN = np.log(2.0)
#: 80 % of a normal distribution lie within so many standard deviations.
_Z_80 = 1.2815515655446004
_LEVEL = 0.8
#: Candidates for how much a unit of distance adds, as a share of the width at none.
_PER_DISTANCE = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
#: Residuals drawn from each table, evenly from its folds, so that no large table sets every width.
_DRAWN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Half-widths in log: ``base · √(1 + (per_distance · distance)²)``."""

    base: float
    per_distance: float

    def of(self, distance: np.ndarray) -> np.ndarray:
        """At some distances."""
        widths: np.ndarray = self.base * np.hypot(1.0, self.per_distance * distance)
        return widths


def half_width(residual: np.ndarray, level: float = _LEVEL) -> float:
    """Finite-sample conformal quantile of absolute residuals.

    Source: Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005.
    """
    rank = min(int(np.ceil((len(residual) + 1) * level)), len(residual))
    return float(np.sort(np.abs(residual))[rank - 1])


def with_distance(lines: pd.DataFrame, catalog_devices: Sequence[Device]) -> pd.DataFrame:
    """Predicted lines with their residual and the distance to what their fit had seen.

    Args:
        lines: Steps predicted with their devices held out.
        catalog_devices: All devices.
    """
    seen = lines[lines.predicted_log.notna()]
    by_name = {d.name: d for d in catalog_devices}
    fold_of = seen.groupby("device").fold.first()
    far = {}
    for name, fold in fold_of.items():
        known = [by_name[other] for other in fold_of.index[fold_of != fold]]
        where = coordinates(DeviceTable.from_devices(known))
        far[name] = float(distances(DeviceTable.from_devices([by_name[name]]), where)[0])
    return seen.assign(
        residual=seen.predicted_log - seen.measured_log, distance=seen.device.map(far)
    )


def fit_widths(seen: pd.DataFrame) -> Widths:
    """The widths of least interval score that cover their share of these residuals.

    Source of the score: Gneiting, Raftery, "Strictly proper scoring rules", 2007, section 6.2.
    """
    num_folds = seen.groupby("source").fold.nunique()
    drawn = pd.concat(
        [
            part.sample(_DRAWN // num_folds[table], replace=True, random_state=0)
            for (_, table), part in seen.groupby(["fold", "source"])
        ]
    )
    size, distance = drawn.residual.abs().to_numpy(), drawn.distance.to_numpy()
    candidates = [
        Widths(base=half_width(size / np.hypot(1.0, k * distance)), per_distance=k)
        for k in _PER_DISTANCE
    ]
    return min(candidates, key=lambda widths: _interval_score(size, widths.of(distance)))


def _interval_score(size: np.ndarray, width: np.ndarray) -> float:
    return float(np.mean(2 * width + 2 / (1 - _LEVEL) * np.maximum(size - width, 0.0)))


def coverage(seen: pd.DataFrame) -> pd.DataFrame:
    """Per fold and per table: mean half-width, from the other folds, and the share it covers."""
    parts = [
        g.assign(width=fit_widths(seen[seen.fold != fold]).of(g.distance.to_numpy()))
        for fold, g in seen.groupby("fold")
    ]
    every = pd.concat(parts)
    named = [(f"fold {name}", g) for name, g in every.groupby("fold")]
    named += [(f"table {name}", g) for name, g in every.groupby("source")]
    return pd.DataFrame([_covered(name, g) for name, g in named])


def _covered(name: str, g: pd.DataFrame) -> dict[str, Any]:
    covered = float((g.residual.abs() <= g.width).mean())
    low, high = _binomial_band(len(g))
    return {
        "devices or rows": name, "rows": len(g), "mean half-width ×/÷": np.exp(g.width.mean()),
        "covered": covered, "inside": low <= covered <= high,
        "abstains": f"{(g.width > _ABSTAIN).mean():.0%}",
    }  # fmt: skip


def _binomial_band(count: int, level: float = _LEVEL) -> tuple[float, float]:
    """75-85 %, or where fewer than 40 rows are, the binomial 90 % band."""
    if count >= 40:
        return 0.75, 0.85
    draws = np.random.default_rng(0).binomial(count, level, 20_000) / count
    low, high = np.quantile(draws, [0.05, 0.95])
    return float(low), float(high)


def components(seen: pd.DataFrame, catalog_devices: Sequence[Device]) -> Mapping[str, Any]:
    """Spread of log time by how near a device is to one that was measured.

    What a device and a table each add, as spreads of medians of held-out residuals; the rest is a
    step's own. A measured device keeps the last two. A device whose family was not measured has
    the spread of held-out devices, with what distance adds.

    Args:
        seen: Steps predicted with their devices held out, as of `with_distance`.
        catalog_devices: All devices.
    """
    cell = seen.groupby(["fold", "device", "source", "task"]).residual
    middle = cell.median()
    own = float((seen.residual - cell.transform("median")).abs().quantile(_LEVEL)) / _Z_80
    by_device = middle.groupby(["fold", "device"]).median()
    table = _spread(middle - middle.groupby(["fold", "device"]).transform("median"))
    device = _spread(by_device - by_device.groupby("fold").transform("median"))
    known = float(np.hypot(own, table))
    sibling = float(np.hypot(known, device))
    widths = fit_widths(seen)
    unknown = max(widths.base / _Z_80, sibling)
    names = set(seen.device)
    where = coordinates(DeviceTable.from_devices([d for d in catalog_devices if d.name in names]))
    return {
        "log_sigma_by_knowledge": [round(s, 3) for s in (known, sibling, unknown, unknown)],
        "log_sigma_per_distance": round(widths.base * widths.per_distance / _Z_80, 3),
        "measured_coordinates": np.unique(where.round(2), axis=0).tolist(),
    }


def _spread(values: pd.Series) -> float:
    """Standard deviation as the 80 % quantile of absolute values has it."""
    return float(values.abs().quantile(_LEVEL)) / _Z_80
