"""``paceline trace``: what a model asks for, op by op."""

from __future__ import annotations

from typing import Any

from paceline.app import options as common
from paceline.app.api import planning as api
from paceline.app.command_line import Option
from paceline.app.option_table import asks
from paceline.app.output import Answer
from paceline.simulation.observed import Trace


@common.answers
@asks(
    api.trace,
    model=common.Model,
    device=Option("Rank ops by their time on this device.", "NAME"),
    batch=Option("Items per step."),
    task=common.Task,
    **common.TRACED,
    precision=common.Precision,
    compiler=common.Compiler,
    rewrite=common.Rewrite,
    compare=Option("Show beside it the same with these settings changed.", "SETTINGS"),
    top=Option("How many ops to list."),
    save=Option("Write the traced model to this file, to be shared without its code."),
    **common.KNOWN,
)
def trace(**asked: Any) -> Answer:
    """Show parameters, FLOP, bytes, the largest ops and why, and memory over the pass."""
    return _answer(api.trace(**asked))


def _answer(traced: Trace) -> Answer:
    from paceline.reporting.screens.traces import breakdown_markdown, breakdown_text

    return Answer(
        kind="trace",
        value=traced,
        text=lambda width: breakdown_text(traced, width=width),
        markdown=lambda: breakdown_markdown(traced),
    )
