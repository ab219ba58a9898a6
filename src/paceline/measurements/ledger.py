"""The ledger: what was predicted beside what was measured, and, where known, what was billed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from paceline.measurements.records import Record
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One measured cell with its prediction.

    Attributes:
        predicted_s: Median of the predicted step time; None where nothing could be predicted.
        predicted_low_s: Lower end of the 80 % interval.
        predicted_high_s: Upper end.
        predicted_bytes: Predicted peak memory of the process.
        calibration: Name of what the predictor was calibrated on.
        billed_usd: What the provider charged for it; None if it is not known.
    """

    record: Record
    predicted_s: float | None = None
    predicted_low_s: float | None = None
    predicted_high_s: float | None = None
    predicted_bytes: float | None = None
    calibration: str = ""
    billed_usd: float | None = None

    @property
    def error_frac(self) -> float | None:
        """Prediction over measurement, less one; None unless there are both."""
        if self.predicted_s is None or self.record.median_s is None:
            return None
        return self.predicted_s / self.record.median_s - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSummary:
    """How good the predictions of a ledger were.

    Attributes:
        num_rows: Rows with both a prediction and a measurement.
        median_error_frac: Median of the absolute error.
        worst_error_frac: Largest absolute error.
        coverage_frac: Share of measurements within the predicted interval; a prediction without
            one covers none.
    """

    num_rows: int
    median_error_frac: float
    worst_error_frac: float
    coverage_frac: float


def summarize_ledger(rows: Iterable[LedgerRow]) -> LedgerSummary | None:
    """Summary of the rows that have both sides; None if there are none."""
    both = [row for row in rows if row.error_frac is not None]
    if not both:
        return None
    errors = np.array([row.error_frac for row in both], dtype=np.float64)
    return LedgerSummary(
        num_rows=len(both),
        median_error_frac=float(np.median(np.abs(errors))),
        worst_error_frac=float(np.max(np.abs(errors))),
        coverage_frac=_coverage(both),
    )


def _coverage(rows: Sequence[LedgerRow]) -> float:
    bounds = [(row.predicted_low_s, row.record.median_s, row.predicted_high_s) for row in rows]
    low_s, measured_s, high_s = np.array(bounds, dtype=np.float64).T
    return float(np.mean((low_s <= measured_s) & (measured_s <= high_s)))
