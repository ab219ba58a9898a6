"""Widths of intervals and the reliability table of `fits`, against rows made up by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from accuracy_memory.strangers import (
    Z_80,
    is_covered,
    known_lines,
    measured_bytes,
    memory_lines,
    page_lines,
    reliability_lines,
    spreads,
    summary_lines,
)


def known_rows(errors: dict[str, list[float]]) -> pd.DataFrame:
    rows = [(source, error) for source, many in errors.items() for error in many]
    frame = pd.DataFrame(rows, columns=["origin", "log_ratio"])
    bounds = ("memory_low_bytes", "memory_mid_bytes", "memory_high_bytes")
    frame = frame.assign(memory_lasting_bytes=0.5, **dict.fromkeys(bounds, 1.0))
    return frame.assign(peaks="derived", width_of="derived")


def test_a_width_holds_four_in_five_of_a_source_drawn_at_random() -> None:
    """A source of two hundred rows counts once, as one of five does."""
    alike = known_rows({"a": [0.1] * 200, "b": [0.1, 0.1, 0.1, 0.5, 0.5]})
    assert spreads(alike)["derived"] == pytest.approx((0.1 / Z_80, 0.0))
    apart = known_rows({"a": [0.1] * 200, "b": [0.1, 0.1, 0.5, 0.5, 0.5]})
    assert spreads(apart)["derived"] == pytest.approx((0.5 / Z_80, 0.0))


def test_sources_of_few_rows_say_nothing_of_a_width() -> None:
    rows = known_rows({"a": [0.1] * 5, "b": [0.9] * 4})
    assert spreads(rows)["derived"] == pytest.approx((0.1 / Z_80, 0.0))


def test_what_does_not_last_widens_by_as_much_as_it_is_of_a_peak() -> None:
    """Four rows in five lie within the width, whatever lasts of each."""
    live = known_rows({"a": [0.1] * 5})
    errors = [Z_80 * math.hypot(0.1 / Z_80, 0.4 * rest) for rest in (0.0, 0.25, 0.5, 1.0, 1.0)]
    rows = known_rows({"b": [*errors[:4], 3.0]}).assign(
        memory_lasting_bytes=[1.0, 0.75, 0.5, 0.0, 0.0], peaks="driver", width_of="driver"
    )
    widths = spreads(pd.concat([live, rows], ignore_index=True))
    assert widths["driver"] == pytest.approx((0.1 / Z_80, 0.4))
    wider = {name: (of_all + 1e-9, of_rest) for name, (of_all, of_rest) in widths.items()}
    assert is_covered(rows, wider).tolist() == [True] * 4 + [False]


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


def test_a_gigabyte_is_as_large_as_its_source_makes_it() -> None:
    """2^30 bytes, 10^9 where a source says so, and a thousand of PyTorch's megabytes."""
    rows = pd.DataFrame(
        {
            "origin": ["huggingface/peft", "FlagOpen/FlagPerf", "a", "b"],
            "peak_mem_gb": ["2"] * 4,
            "extra": ["", "", "memory_kind=reserved, 1e9 bytes", ""],
            "notes": ["", "", "", "README; MB as printed / 1000"],
        }
    )
    found = measured_bytes(rows).tolist()
    assert found == [2.0 * one for one in (2.0**30, 1e9, 1e9, 1000.0 * 2.0**20)]


def published(errors: dict[str, list[float]]) -> pd.DataFrame:
    """Rows as they are joined, of which one more has no answer."""
    rows = known_rows(errors)
    rows = pd.concat([rows, rows[-1:].assign(log_ratio=math.nan, memory_mid_bytes=math.nan)])
    beside = {"quality": "A", "model": "m", "reason": "no batch", "fits": "yes"}
    return rows.assign(**beside, chance_to_fit=1.0).reset_index(drop=True)


def test_the_page_counts_rows_answers_and_what_is_far_off() -> None:
    """Five and four rows of 1.1 and 1.5 times what was measured, and one that got no answer."""
    rows = published({"a": [math.log(1.1)] * 5, "b": [math.log(1.5)] * 4})
    (summary,) = summary_lines(rows)
    assert summary.startswith("Of 10 rows 9 are answered: **10.0% off in the median and 50.0% at")
    assert summary.endswith("4 are far off.")
    lines = list(memory_lines(rows))
    assert any(line.startswith("| b | 5 | 80% | 1.50 | 50% | 50% | 4 |") for line in lines)
    known = list(known_lines(rows))[2:]
    assert [line.split("|")[2].strip() for line in known] == ["9", "0", "0"]


def test_the_page_is_what_is_printed() -> None:
    """A day, each part under its heading, and pictures where they were asked."""
    rows = published({"a": [0.1] * 5, "b": [0.2] * 5})
    text = "\n".join(page_lines(rows, rows, as_of="a day, a commit"))
    assert "Asked on a day, a commit." in text
    parts = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert parts[0] == "Language models"
    assert "Pictures, clips and detection" in parts
    assert parts[-3:] == ["Widths", "Does it fit?", "Unanswered"]
    assert "were not asked in this run" not in text
    assert "were not asked in this run" in "\n".join(page_lines(rows, None, as_of=""))
