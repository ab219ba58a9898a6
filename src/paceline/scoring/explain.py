"""`explain_row`: the command that gives a row's number, and what its source is taken to add."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace

from paceline.catalog.entities import Catalog, Device
from paceline.errors import InvalidInputError, PacelineError
from paceline.model.items import as_items
from paceline.parallelism.steps import Steps
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.scoring.answering import (
    added_s,
    asked_of,
    figure_of,
    stated_factors,
    step_s_of,
    under_limit,
)
from paceline.scoring.assumed import note_of
from paceline.scoring.jobs import Cell, with_items
from paceline.scoring.naming.source_levels import as_published
from paceline.scoring.rows import Row
from paceline.scoring.score import read_cell
from paceline.scoring.services.answering import is_service
from paceline.scoring.workloads import cached_workload, workload_key
from paceline.simulation.job import PASS, Job
from paceline.simulation.simulator import simulate
from paceline.values import dataclass

#: Factors that differ from one by less are none.
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFactor:
    """What a row's time is times its command's, for one reason.

    Attributes:
        value: What it is worked out from, as words; empty where it is stated as it is.
    """

    name: str
    factor: float
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExplanation:
    """Where a row's number comes from.

    Attributes:
        command: `paceline predict` as users ask it.
        figure: What of its answer counts: ``step_s`` or ``per_token_s``.
        command_s: That figure.
        factor: What the row's time is over it: all parts together.
        row_s: Time of a step of the row: the command's times the factor.
        parts: What the factor is made of; none that is one.
        note: What was assumed.
    """

    command: str
    figure: str
    command_s: float
    factor: float
    row_s: float
    parts: tuple[RowFactor, ...]
    note: str


def explain_row(
    rows: Sequence[Row],
    number: int,
    *,
    catalog: Catalog,
    python: str | None = None,
    calibration: Calibration | None = None,
) -> RowExplanation:
    """The command that gives the number of one row.

    Args:
        rows: Of a table.
        number: Which, counted from 0.
        catalog: Devices and links.
        python: Interpreter that has torch, for a model that must be traced.
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
    if is_service(cell):
        raise InvalidInputError(
            f"row {number} states how requests come, and `paceline predict` runs batches",
            hint="ask `paceline plan MODEL --task infer --rps RATE`; `score --out` answers the row",
        )
    key = workload_key(cell.reading)
    traced = cached_workload(key, python=python)
    plain = calibration or builtin_calibration()
    published = calibration or as_published(plain)
    ((cell, item),) = with_items([cell], traced)
    is_pass = item is traced and as_items(traced, typed=key.entry).passes != traced.passes
    named = replace(item, name=key.entry, stated_item=PASS if is_pass else item.stated_item)
    asked = asked_of(cell, named, catalog, published)
    if isinstance(asked, str):
        raise _unanswered(number, asked)
    cell, one = asked
    asked_steps = simulate([one.job], [one.machine], calibration=plain)
    asked_steps.check()
    steps = simulate([one.job], [one.machine], calibration=published)
    command_s = step_s_of(asked_steps, one.job)
    if not math.isfinite(command_s):
        raise _unanswered(number, "the link between its devices or nodes is unknown")
    options = [
        *(["--image-size", str(key.image_size)] if key.image_size is not None else []),
        *(["--optimizer", key.optimizer] if key.optimizer is not None else []),
    ]
    words = ["paceline", "predict", str(one.job), "--machine", str(one.machine), *options]
    parts = _parts(cell, one.job, asked_steps, steps, published)
    factor = math.prod(part.factor for part in parts)
    return RowExplanation(
        command=shlex.join(words),
        figure=figure_of(one.job),
        command_s=command_s,
        factor=factor,
        row_s=command_s * factor,
        parts=parts,
        note="; ".join(filter(None, (cell.reading.note, one.note, note_of(one.assumed)))),
    )


def _parts(
    cell: Cell, job: Job, plain: Steps, published: Steps, calibration: Calibration
) -> tuple[RowFactor, ...]:
    """Factors that are not one, each worked out by itself."""
    power_w, slowdown = under_limit(cell.row, published, calibration)
    command_s, level = step_s_of(plain, job), _level(job, cell.device, calibration)
    found = [
        RowFactor(
            name="level of published tables", factor=step_s_of(published, job) / command_s,
            value=f"kernels of {cell.device.name} take {level:.6g} times as long there",
        ),
        RowFactor(
            name="power limit", factor=slowdown, value=f"a mean power of {power_w:g} W at most"
        ),
        *(RowFactor(name=name, factor=factor) for name, factor in stated_factors(cell)),
    ]  # fmt: skip
    step_s = command_s * math.prod(part.factor for part in found)
    seconds = added_s(cell, job)
    found.append(
        RowFactor(
            name="seconds that the row adds", factor=1.0 + seconds / step_s,
            value=f"{seconds:.6g} s a step",
        )
    )  # fmt: skip
    return tuple(part for part in found if abs(part.factor - 1.0) > _NOTHING)


def _level(job: Job, device: Device, calibration: Calibration) -> float:
    """By how many times longer kernels take in published tables of a device."""
    levels = calibration.source_levels
    if levels is None:
        return 1.0
    asked = f"{job.host}/{job.workload.task}"
    return math.exp(levels.logs(DeviceTable.from_devices([device]), asked)[0])


def _unanswered(number: int, reason: str) -> PacelineError:
    return InvalidInputError(f"row {number} has no answer: {reason}", hint="mend the row")


def explanation_text(found: RowExplanation) -> str:
    """The command and the sum, a line each."""
    lines = [
        found.command,
        f"its {found.figure}: {found.command_s:.6g} s, times {found.factor:.6g} = "
        f"{found.row_s:.6g} s, the row's step",
        *(
            f"  {part.factor:.6g}  {part.name}" + (f": {part.value}" if part.value else "")
            for part in found.parts
        ),
        *filter(None, (found.note,)),
    ]
    return "\n".join(lines)
