"""What the column ``extra`` states of a job: inputs by name, and nothing that was measured.

The column mixes both (``model=base; avg_power_watts=700``). Only keys of ``extra_inputs.csv`` are
read; every other one is dropped like a measured column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from paceline.scoring.tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedInputs:
    """Inputs that stand in ``extra``.

    Attributes:
        variant: Which of the models of one name; empty where nothing says so.
        flags: What belongs to the flags, ready to be added to them.
        image_size: Pixels of a side; None where it is not stated.
        num_steps: Passes that make one item; None where it is not stated.
    """

    variant: str = ""
    flags: str = ""
    image_size: float | None = None
    num_steps: float | None = None


def stated_inputs(extra: str) -> StatedInputs:
    """The inputs among ``key=value`` pairs that semicolons separate.

    >>> stated_inputs("model=base; throughput=12; beam size=5")
    StatedInputs(variant='base', flags='beam=5', image_size=None, num_steps=None)
    >>> stated_inputs("gmacs=4.1;model=resnet50")
    StatedInputs(variant='', flags='', image_size=None, num_steps=None)
    """
    found: dict[str, str] = {}
    for key, value in _pairs(extra):
        for known in read_table("extra_inputs.csv"):
            match = re.fullmatch(known["value"], value, re.IGNORECASE)
            if match and known["key"] == key:
                found[known["column"]] = match.expand(known["means"])
    return StatedInputs(
        variant=found.get("variant", ""),
        flags=found.get("flags", ""),
        image_size=_number(found.get("image_size")),
        num_steps=_number(found.get("num_steps")),
    )


def _pairs(extra: str) -> list[tuple[str, str]]:
    cut = (pair.partition("=") for pair in extra.split(";"))
    return [(key.strip().lower(), value.strip()) for key, _, value in cut]


def _number(text: str | None) -> float | None:
    return float(text) if text else None
