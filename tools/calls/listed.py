"""The calls: one line of `calls.txt` each, as it is typed behind ``paceline``."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def read_calls(*, only: str = "", every: int = 1) -> list[str]:
    """Lines of the list, in order.

    Args:
        only: Regular expression that must be found in a line.
        every: Each n-th of those, beginning with the first.
    """
    lines = (HERE / "calls.txt").read_text(encoding="utf-8").splitlines()
    calls = [line for line in lines if line and not line.startswith("# ")]
    return [call for call in calls if re.search(only, call)][::every]
