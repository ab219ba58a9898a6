"""Software combinations, and why there are none, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from paceline.reporting.tables import Table, header, markdown_table, text_table
from paceline.reporting.texts import labelled
from paceline.stack.queries import (
    Explanation,
    ImageChoice,
    combination_rows,
    image_way_text,
    way_out_text,
)
from paceline.stack.resolver import Combination, Conflict, Reason, Resolution

_NAME_COLUMN = 14
_TITLES = ("software", "build", "platform", "Python", "driver", "cuDNN", "status")


def resolution_text(resolution: Resolution, *, width: int = 100) -> str:
    """Combinations newest first, or the smallest contradictions."""
    if resolution.combinations:
        head = textwrap.fill(_headline(resolution.combinations[0]), width, break_on_hyphens=False)
        return f"{head}\n\n{text_table(combination_table(resolution), width=width)}"
    return "\n\n".join(_conflict_text(conflict, width) for conflict in resolution.conflicts)


def _headline(newest: Combination) -> str:
    """The newest that works, in one sentence."""
    row = combination_rows(Resolution(combinations=(newest,), conflicts=()))[0]
    facts = dict(zip(_TITLES, row, strict=True))
    build = f" ({newest.tag}, {facts['platform']})" if newest.tag else ""
    needs = [f"{name} {facts[name]}" for name in ("Python", "driver") if facts[name] != "any"]
    return f"{facts['software']}{build} works{' with ' if needs else ''}{' and '.join(needs)}."


def resolution_markdown(resolution: Resolution) -> str:
    """The same as Markdown."""
    if resolution.combinations:
        return markdown_table(combination_table(resolution))
    return "\n\n".join(_conflict_text(conflict, 100) for conflict in resolution.conflicts)


def explanation_text(explanation: Explanation, *, width: int = 100) -> str:
    """The newest combination with every rule that bears on it."""
    blocks = (
        [combination_text(explanation.combination, width=width)] if explanation.combination else []
    )
    blocks += [_conflict_text(conflict, width) for conflict in explanation.conflicts]
    blocks += ["\n".join(_reason_lines("rules", explanation.rules, width))]
    return "\n\n".join(block for block in blocks if block)


def combination_text(combination: Combination, *, width: int = 100) -> str:
    """One combination, a fact a line; what is longer goes on below its value."""
    row = combination_rows(Resolution(combinations=(combination,), conflicts=()))[0]
    facts = [*zip(_TITLES, row, strict=True), *combination.companions]
    facts.append(("source", combination.source))
    hanging = " " * _NAME_COLUMN
    return "\n".join(
        textwrap.fill(value, width, initial_indent=f"{name:<{_NAME_COLUMN}}",
                      subsequent_indent=hanging, break_on_hyphens=False)
        for name, value in facts
        if value
    )  # fmt: skip


def combination_table(resolution: Resolution) -> Table:
    """One row per combination."""
    return Table(
        columns=header(" | ".join(_TITLES)),
        rows=combination_rows(resolution),
    )


def image_table(choices: Sequence[ImageChoice]) -> Table:
    """One row per wanted toolkit; below one without an image why, and what would start one."""
    return Table(
        columns=header("CUDA | image"),
        rows=tuple((c.toolkit, c.image or "none") for c in choices),
        remarks=tuple(_why_no_image(c) for c in choices),
    )


def _why_no_image(choice: ImageChoice) -> str:
    reasons = (reason.text for reason in choice.reasons)
    return "; ".join((*reasons, *map(image_way_text, choice.ways_out)))


def _conflict_text(conflict: Conflict, width: int) -> str:
    named = " with ".join(f"{name} {value}" for name, value in conflict.constraints)
    lines = labelled("nothing works", (f"{named}",), width)
    lines += _reason_lines("because", conflict.reasons, width)
    return "\n".join((*lines, *labelled("works", map(way_out_text, conflict.ways_out), width)))


def _reason_lines(label: str, reasons: Sequence[Reason], width: int) -> list[str]:
    return labelled(label, (f"{r.text} ({r.source})" for r in reasons), width)
