"""The reliability table of `fits`, against rows made up by hand."""

from __future__ import annotations

import pandas as pd
from accuracy_memory.strangers import reliability_lines


def test_a_chance_is_held_against_what_ran() -> None:
    """One all but certain to run, and two all but certain not to, of which one ran."""
    rows = pd.DataFrame(
        {
            "chance_to_fit": [1.0, 0.0, 0.0],
            "quality": ["A", "A-OOM", "B"],
        }
    )
    _, _, *lines = reliability_lines(rows)
    assert lines == ["| 0% to 10% | 2 | 0% | 50% |", "| 99% to 100% | 1 | 100% | 100% |"]
