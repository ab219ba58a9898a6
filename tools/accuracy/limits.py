"""What targets leave out of account: boards measured twice, and folds whose errors lean one way.

No predictor that is told the board and the shape alone comes closer than one measurement of them
comes to another; and no interval that does not know which way a new group of devices leans covers
80 % of each group, however exact its width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import norm

from accuracy.figures import Figure, errors, figure
from accuracy.intervals import band
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.prediction.uncertainty.intervals import Z_80

_SHAPE = ["source_name", "m", "n", "k"]
#: Factors on all widths among which the best is looked for.
_FACTORS = np.geomspace(0.2, 5.0, 323)
#: Groups of devices that are drawn.
_NUM_GROUPS = 100_000


def measured_twice(products: pd.DataFrame, folds: Mapping[str, Sequence[str]]) -> list[Figure]:
    """Products of boards that two engines timed: one table as the prediction of the other.

    Args:
        products: Rows of both, as of `fit.truth.aic_products`.
        folds: Systems by fold; those with one table are left out.
    """
    times = products.pivot_table(index=_SHAPE, columns="framework", values="time_s").dropna()
    logs, system = np.log(times), times.index.get_level_values("source_name")
    error = errors(logs["sglang"].to_numpy(), logs["vllm"].to_numpy())
    every = {name: error[system.isin(systems)] for name, systems in folds.items()}
    lines = {f"{name}: the board's other table": found for name, found in every.items()}
    return [figure("T3", what, found) for what, found in lines.items() if found.size]


@dataclass(frozen=True, slots=True, kw_only=True)
class InsideAtBest:
    """How many folds lie inside their band.

    Attributes:
        num_folds: All folds.
        num_inside: With the widths as they are.
        most_inside: With one factor on all widths, chosen by looking at all folds.
        factor: That factor.
        share_between: Share of the variance of errors over widths that lies between folds.
        expected_frac: Folds inside, were errors normal with that share and widths exact.
    """

    num_folds: int
    num_inside: int
    most_inside: int
    factor: float
    share_between: float
    expected_frac: float


def inside_at_best(wide: pd.DataFrame) -> InsideAtBest:
    """What an exact width could reach on these steps, as of `accuracy.intervals.with_widths`."""
    over_width = (wide.residual / wide.width).groupby(wide.fold)
    sizes = [np.sort(np.abs(values.to_numpy())) for _, values in over_width]
    inside = num_inside(sizes, _FACTORS)
    best = int(np.argmax(inside))
    between = float(over_width.median().var())
    share = between / (between + float(over_width.var().mean()))
    return InsideAtBest(
        num_folds=over_width.ngroups, num_inside=int(num_inside(sizes, np.ones(1))[0]),
        most_inside=int(inside[best]), factor=float(_FACTORS[best]),
        share_between=share, expected_frac=expected_inside(share),
    )  # fmt: skip


def num_inside(sizes: Sequence[FloatArray], factors: FloatArray) -> IntArray:
    """Groups of which widths times each factor cover as much as they should.

    Args:
        sizes: Of each group, absolute errors over widths in order.
    """
    bands = np.array([band(len(one)) for one in sizes])
    covered = np.array([np.searchsorted(one, factors, side="right") / len(one) for one in sizes])
    is_inside = (covered >= bands[:, :1]) & (covered <= bands[:, 1:])
    return is_inside.sum(axis=0)


def expected_inside(share_between: float) -> float:
    """Share of large groups of which an exact 80 % interval covers 75 to 85 %.

    Errors are normal: a part that a group shares, and one of each step.

    Args:
        share_between: Share of the variance that groups share, from 0 to below 1.

    >>> expected_inside(0.0)
    1.0
    """
    rng = np.random.default_rng(0)
    lean = np.sqrt(share_between) * rng.standard_normal(_NUM_GROUPS)
    own = np.sqrt(1.0 - share_between)
    covered = norm.cdf((Z_80 - lean) / own) - norm.cdf((-Z_80 - lean) / own)
    low, high = band(_NUM_GROUPS)
    return float(np.mean((covered >= low) & (covered <= high)))
