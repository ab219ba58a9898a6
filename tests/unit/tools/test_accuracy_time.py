"""Widths of left-out sources, each source as one."""

import numpy as np
import pandas as pd
import pytest
from accuracy_time.band import band_lines, chance_in_band
from accuracy_time.before import errors_before, line
from accuracy_time.together import common, surprise, width
from accuracy_time.widths import between, coverage


def errors_of(**sources: np.ndarray) -> pd.DataFrame:
    parts = [pd.DataFrame({"log_error": e, "source_name": name}) for name, e in sources.items()]
    return pd.concat(parts, ignore_index=True)


def normal(sigma: float, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, sigma, count)


def test_widths_that_are_right_cover_four_of_five_and_are_left_as_they_are():
    rows = errors_of(a=normal(0.1, 20_000), b=normal(0.3, 20_000, 1))
    sigma = rows.source_name.map({"a": 0.1, "b": 0.3})
    assert coverage(rows, sigma) == pytest.approx(0.8, abs=0.01)
    assert between(rows, sigma) == pytest.approx(0.0, abs=0.03)


def test_a_doubt_that_sources_share_is_found_however_many_rows_they_have():
    found = []
    for count in (2_000, 20_000):
        rows = errors_of(a=normal(0.5, count), b=normal(0.5, 2_000, 1), c=normal(0.1, 2_000, 2))
        found.append(between(rows, pd.Series(0.3, rows.index)))
    assert found == pytest.approx([0.4, 0.4], rel=0.1)
    assert coverage(rows[:20_000], np.full(20_000, np.hypot(0.3, found[1]))) == pytest.approx(
        0.8, abs=0.03
    )


def test_sources_that_are_inside_already_ask_for_nothing():
    rows = errors_of(a=normal(0.1, 1000), b=normal(0.1, 1000, 1))
    assert between(rows, pd.Series(0.3, rows.index)) == 0.0


def test_a_few_broken_rows_set_no_width():
    rows = errors_of(a=np.append(normal(0.5, 1000), np.full(20, 6.0)))
    assert between(rows, pd.Series(0.3, rows.index)) == pytest.approx(0.4, rel=0.1)


def test_a_source_of_two_rows_says_nothing():
    rows = errors_of(a=normal(0.5, 1000), b=np.array([5.0, 5.0]))
    alone = rows[rows.source_name == "a"]
    both, one = (between(some, pd.Series(0.1, some.index)) for some in (rows, alone))
    assert both == one > 0


def test_a_share_that_all_pairs_have_is_found_and_surprises_least():
    drawn = np.random.default_rng(3).normal(0.0, 1.0, (3, 20_000))
    both, own = np.sqrt(0.4) * drawn[0], np.sqrt(0.6) * drawn[1:]
    rows = pd.DataFrame({"suite": "one", "a": both + own[0], "b": both + own[1]})
    assert common(rows) == pytest.approx(0.4, abs=0.02)
    told = [surprise(rows, share) for share in (0.1, 0.4, 0.7)]
    assert told[1] == min(told)


def test_a_width_holds_four_of_five():
    assert width(pd.Series(normal(0.2, 20_000))) == pytest.approx(0.2, rel=0.02)


def test_right_widths_rarely_lie_in_the_band_where_rows_of_a_model_err_alike():
    """Chances of a band are those that draws have; a source of one model cannot lie in it."""
    drawn = np.random.default_rng(3).binomial(40, 0.8, 200_000) / 40
    assert chance_in_band(40) == pytest.approx(((drawn >= 0.75) & (drawn <= 0.85)).mean(), abs=0.01)
    source = pd.DataFrame({"model": ["a"] * 10, "covered": [True] * 8 + [False] * 2})
    said = " ".join(band_lines([source, source]))
    assert "Of 2 sources 2 are covered" in said
    assert "0.6 would be" in said
    assert "0.0 if all rows" in said


def test_an_older_tree_is_held_against_the_rate_of_a_row_else_against_its_step():
    """Today's step of 2 s is twice the measured one, which the older tree told right."""
    rows = pd.DataFrame({"mid_s": [2.0, 2.0, 2.0], "log_error": np.log([2.0, 2.0, 2.0])})
    rows["throughput"] = [np.nan, 10.0, np.nan]
    told = pd.DataFrame(
        {"step_mid_s": [1.0, 9.0, np.nan], "throughput_mid": [np.nan, 10.0, np.nan]}
    )
    before = errors_before(rows, told)
    assert before[:2].tolist() == pytest.approx([0.0, 0.0])
    assert line("some", before, rows.log_error).startswith("| some | 3 | 2 | 3 | 1.00 | 2.00 |")
