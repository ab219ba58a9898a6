"""``paceline lifecycle``: places to develop, to train and to serve one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from paceline.app import options as common
from paceline.app.command_line import Argument, Commands
from paceline.app.output import Answer, say


def register(app: Commands) -> None:
    """Add the verb."""
    app.add_verb("lifecycle", lifecycle)


def lifecycle(
    path: Annotated[
        Path, Argument(metavar="FILE", help="YAML file: a model, and develop, train, serve.")
    ],
    python: common.Python = None,
    facts: common.Facts = None,
    calibration: common.Calibration = None,
    as_of: common.AsOf = None,
    form: common.Format = "text",
    is_json: common.Json = False,
    output: common.Output = None,
) -> None:
    """Choose a place each to develop, train and serve a model, against one place for all."""
    from paceline.app.api.decisions import lifecycle as choose
    from paceline.reporting.screens import lifecycle as report

    wanted = common.form_of(form, is_json=is_json)
    found = choose(path, python=python, facts=facts or (), calibration=calibration, as_of=as_of)
    answer = Answer(
        kind="lifecycle",
        value=found,
        text=lambda width: report.lifecycle_text(found, width=width),
        markdown=lambda: report.lifecycle_markdown(found),
    )
    say(answer, wanted, output)
