"""T11: the half-width that would have covered, taken from the other folds (split conformal)."""

from __future__ import annotations

import numpy as np
import pandas as pd

#: Half-width in log beyond which an interval is wider than times or divided by two.
_ABSTAIN = np.log(2.0)
#: 80 % of a normal distribution lie within so many standard deviations.
_Z_80 = 1.2815515655446004


def half_width(residual: np.ndarray, level: float = 0.8) -> float:
    """Finite-sample conformal quantile of absolute residuals.

    Source: Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005.
    """
    rank = min(int(np.ceil((len(residual) + 1) * level)), len(residual))
    return float(np.sort(np.abs(residual))[rank - 1])


def coverage(lines: pd.DataFrame) -> pd.DataFrame:
    """Per fold: half-width from the other folds' residuals, and the share it covers.

    Sources count equally inside a fold, so that one large table does not set every width.
    """
    seen = lines[lines.predicted_log.notna()]
    seen = seen.assign(residual=seen.predicted_log - seen.measured_log)
    rows = []
    for fold, g in seen.groupby("fold"):
        others = seen[seen.fold != fold]
        drawn = pd.concat(
            [
                part.sample(300, replace=True, random_state=0)
                for _, part in others.groupby(["fold", "source"])
                if len(part) >= 10
            ]
        )
        width = half_width(drawn.residual.to_numpy())
        covered = float((g.residual.abs() <= width).mean())
        band = _binomial_band(len(g))
        rows.append({
            "fold": fold, "rows": len(g), "half-width ×/÷": np.exp(width), "covered": covered,
            "inside": band[0] <= covered <= band[1], "abstains": width > _ABSTAIN,
        })  # fmt: skip
    return pd.DataFrame(rows)


def _binomial_band(count: int, level: float = 0.8) -> tuple[float, float]:
    """75-85 %, or where fewer than 40 rows are, the binomial 90 % band."""
    if count >= 40:
        return 0.75, 0.85
    draws = np.random.default_rng(0).binomial(count, level, 20_000) / count
    low, high = np.quantile(draws, [0.05, 0.95])
    return float(low), float(high)


def components(lines: pd.DataFrame) -> dict[str, list[float]]:
    """Spread of log time by how near a device is to one that was measured.

    What a device, a generation and a table each add, as spreads of medians of held-out residuals;
    the rest is a step's own. A measured device keeps the last two.

    Args:
        lines: Steps predicted with their devices held out.
    """
    seen = lines[lines.predicted_log.notna()]
    seen = seen.assign(residual=seen.predicted_log - seen.measured_log)
    cell = seen.groupby(["fold", "device", "source", "task"]).residual
    middle = cell.median()
    own = float((seen.residual - cell.transform("median")).abs().quantile(0.8)) / _Z_80
    by_device = middle.groupby(["fold", "device"]).median()
    by_fold = by_device.groupby("fold").median()
    table = _spread(middle - middle.groupby(["fold", "device"]).transform("median"))
    device = _spread(by_device - by_device.groupby("fold").transform("median"))
    generation = _spread(by_fold)
    known = np.hypot(own, table)
    sibling = np.hypot(known, device)
    unknown = np.hypot(sibling, generation)
    spreads = (known, sibling, (sibling + unknown) / 2, unknown)
    return {"log_sigma_by_knowledge": [round(float(s), 3) for s in spreads]}


def _spread(values: pd.Series) -> float:
    """Standard deviation as the 80 % quantile of absolute values has it."""
    return float(values.abs().quantile(0.8)) / _Z_80
