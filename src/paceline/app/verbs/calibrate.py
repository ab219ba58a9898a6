"""``paceline calibrate``: let the user's own measurements correct the predictions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from paceline.app import options as common
from paceline.app.api import calibration as api
from paceline.app.command_line import Argument, Option
from paceline.app.option_table import asks
from paceline.app.output import Answer, answer_of, say
from paceline.errors import InvalidInputError

if TYPE_CHECKING:
    from paceline.app.truth.calibrating import CalibrationSummary
    from paceline.prediction.calibration.fitted import Update
    from paceline.reporting.tables import Table

_OUT = Path("calibration.json")


@asks(
    api.calibrate,
    rows=Annotated[
        Path | None,
        Argument(
            "ROWS.csv",
            "Your measurements, as `paceline score` reads them; runs of `paceline trials` with "
            "their times; a folder of `paceline measure`; or the load-test.json of a deployed "
            "service.",
            None,
        ),
    ],
    out=Annotated[
        Path, Option("Where the calibration goes, for --calibration.", "FILE", default=_OUT)
    ],
    is_list=Annotated[
        bool, Option("Show what was learned so far, and change nothing.", "", ("--list",), False)
    ],
    undo=Annotated[
        str | None,
        Option("Forget one update as --list names it, or the `last` one.", "NAME"),
    ],
    run=Option("Learn from a run that `paceline run` watched.", "RUN"),
    calibration=common.Calibration,
    python=common.Python,
    facts=common.Facts,
    form=common.Format,
    is_json=common.Json,
)
def calibrate(
    *, rows: Path | None, out: Path, is_list: bool, undo: str | None, run: str | None,
    calibration: Path | None, python: str | None, facts: Sequence[Path], form: str, is_json: bool,
) -> None:  # fmt: skip
    """Learn from measurements how far steps of a device are off, and keep that in a file.

    A measured step moves itself nearly all the way, its model and its kernels in part, and the
    rest of its device a little. Rows need step_time_ms, or throughput and unit, beside the input
    columns of `paceline score`. --list and --undo read the file of --calibration, else of --out,
    and --undo writes it again.
    """
    wanted = common.form_of(form, is_json=is_json)
    if sum((rows is not None, is_list, undo is not None, run is not None)) != 1:
        raise InvalidInputError(
            "one of ROWS.csv, --run, --list and --undo is wanted",
            hint="`paceline calibrate rows.csv` learns, `paceline calibrate --list` shows",
        )
    is_shown = is_list or undo is not None
    if is_shown and (python is not None or facts):
        option = "--python" if python is not None else "--facts"
        raise InvalidInputError(
            f"`{option}` says nothing beside --list and --undo", hint="leave it out"
        )
    if is_shown:
        say(_kept(calibration or out, undo), wanted, None)
        return
    summary = api.calibrate(
        rows, out, run=run, calibration=calibration, python=python, facts=facts,
        on_progress=lambda line: print(line, file=sys.stderr),
    )  # fmt: skip
    say(_learned(summary, out), wanted, None)


def _learned(summary: CalibrationSummary, out: Path) -> Answer:
    used = f"{summary.num_used} of {summary.num_rows} rows used, "
    used += f"kept in {summary.kept_in}" if summary.kept_in else f"written to {out}"
    following = f"next: paceline plan … --calibration {out}"
    if summary.kept_in:
        following = "the model of this machine learns from them; next: paceline run -- CMD"
    return answer_of("calibration", summary, _table(summary), f"{used}\n{following}")


def _kept(path: Path, undo: str | None) -> Answer:
    """The updates that a file holds, after one of them is dropped where that was asked."""
    updates = api.calibrate_list(path) if undo is None else api.calibrate_undo(path, undo)
    return answer_of(
        "updates", updates, _updates_table(updates), f"{len(updates)} updates in {path}"
    )


def _updates_table(updates: Sequence[Update]) -> Table:
    from paceline.reporting.tables import Table, header

    return Table(
        columns=header("update | rows > | devices"),
        rows=tuple(
            (
                one.label,
                str(len(one.residuals)),
                ", ".join(sorted({part.device_name for part in one.residuals})),
            )
            for one in updates
        ),
    )


def _table(summary: CalibrationSummary) -> Table:
    from paceline.reporting.tables import Table, header
    from paceline.units import format_percent

    return Table(
        columns=header(
            "device | rows > | models > | times now × > | median error before > | after >"
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
