"""``paceline trials``: which strategies to run once before one is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from paceline.app import options as common
from paceline.app.api import calibration as api
from paceline.app.command_line import Option
from paceline.app.option_table import asks
from paceline.app.output import Answer, answer_of
from paceline.app.verbs.scale import SCALED

if TYPE_CHECKING:
    from paceline.app.requests.trials import Trials
    from paceline.reporting.tables import Table


@common.answers
@asks(
    api.trials,
    model=common.Model,
    device=Annotated[str | None, Option("On the largest machines with this device.", "NAME")],
    offer=Annotated[str | None, Option("On these machines.", "NAME")],
    devices=Option("Device count.", "N"),
    global_batch=Annotated[
        int | None, Option("Items per step; what keeps every device busy by default.")
    ],
    num=Option("How many runs at most.", "N"),
    rows=Option("Write the runs there, to fill in their times.", "FILE"),
    **SCALED,
)
def trials(*, rows: Path | None, **asked: Any) -> Answer:
    """Name the runs whose times would most improve the choice between strategies of training.

    A run of twenty steps is enough. Write its time into the column step_time_ms of the file, then
    `paceline calibrate FILE` learns it and `--calibration` tells the other verbs.
    """
    found = api.trials(rows=rows, **asked)
    return answer_of("trials", found, *_parts(found, rows))


def _parts(found: Trials, rows: Path | None) -> tuple[Table | str, ...]:
    from paceline.units import format_percent

    head = f"{found.title} · training · {found.count} × {found.device} · batch {found.global_batch}"
    assumed = "; ".join(found.assumptions)
    if not found.trials:
        return head, f"assumed: {assumed}", "no run would improve the choice: one strategy is ahead"
    where = rows or "FILE"
    written = "" if rows else "--rows FILE writes them; "
    shorter = format_percent(found.saved_frac)
    following = (
        f"measured, they make the chosen step {shorter} shorter on average\n\n"
        f"next: {written}run each for some twenty steps, write step_time_ms into {where}, then\n"
        f"      paceline calibrate {where}\n"
        "      and give --calibration calibration.json to the other verbs"
    )
    return head, f"assumed: {assumed}", _table(found), following


def _table(found: Trials) -> Table:
    from paceline.reporting.tables import Table, header
    from paceline.units import format_duration, format_percent

    return Table(
        columns=header("measure first | items > | step > | may be fastest >"),
        rows=tuple(
            (
                str(one.strategy),
                str(one.microbatch),
                format_duration(one.step_s),
                format_percent(one.better_chance),
            )
            for one in found.trials
        ),
    )
