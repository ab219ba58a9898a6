"""Errors, their means with bootstrap intervals, and whether they are ahead of an anchor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the scoreboard.

    Attributes:
        test: Which test.
        what: Which part of it.
        num_rows: Rows scored.
        coverage: Share of the rows asked for that were predicted.
        median: Median absolute error in percent.
        mean: Mean absolute error in percent.
        low: Lower end of the bootstrap 90 % interval of the scored statistic.
        high: Upper end.
        p90: 90th percentile of the error.
        roofline: The same statistic of the plain roofline; NaN where there is none.
        anchor: Published figure, or NaN.
        target: What the issue asks for, or NaN.
        scored: Which statistic is compared.
    """

    test: str
    what: str
    num_rows: int
    coverage: float
    median: float
    mean: float
    low: float
    high: float
    p90: float
    roofline: float
    anchor: float
    target: float
    scored: str

    @property
    def verdict(self) -> str:
        """*ahead* if the upper end is below the anchor, *level* if the figure is, else *behind*."""
        value = self.median if self.scored == "median" else self.mean
        if np.isnan(self.anchor):
            return ""
        if self.high < self.anchor:
            return "ahead"
        return "level" if self.low <= self.anchor or value <= self.anchor else "behind"

    @property
    def met(self) -> str:
        """Whether the target is met."""
        value = self.median if self.scored == "median" else self.mean
        return "" if np.isnan(self.target) else ("yes" if value <= self.target else "no")


def errors(predicted_log: np.ndarray, measured_log: np.ndarray) -> np.ndarray:
    """Absolute error in percent of the measured time."""
    return 100 * np.abs(np.expm1(predicted_log - measured_log))


def figure(
    test: str, what: str, error: np.ndarray, *, coverage: float = 1.0,
    roofline: np.ndarray | None = None, anchor: float = np.nan, target: float = np.nan,
    scored: str = "mean",
) -> Figure:  # fmt: skip
    """Summarise errors; the interval is a bootstrap over rows with a fixed seed."""
    statistic = np.median if scored == "median" else np.mean
    rng = np.random.default_rng(0)
    draws = [statistic(rng.choice(error, len(error))) for _ in range(400)]
    low, high = np.quantile(draws, [0.05, 0.95])
    return Figure(
        test=test, what=what, num_rows=len(error), coverage=coverage,
        median=float(np.median(error)), mean=float(np.mean(error)), low=float(low),
        high=float(high), p90=float(np.quantile(error, 0.9)),
        roofline=float("nan") if roofline is None else float(statistic(roofline)),
        anchor=anchor, target=target, scored=scored,
    )  # fmt: skip
