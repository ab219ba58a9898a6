"""``paceline score``: predict a table of published measurements from its inputs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from paceline.app import options as common
from paceline.app.api import planning as api
from paceline.app.command_line import Argument, Option
from paceline.app.option_table import asks
from paceline.app.output import Answer, Asked
from paceline.app.requests.plan_request import read_calibration
from paceline.errors import InvalidInputError


@asks(
    api.explain,
    rows=Argument("ROWS.csv", "Table with input columns."),
    out=Annotated[Path | None, Option("Where the answers go.", "PRED.csv")],
    explain=Annotated[
        int | None,
        Option("Print the command that gives the number of this row, from 0.", "ROW"),
    ],
    python=common.Python,
    **common.KNOWN,
    form=common.Format,
    is_json=common.Json,
)
def score(
    *, out: Path | None, explain: int | None, form: str, is_json: bool, **asked: Any
) -> Asked:
    """Write low, mid and high of step time, throughput and memory per row, or why not.

    Only input columns are read (model, task, precision, device, count, batch and the like), never
    a measured one. docs/how-to/score.md lists them.
    """
    wanted = common.form_of(form, is_json=is_json)
    if explain is not None and out is not None:
        raise InvalidInputError(
            "`--out` takes the answers of all rows, and `--explain` gives one", hint="ask one"
        )
    if explain is not None:
        return Asked(verb=_explained, values={**asked, "number": explain}, form=wanted)
    if out is None:
        raise InvalidInputError(
            "nothing says where the answers go", hint="add --out PRED.csv, or --explain ROW"
        )
    return Asked(verb=_scored, values={**asked, "out": out}, form=wanted)


def _explained(
    rows: Path, number: int, python: str | None, facts: Sequence[Path], calibration: Path | None
) -> Answer:
    from paceline.scoring.explain import explanation_text

    found = api.explain(rows, number, python=python, facts=facts, calibration=calibration)
    text = explanation_text(found)
    return Answer(kind="explanation", value=found, text=lambda _: text, markdown=lambda: text)


def _scored(
    rows: Path, out: Path, python: str | None, facts: Sequence[Path], calibration: Path | None
) -> Answer:
    from paceline.catalog.load import load_catalog
    from paceline.scoring.score import score_rows

    summary = score_rows(
        rows, out, catalog=load_catalog(tuple(facts)), python=python,
        calibration=read_calibration(calibration),
        on_progress=lambda line: print(line, file=sys.stderr),
    )  # fmt: skip
    abstained = "\n".join(f"  {count:>6}  {reason}" for reason, count in summary.abstentions[:12])
    text = f"{summary.num_predicted} of {summary.num_rows} rows predicted, written to {out}"
    if abstained:
        text += f"\nabstained:\n{abstained}"
    return Answer(kind="score", value=summary, text=lambda _: text, markdown=lambda: text)
