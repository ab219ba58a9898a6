"""``paceline score``: predict a table of published measurements from its inputs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from paceline.app import options as common
from paceline.app.api.planning import explain as explain_row
from paceline.app.api.planning import score as score_rows
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.output import Answer, Form, say
from paceline.errors import InvalidInputError

if TYPE_CHECKING:
    from paceline.scoring.explain import RowExplanation


def register(app: Commands) -> None:
    """Add the verb."""
    app.add_verb("score", score)


def _say_explanation(found: RowExplanation, wanted: Form) -> None:
    from paceline.scoring.explain import explanation_text

    text = explanation_text(found)
    say(
        Answer(kind="explanation", value=found, text=lambda _: text, markdown=lambda: text),
        wanted,
        None,
    )


def score(
    rows: Annotated[Path, Argument(metavar="ROWS.csv", help="Table with input columns.")],
    out: Annotated[Path | None, Option(metavar="PRED.csv", help="Where the answers go.")] = None,
    explain: Annotated[
        int | None,
        Option(metavar="ROW", help="Print the command that gives the number of this row, from 0."),
    ] = None,
    python: common.Python = None,
    facts: common.Facts = None,
    calibration: common.Calibration = None,
    form: common.Format = "text",
    is_json: common.Json = False,
) -> None:
    """Write low, mid and high of step time, throughput and memory per row, or why not.

    Only input columns are read (model, task, precision, device, count, batch and the like), never
    a measured one. docs/how-to/score.md lists them.
    """
    wanted = common.form_of(form, is_json=is_json)
    if explain is not None:
        found = explain_row(
            rows, explain, python=python, facts=facts or (), calibration=calibration
        )
        return _say_explanation(found, wanted)
    if out is None:
        raise InvalidInputError(
            "nothing says where the answers go", hint="add --out PRED.csv, or --explain ROW"
        )
    summary = score_rows(
        rows,
        out,
        python=python,
        facts=facts or (),
        calibration=calibration,
        on_progress=lambda line: print(line, file=sys.stderr),
    )
    abstained = "\n".join(f"  {count:>6}  {reason}" for reason, count in summary.abstentions[:12])
    text = f"{summary.num_predicted} of {summary.num_rows} rows predicted, written to {out}"
    if abstained:
        text += f"\nabstained:\n{abstained}"
    say(
        Answer(kind="score", value=summary, text=lambda _: text, markdown=lambda: text),
        wanted,
        None,
    )
