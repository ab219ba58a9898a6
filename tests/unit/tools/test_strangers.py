"""The reliability table of `fits`, against rows made up by hand."""

from __future__ import annotations

import pandas as pd
from accuracy_memory.strangers import reliability_lines


def test_a_chance_is_held_against_what_ran() -> None:
    """Peaks of half a card and of two cards: one all but certain to run, one all but not to."""
    rows = pd.DataFrame(
        {
            "gpu_mem_gb": ["80"] * 3,
            "memory_mid_bytes": [40e9, 160e9, 160e9],
            "memory_high_bytes": [44e9, 176e9, 176e9],
            "quality": ["A", "A-OOM", "B"],
        }
    )
    _, _, *lines = reliability_lines(rows)
    assert lines == ["| 0% to 10% | 2 | 0% | 50% |", "| 99% to 100% | 1 | 100% | 100% |"]
