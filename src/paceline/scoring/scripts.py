"""What the scripts behind published rows do that the rows do not say: updates and casts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from paceline.predict.ripeness import release_year
from paceline.scoring.rows import Row
from paceline.scoring.tables import fitting_lines
from paceline.trace.costs import NarrowFormat, OptimizerKernel

#: Year of a release that a row does not name.
_NEWEST = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """How a script updates its parameters.

    Attributes:
        optimizer: The optimizer of its recipe; None where that is open.
        kernel: How it is launched.
    """

    optimizer: str | None
    kernel: OptimizerKernel


def update_of(entry: str, row: Row) -> Update:
    """The first line of ``data/script_updates.csv`` that holds.

    >>> from paceline.scoring.rows import parse_row
    >>> row = {"model": "m", "gpu": "g", "framework": "PyTorch 1.13", "precision": "fp32"}
    >>> update_of("resnet50", parse_row(row)).kernel
    'plain'
    """
    year = release_year(row.framework)
    known = next(
        line
        for line in fitting_lines("script_updates.csv", _asked(entry, row))
        if (not line["released_before"] or (year or _NEWEST) < float(line["released_before"]))
    )
    return Update(
        optimizer=known["optimizer"] or None, kernel=cast("OptimizerKernel", known["kernel"])
    )


def inference_format_of(entry: str, row: Row) -> NarrowFormat:
    """Whether inference in mixed precision casts FP32 weights on every pass, or is narrow.

    The first line of ``data/script_casts.csv`` that holds; narrow where none does.
    """
    known = next(fitting_lines("script_casts.csv", _asked(entry, row)), None)
    return cast("NarrowFormat", known["inference_format"]) if known else "pure"


def exchanges_gradients(entry: str, row: Row) -> bool:
    """Whether the replicas of a script exchange gradients; ``data/script_replicas.csv`` says not.

    >>> from paceline.scoring.rows import parse_row
    >>> row = parse_row({"model": "m", "gpu": "g", "framework": "PyTorch"})
    >>> exchanges_gradients("resnet50", row)
    True
    """
    asked = _asked(entry, row) | {"origin": row.origin}
    return next(fitting_lines("script_replicas.csv", asked), None) is None


def _asked(entry: str, row: Row) -> dict[str, str]:
    return {"entry": entry, "framework": row.framework, "precision": row.precision}
