"""`explain_row`: the command that gives a row's number, and what its source is taken to add."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.catalog.entities import Catalog
from paceline.errors import InvalidInputError, PacelineError
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.scoring.answering import asked_of, step_s_of
from paceline.scoring.jobs import Cell
from paceline.scoring.rows import Row
from paceline.scoring.score import predict_rows, read_cell
from paceline.scoring.workloads import cached_workload, workload_key
from paceline.simulation.simulator import simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExplanation:
    """Where a row's number comes from.

    Attributes:
        command: `paceline predict` as users ask it.
        figure: What of its answer counts: ``step_s`` or ``per_token_s``.
        command_s: That figure.
        factor: What the row's time is over it.
        row_s: Time of a step of the row.
        parts: What the factor is made of, by name: the passes of an item, the level of published
            tables, what the source of the row adds.
        note: What was assumed.
    """

    command: str
    figure: str
    command_s: float
    factor: float
    row_s: float
    parts: tuple[tuple[str, float], ...]
    note: str


def explain_row(
    rows: Sequence[Row],
    number: int,
    *,
    catalog: Catalog,
    python: str | None = None,
    cache_folder: Path | None = None,
    calibration: Calibration | None = None,
) -> RowExplanation:
    """The command that gives the number of one row.

    Args:
        rows: Of a table.
        number: Which, counted from 0.
        catalog: Devices and links.
        python: Interpreter that has torch, for a model that must be traced.
        cache_folder: Where traced models are kept.
        calibration: Of the user's own rows, as of `score_rows`.

    Raises:
        InvalidInputError: No such row, or one without an answer or a command.
    """
    if not 0 <= number < len(rows):
        raise InvalidInputError(
            f"the table has no row {number}", hint=f"its rows are 0 to {len(rows) - 1}"
        )
    cell = read_cell(number, rows[number], catalog)
    if not isinstance(cell, Cell):
        raise _unanswered(number, cell.reason)
    (answer,) = predict_rows(
        [rows[number]], catalog=catalog, python=python, cache_folder=cache_folder,
        calibration=calibration,
    )  # fmt: skip
    if answer.step_mid_s is None:
        raise _unanswered(number, answer.reason)
    key = workload_key(cell.reading)
    traced = cached_workload(key, cache_folder=cache_folder, python=python)
    plain = calibration or builtin_calibration()
    asked = asked_of(cell, replace(traced, name=key.entry), catalog, plain)
    if isinstance(asked, str):
        raise _unanswered(number, asked)
    cell, one = asked
    command_s = step_s_of(simulate([one.job], [one.machine], calibration=plain), one.job)
    options = [
        *(["--image-size", str(key.image_size)] if key.image_size is not None else []),
        *(["--optimizer", key.optimizer] if key.optimizer is not None else []),
    ]
    words = ["paceline", "predict", str(one.job), "--machine", str(one.machine), *options]
    return RowExplanation(
        command=shlex.join(words),
        figure="per_token_s" if one.job.is_generation else "step_s",
        command_s=command_s,
        factor=answer.step_mid_s / command_s,
        row_s=answer.step_mid_s,
        parts=_parts(cell, one.job.batch, command_s, answer.step_mid_s),
        note=answer.note,
    )


def _parts(
    cell: Cell, batch: float, command_s: float, row_s: float
) -> tuple[tuple[str, float], ...]:
    """Factors that are not 1, whose product is the row's time over the command's."""
    row, reading = cell.row, cell.reading
    added_s = row.added_step_s + row.added_item_s * batch
    known = {
        "passes of an item": reading.num_passes,
        "framework beside its kernels": math.exp(reading.log_level),
        "time_factor of the row": row.time_factor,
        "seconds that the row adds": row_s / (row_s - added_s),
    }
    known["level of published tables, limits of power"] = (
        row_s / command_s / math.prod(known.values())
    )
    return tuple((name, one) for name, one in known.items() if abs(one - 1.0) > 1e-9)


def _unanswered(number: int, reason: str) -> PacelineError:
    return InvalidInputError(f"row {number} has no answer: {reason}", hint="mend the row")


def explanation_text(found: RowExplanation) -> str:
    """The command and the sum, a line each."""
    lines = [
        found.command,
        f"its {found.figure}: {found.command_s:.6g} s, times {found.factor:.6g} = "
        f"{found.row_s:.6g} s, the row's step",
        *(f"  {factor:.6g}  {name}" for name, factor in found.parts),
        *filter(None, (found.note,)),
    ]
    return "\n".join(lines)
