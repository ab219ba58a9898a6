"""Two kinds of device in one job, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.reporting.figures import duration_range, number_range
from paceline.reporting.tables import Table, header, markdown_table, text_table
from paceline.reporting.texts import labelled
from paceline.simulation.unequal import UnequalStep
from paceline.units import format_bytes, format_duration, format_percent, format_significant


def unequal_text(
    title: str, assumptions: Sequence[str], step: UnequalStep, unit: str, *, width: int = 100
) -> str:
    """Shares as a table, and what they are worth, as text."""
    blocks = (
        "\n".join((title, *labelled("assumed", assumptions, width))),
        text_table(unequal_table(step, unit), width=width),
        "\n".join(labelled("worth", _worth(step, unit), width)),
    )
    return "\n\n".join(blocks)


def unequal_markdown(title: str, assumptions: Sequence[str], step: UnequalStep, unit: str) -> str:
    """The same as Markdown."""
    notes = "\n".join(f"- {note}" for note in (*assumptions, *_worth(step, unit)))
    return "\n\n".join((f"# {title}", notes, markdown_table(unequal_table(step, unit))))


def unequal_table(step: UnequalStep, unit: str) -> Table:
    """One row per kind of device."""
    return Table(
        columns=header(f"devices > | of | {unit} each > | alone > | memory > | share >"),
        rows=tuple(
            (
                f"{share.count:,}",
                share.device,
                f"{share.items_per_device:,}",
                format_duration(share.alone_s),
                format_bytes(share.needed_bytes),
                format_percent(share.count * share.items_per_device / step.global_batch),
            )
            for share in step.shares
        ),
    )


def _worth(step: UnequalStep, unit: str) -> tuple[str, ...]:
    rate = f"{number_range(step.items_per_s_interval)} {unit}/s"
    exposed = format_percent(step.exposed_communication_s / step.step_s)
    duration = duration_range(step.step_interval_s)
    notes = [
        f"{rate} at a batch of {step.global_batch:,}, {duration} a step, {exposed} of it "
        "communication and waiting"
    ]
    for others, words in (
        (step.equal_items_per_s, "equal shares"),
        (step.best_alone_items_per_s, "the better kind alone"),
    ):
        if others is None:
            notes.append(f"{words}: does not fit or divide")
        else:
            gain = format_percent(step.items_per_s / others - 1.0)
            notes.append(f"{words}: {format_significant(others)} {unit}/s; these are {gain} more")
    return tuple(notes)
