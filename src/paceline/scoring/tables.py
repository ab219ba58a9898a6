"""The small tables that tell what published names mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from paceline.shipped import shipped_rows


def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of one table of ``data/``."""
    return shipped_rows("scoring", name)


def fitting_lines(name: str, asked: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Lines of a table whose patterns fit, in its order; an empty pattern fits everything.

    ``asked``: what each of its columns of patterns has to fit as a whole, whatever the case.

    >>> line = next(fitting_lines("lora_defaults.csv", {"framework": "NeMo 25.04"}))
    >>> line["rank"], len(list(fitting_lines("lora_defaults.csv", {"framework": "LitGPT"})))
    ('16', 1)
    """
    return (
        line
        for line in read_table(name)
        if all(re.fullmatch(line[c] or ".*", text, re.IGNORECASE) for c, text in asked.items())
    )
