"""What all sources share: rows and figures."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: More than this below the truth is what a plan must not do.
UNDER_FRAC = 0.03
TARGET_MEDIAN_FRAC = 0.05
TARGET_UNDER_FRAC = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published run.

    Attributes:
        case: What was run.
        measured_bytes: Published; None where it ran out of memory.
        predicted_bytes: Predicted, in the figure that was published.
        capacity_bytes: Of the device, where running out is what was published.
    """

    case: str
    measured_bytes: float | None
    predicted_bytes: float
    capacity_bytes: float | None = None

    @property
    def error_frac(self) -> float | None:
        """Relative error; None where there is no figure."""
        if self.measured_bytes is None:
            return None
        return self.predicted_bytes / self.measured_bytes - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One source.

    Attributes:
        title: Heading.
        note: How it was measured, how it is predicted, and from which documents.
        unit: ``GB`` or ``GiB``, as published.
        rows: Runs.
        is_asked: Whether the targets are meant for it.
        skipped: Rows that are not attempted: (which, how many, reason).
    """

    title: str
    note: str
    unit: str
    rows: tuple[Row, ...]
    is_asked: bool = True
    skipped: tuple[tuple[str, int, str], ...] = ()

    def errors_frac(self) -> list[float]:
        """Relative errors of the rows with a figure."""
        return [row.error_frac for row in self.rows if row.error_frac is not None]

    def median_frac(self) -> float:
        """Median of their sizes."""
        return statistics.median(map(abs, self.errors_frac()))

    def num_under(self) -> int:
        """Rows more than `UNDER_FRAC` under the truth."""
        return sum(error < -UNDER_FRAC for error in self.errors_frac())


_UNIT_BYTES = {"GB": 1e9, "GiB": 2.0**30}


def as_markdown(source: Published) -> Iterator[str]:
    """The section of a source."""
    yield f"\n## {source.title}\n\n{source.note}\n"
    yield f"| run | measured {source.unit} | predicted {source.unit} | error |"
    yield "|---|--:|--:|--:|"
    size = _UNIT_BYTES[source.unit]
    for row in source.rows:
        predicted = f"{row.predicted_bytes / size:.2f}"
        yield f"| {row.case} | {_measured(row, size)} | {predicted} | {_verdict(row)} |"


def _measured(row: Row, size: float) -> str:
    return "out of memory" if row.measured_bytes is None else f"{row.measured_bytes / size:.2f}"


def _verdict(row: Row) -> str:
    if row.error_frac is not None:
        return f"{row.error_frac:+.1%}"
    is_refused = row.capacity_bytes is not None and row.predicted_bytes > row.capacity_bytes
    return "does not fit either" if is_refused else "**fits**"


@cache
def model_numbers() -> Mapping[str, Mapping[str, object]]:
    """Hyperparameters of published models, from ``models.toml``."""
    with Path(__file__).with_name("models.toml").open("rb") as file:
        return tomllib.load(file)
