"""``paceline lifecycle``: places to develop, to train and to serve one model."""

from __future__ import annotations

from typing import Any

from paceline.app import options as common
from paceline.app.api import decisions as api
from paceline.app.command_line import Argument
from paceline.app.option_table import asks
from paceline.app.output import Answer


@common.answers
@asks(
    api.lifecycle,
    path=Argument("FILE", "YAML file: a model, and develop, train, serve."),
    python=common.Python,
    **common.KNOWN,
    as_of=common.AsOf,
)
def lifecycle(**asked: Any) -> Answer:
    """Choose a place each to develop, train and serve a model, against one place for all."""
    from paceline.reporting.screens import lifecycle as report

    found = api.lifecycle(**asked)
    return Answer(
        kind="lifecycle",
        value=found,
        text=lambda width: report.lifecycle_text(found, width=width),
        markdown=lambda: report.lifecycle_markdown(found),
    )
