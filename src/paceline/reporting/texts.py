"""Words that tables, charts and pages share, and sentences wrapped behind a label."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.measurements.records import Record


def labelled(label: str, sentences: Iterable[str], width: int) -> list[str]:
    """Sentences one below the other, wrapped, behind a label that is printed once.

    >>> labelled("turns", ("one", "two"), 80)
    ['turns: one', '       two']
    """
    lines: list[str] = []
    for sentence in filter(None, sentences):
        head = f"{label}: " if not lines else " " * (len(label) + 2)
        lines += textwrap.wrap(
            sentence,
            width,
            initial_indent=head,
            subsequent_indent=" " * (len(label) + 4),
            break_on_hyphens=False,
        )
    return lines


def folded(text: str, width: int) -> str:
    r"""Lines folded at a width, the rest of each deeper by two; `next:` stays whole, for copying.

    >>> folded("one two three", 8)
    'one two\n  three'
    """
    return "\n".join(
        one if len(one) <= width or one.startswith("next: ") else _folded_line(one, width)
        for one in text.splitlines()
    )


def wrapped(text: str, width: int) -> str:
    """Sentences folded at the width; table lines fit it already."""
    return "\n".join(
        textwrap.fill(line, width, break_on_hyphens=False) if len(line) > width else line
        for line in text.splitlines()
    )


def _folded_line(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.lstrip(),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def sample_unit_of(records: Iterable[Record]) -> str:
    """What the throughput of these records counts; ``samples`` where none says."""
    return next((record.sample_unit for record in records if record.sample_unit), "samples")
