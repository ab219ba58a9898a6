"""Two trees are compared row by row: the same rows are drawn each time, and what moved is told."""

from __future__ import annotations

import math

import pandas as pd
from scoreboard_compare import compared, moved_rows, sample

_ROWS = pd.DataFrame(
    {
        "set": ["few"] * 3 + ["many"] * 40,
        "task": "train",
        "model": "m", "framework": "f", "gpu": "g", "n_gpus": 1, "parallelism": "",
        "throughput": 10.0,
        "step_time_ms": math.nan,
    }
)  # fmt: skip


def _told(rows: pd.DataFrame, factor: float) -> pd.DataFrame:
    names = ("throughput_low", "throughput_mid", "throughput_high")
    answers = dict.fromkeys(names, 10.0 * factor) | dict.fromkeys(
        ("step_low_s", "step_mid_s", "step_high_s", "memory_mid_bytes"), 1.0 / factor
    )
    return pd.DataFrame({"reason": math.nan, **answers}, index=rows.index)


def test_every_set_is_drawn_from_equally_and_the_same_rows_each_time() -> None:
    drawn = sample(_ROWS, num_rows=20)
    assert list(drawn.index) == list(sample(_ROWS, num_rows=20).index)
    assert drawn.set.value_counts().to_dict() == {"few": 3, "many": 17}


def test_rows_that_moved_are_counted_with_the_largest_change() -> None:
    before, after = _told(_ROWS, 1.0), _told(_ROWS, 1.0)
    after.loc[5] = _told(_ROWS, 0.5).loc[5]
    few, many = compared(_ROWS, before, after).to_dict("records")
    assert (few["moved"], many["moved"]) == (0, 1)
    assert math.isclose(many["largest"], 1.0)
    assert list(moved_rows(_ROWS, before, after).index) == [5]


def test_a_row_that_is_refused_now_stands_first() -> None:
    before, after = _told(_ROWS, 1.0), _told(_ROWS, 1.0)
    after.loc[3] = math.nan
    after["reason"] = after["reason"].astype(object)
    after.loc[3, "reason"] = "no such model"
    moved = moved_rows(_ROWS, before, after)
    assert list(moved.after) == ["no such model"]
    assert compared(_ROWS, before, after)["told after"].to_list() == [3, 39]
