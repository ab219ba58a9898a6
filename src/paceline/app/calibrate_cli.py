"""``paceline calibrate``: let the user's own measurements correct the predictions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from paceline.app import options as common
from paceline.app.api import calibrate as calibrate_rows
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.output import Answer, say

if TYPE_CHECKING:
    from paceline.app.scoring.calibrating import CalibrationSummary
    from paceline.report.tables import Table

_OUT = Path("calibration.json")


def register(app: Commands) -> None:
    """Add the verb."""
    app.add_verb("calibrate", calibrate)


def calibrate(
    rows: Annotated[
        Path,
        Argument(metavar="ROWS.csv", help="Your measurements, as `paceline score` reads them."),
    ],
    out: Annotated[
        Path, Option(metavar="FILE", help="Where the calibration goes, for --calibration.")
    ] = _OUT,
    calibration: common.Calibration = None,
    python: common.Python = None,
    facts: common.Facts = None,
    form: common.Format = "text",
    is_json: common.Json = False,
) -> None:
    """Learn from measurements how far each device is off, and keep that in a file.

    One measurement moves a prediction a little, many models move it all the way. Rows need
    step_time_ms, or throughput and unit, beside the input columns of `paceline score`.
    """
    from paceline.report.tables import markdown_table, text_table

    wanted = common.form_of(form, is_json=is_json)
    summary = calibrate_rows(
        rows,
        out,
        calibration=calibration,
        python=python,
        facts=facts or (),
        on_progress=lambda line: print(line, file=sys.stderr),
    )
    table = _table(summary)
    used = f"{summary.num_used} of {summary.num_rows} rows used, written to {out}"
    answer = Answer(
        kind="calibration",
        value=summary,
        text=lambda width: "\n\n".join(
            (text_table(table, width=width), f"{used}\nnext: paceline plan … --calibration {out}")
        ),
        markdown=lambda: f"{markdown_table(table)}\n\n{used}",
    )
    say(answer, wanted, None)


def _table(summary: CalibrationSummary) -> Table:
    from paceline.report.tables import Column, Table
    from paceline.units import format_percent

    return Table(
        columns=(
            Column(title="device"),
            Column(title="rows", is_number=True),
            Column(title="models", is_number=True),
            Column(title="times now ×", is_number=True),
            Column(title="median error before", is_number=True),
            Column(title="after", is_number=True),
        ),
        rows=tuple(
            (
                one.device,
                str(one.num_rows),
                str(one.num_workloads),
                f"{one.time_factor:.3f}",
                format_percent(one.error_before_frac),
                format_percent(one.error_after_frac),
            )
            for one in summary.devices
        ),
    )
