"""``paceline trace``: what a model asks for, op by op."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from paceline.app import options as common
from paceline.app.api.planning import trace as trace_model
from paceline.app.command_line import Commands, Option
from paceline.app.output import Answer
from paceline.app.requests.traces import Trace, passes_of


class _ShownOptions(TypedDict, total=False):
    precision: common.Precision
    compiler: common.Compiler
    rewrite: common.Rewrite
    compare: Annotated[
        str,
        Option(
            metavar="SETTINGS",
            help="Show beside it the same with these settings changed.",
            default="",
        ),
    ]
    top: Annotated[int, Option(help="How many ops to list.", default=10)]
    save: Annotated[
        Path | None,
        Option(help="Write the traced model to this file, to be shared without its code."),
    ]


class TraceOptions(common.ModelOptions, _ShownOptions, common.FactOptions, total=False):
    """How the model is traced, and what of it is shown."""


def register(app: Commands) -> None:
    """Add the verb."""
    app.add_verb("trace", trace)


@common.answers
def trace(
    model: common.Model,
    device: Annotated[
        str | None, Option(metavar="NAME", help="Rank ops by their time on this device.")
    ] = None,
    batch: Annotated[int, Option(help="Items per step.")] = 32,
    **options: Unpack[TraceOptions],
) -> Answer:
    """Show parameters, FLOP, bytes, the largest ops and why, and memory over the pass."""
    return _answer(trace_model(model, device=device, batch=batch, **options))


def _answer(traced: Trace) -> Answer:
    from paceline.reporting.screens.traces import breakdown_markdown, breakdown_text

    task = "training" if traced.task == "train" else "inference"
    settings = f" · {traced.rewrite}" if traced.rewrite else ""
    title = f"{traced.title} · {task} · {traced.precision} {traced.compiler}{settings}"
    shown = passes_of(traced, title)
    return Answer(
        kind="trace",
        value=traced,
        text=lambda width: breakdown_text(shown, width=width),
        markdown=lambda: breakdown_markdown(shown),
    )
