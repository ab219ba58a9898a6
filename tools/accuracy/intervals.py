"""T11: intervals of devices that were not measured, as wide as what is known beforehand says.

Residuals of held-out devices calibrate the widths (split conformal), divided first by a law of
what is known before a step is measured (normalised conformal; Papadopoulos, Gammerman, Vovk,
"Normalized nonconformity measures for regression conformal prediction", 2008): the host's share of
it, on how many groups of devices its framework was measured, how far the device is from the nearest
one that its fit had seen, and how much power its listed clock asks beyond what it promises. The
width of a fold is taken from the other folds alone, as of a group that is not among them; the
dispatch behind the host's share is the shipped one in all folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from fit.steps import FRAMEWORKS, Steps
from scipy.optimize import minimize

from paceline.catalog.entities import Device
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.uncertainty.device_distance import (
    clock_power_excess,
    coordinates,
    distances,
)
from paceline.prediction.uncertainty.intervals import Z_80, framework_doubt

#: Half-width in log beyond which an interval is wider than times or divided by two.
_ABSTAIN = np.log(2.0)
_LEVEL = 0.8
#: Residuals drawn from each fold, so that no large table sets every width.
_DRAWN = 1000
#: What the squares of widths are sums of. Of a device that was measured, only the first three.
PARTS = ("own", "host", "framework", "distance", "clock")
_OF_STEPS = PARTS[:3]
#: Least half-width that a part adds where its covariate is as large as it is on the whole. However
#: few folds show it, what is farther away is known less.
_LEAST = {"own": 0.02, "host": 0.02, "framework": 0.02, "distance": 0.05, "clock": 0.02}
#: Where the search for these begins.
_START = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Half-widths in log: the root of summed squares, each of a part times its covariate.

    Attributes:
        parts: By name.
    """

    parts: Mapping[str, float]

    def of(self, seen: pd.DataFrame, taught: pd.DataFrame) -> np.ndarray:
        """Of some steps, predicted by a fit that was taught with others."""
        squares = covariates(seen, taught, list(self.parts)) ** 2
        widths: np.ndarray = np.sqrt(squares @ np.square(list(self.parts.values())))
        return widths


def half_width(residual: np.ndarray, level: float = _LEVEL) -> float:
    """Finite-sample conformal quantile of absolute residuals.

    Source: Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005.
    """
    rank = min(int(np.ceil((len(residual) + 1) * level)), len(residual))
    return float(np.sort(np.abs(residual))[rank - 1])


def with_covariates(
    lines: pd.DataFrame, steps: Steps, catalog_devices: Sequence[Device], calibration: Calibration
) -> pd.DataFrame:
    """Predicted lines with their residual and what is known of them beforehand.

    Args:
        lines: Steps predicted with their devices held out, as of `step_tests.predict_devices`.
        steps: The same steps, in the same order.
        catalog_devices: All devices.
        calibration: Seconds of dispatch per kernel.

    Raises:
        ValueError: The lines are of other steps.
    """
    is_same = len(lines) == len(steps.step_s) and (lines["index"].to_numpy() == steps.index).all()
    if not is_same:
        raise ValueError("the lines were predicted for other steps")
    host_s = _host_s(steps, calibration)
    seen = lines.assign(
        residual=lines.predicted_log - lines.measured_log,
        framework=[FRAMEWORKS[number] for number in steps.framework],
        host=np.sqrt(np.minimum(host_s / np.exp(lines.predicted_log), 1.0)),
    )
    seen = seen[seen.predicted_log.notna() & ~seen.is_open]
    near = _nearness(seen.groupby("device").fold.first(), catalog_devices)
    return seen.join(near, on="device")


def _host_s(steps: Steps, calibration: Calibration) -> np.ndarray:
    """Seconds in which the host dispatches each step."""
    table = calibration.constants["host"]["per_kernel_s"]
    per_kernel = np.array([
        [[table[name][compiler][way] for way in ("forward", "backward")]
         for compiler in ("eager", "compiled")] for name in FRAMEWORKS
    ])  # fmt: skip
    of_steps = per_kernel[steps.framework, steps.is_compiled.astype(int)]
    by_year = calibration.constants["host"]["log_per_year"]
    per_year = np.array([by_year[name] for name in FRAMEWORKS])[steps.framework]
    kernels = np.stack([steps.forward_kernels, steps.backward_kernels], axis=1)
    total: np.ndarray = (of_steps * kernels).sum(axis=1) * np.exp(per_year * steps.host_years)
    return total


def _nearness(fold_of: pd.Series, catalog_devices: Sequence[Device]) -> pd.DataFrame:
    """Distance of each device to those of other folds, and the excess of its clock."""
    by_name = {device.name: device for device in catalog_devices}
    table = {name: DeviceTable.from_devices([by_name[name]]) for name in fold_of.index}
    rows = {}
    for name, fold in fold_of.items():
        others = [by_name[other] for other in fold_of.index[fold_of != fold]]
        where = coordinates(DeviceTable.from_devices(others))
        rows[name] = {
            "distance": float(distances(table[name], where)[0]),
            "clock": float(clock_power_excess(table[name])[0]),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def covariates(seen: pd.DataFrame, taught: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """What multiplies each part, (num_steps, num_parts).

    Args:
        seen: Steps.
        taught: Those that fits were taught with: a framework counts the folds that hold it, each
            step's own left out.
        names: Of parts.
    """
    by_framework = taught.groupby("framework").fold.unique()
    known = {name: set(folds) for name, folds in by_framework.items()}
    pairs = zip(seen.framework, seen.fold, strict=True)
    num_groups = [len(known.get(name, set()) - {fold}) for name, fold in pairs]
    columns = {"own": np.ones(len(seen)), "framework": framework_doubt(num_groups)}
    return np.stack([columns[n] if n in columns else seen[n].to_numpy() for n in names], axis=1)


def level_of_new_groups(num_groups: int) -> float:
    """The share that widths must cover of as many groups of devices, to cover 80 % of a new one.

    Devices of a group are alike, so that groups and not steps are drawn at random: the one to come
    counts as one of ``num_groups + 1``, none of it covered.

    Source: Dunn, Wasserman, Ramdas, "Distribution-free prediction sets for two-layer hierarchical
    models", 2022, section 3 (pooling of distributions).

    >>> round(level_of_new_groups(9), 3), level_of_new_groups(3)
    (0.889, 1.0)
    """
    return min(_LEVEL * (num_groups + 1) / num_groups, 1.0)


def fit_widths(seen: pd.DataFrame, names: Sequence[str] = PARTS, level: float = _LEVEL) -> Widths:
    """The widths of least interval score that cover their share of these residuals.

    Folds count the same. The scale is a conformal quantile.

    Args:
        seen: Steps of held-out devices, as of `with_covariates`.
        names: Parts that the widths have.
        level: The share that they cover.

    Source of the score: Gneiting, Raftery, "Strictly proper scoring rules", 2007, section 6.2.
    """
    drawn = pd.concat([
        rows.sample(_DRAWN, replace=len(rows) < _DRAWN, random_state=0)
        for _, rows in seen.groupby("fold")
    ])  # fmt: skip
    size, squares = drawn.residual.abs().to_numpy(), covariates(drawn, seen, names) ** 2
    usual = squares.mean(axis=0)
    squares = squares / usual

    def score(parts: np.ndarray) -> tuple[float, np.ndarray]:
        width = np.sqrt(squares @ parts**2)
        slope = np.where(size > width, 2 - 2 / (1 - _LEVEL), 2.0) / len(size)
        return _interval_score(size, width), (slope / width) @ squares * parts

    found = minimize(
        score, np.full(len(names), _START), jac=True, method="L-BFGS-B",
        bounds=[(_LEAST[name], None) for name in names],
    )  # fmt: skip
    scale = half_width(size / np.sqrt(squares @ found.x**2), level)
    return Widths(parts=dict(zip(names, found.x * scale / np.sqrt(usual), strict=True)))


def _interval_score(size: np.ndarray, width: np.ndarray) -> float:
    return float(np.mean(2 * width + 2 / (1 - _LEVEL) * np.maximum(size - width, 0.0)))


def with_widths(seen: pd.DataFrame) -> pd.DataFrame:
    """Steps with the half-width of each in log, which the other folds give."""
    parts = []
    for fold, g in seen.groupby("fold"):
        others = seen[seen.fold != fold]
        widths = fit_widths(others, level=level_of_new_groups(others.fold.nunique()))
        parts.append(g.assign(width=widths.of(g, others)))
    return pd.concat(parts)


def coverage(wide: pd.DataFrame) -> pd.DataFrame:
    """Per fold and per table: mean half-width and the share it covers.

    Args:
        wide: Steps, as of `with_widths`.
    """
    named = [(f"fold {name}", g) for name, g in wide.groupby("fold")]
    named += [(f"table {name}", g) for name, g in wide.groupby("source")]
    return pd.DataFrame([_covered(name, g) for name, g in named])


def _covered(name: str, g: pd.DataFrame) -> dict[str, Any]:
    covered = float((g.residual.abs() <= g.width).mean())
    low, high = band(len(g))
    return {
        "devices or rows": name, "rows": len(g), "mean half-width ×/÷": np.exp(g.width.mean()),
        "covered": covered, "inside": low <= covered <= high,
        "abstains": f"{(g.width > _ABSTAIN).mean():.0%}",
    }  # fmt: skip


def band(count: int, level: float = _LEVEL) -> tuple[float, float]:
    """Shares that count as 80 %: 75-85 %; below 40 rows, the binomial 90 % band."""
    if count >= 40:
        return 0.75, 0.85
    draws = np.random.default_rng(0).binomial(count, level, 20_000) / count
    low, high = np.quantile(draws, [0.05, 0.95])
    return float(low), float(high)


def components(
    seen: pd.DataFrame, catalog_devices: Sequence[Device], calibration: Calibration
) -> Mapping[str, Any]:
    """Parts of the spread of log time, by how near a device is to one that was measured.

    A measured device keeps what is left when each device's median is taken off. A sibling adds the
    spread of devices within their fold. A device whose family was not measured has the spread of
    held-out devices.

    Args:
        seen: Steps predicted with their devices held out, as of `with_covariates`.
        catalog_devices: All devices.
        calibration: Groups of devices on which frameworks without steps were measured.
    """
    by_device = seen.groupby(["fold", "device"]).residual.median()
    device = _spread(by_device - by_device.groupby("fold").transform("median"))
    level = seen.groupby(["fold", "device"]).residual.transform("median")
    known = _sigmas(fit_widths(seen.assign(residual=seen.residual - level), _OF_STEPS))
    unknown = _sigmas(fit_widths(seen, level=level_of_new_groups(seen.fold.nunique())))
    sibling = known | {"own": float(np.hypot(known["own"], device))}
    unknown |= {name: max(unknown[name], sibling[name]) for name in _OF_STEPS}
    cases = (known, sibling, unknown, unknown)
    groups = calibration.constants["interval"]["framework_groups"]
    names = set(seen.device)
    where = coordinates(DeviceTable.from_devices([d for d in catalog_devices if d.name in names]))
    return {
        "log_sigma_by_knowledge": [round(case["own"], 3) for case in cases],
        "log_sigma_host": [round(case["host"], 3) for case in cases],
        "log_sigma_framework": [round(case["framework"], 3) for case in cases],
        "log_sigma_per_distance": round(unknown["distance"], 3),
        "log_sigma_per_clock_excess": round(unknown["clock"], 4),
        "framework_groups": groups | seen.groupby("framework").fold.nunique().to_dict(),
        "measured_coordinates": np.unique(where.round(2), axis=0).tolist(),
    }


def _sigmas(widths: Widths) -> dict[str, float]:
    return {name: float(part) / Z_80 for name, part in widths.parts.items()}


def _spread(values: pd.Series) -> float:
    """Standard deviation as the 80 % quantile of absolute values has it."""
    return float(values.abs().quantile(_LEVEL)) / Z_80
