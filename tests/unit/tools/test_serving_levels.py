"""Levels of engines: every source counts as one, and draws a line part of the way."""

import pytest
from accuracy_serving.levels import Residual, level_of, widths_of, without_each_source

GROUP = ("vllm", "nvidia")


def rows(source, log_ratio, count=4, line=0):
    return [
        Residual(log_ratio=log_ratio, source=source, line=line, group=GROUP) for _ in range(count)
    ]


def test_a_source_counts_once_however_many_rows_it_has():
    few, many = (level_of([*rows("a", 0.4, n), *rows("b", 0.0)], 0, GROUP) for n in (1, 900))
    assert few == pytest.approx(many)


def test_one_source_does_not_set_a_line_and_many_nearly_do():
    levels = [
        level_of([one for name in "abcdefgh"[:n] for one in rows(name, 1.0)], 0, GROUP)
        for n in (1, 3, 8)
    ]
    assert 0.5 < levels[0] < 0.8 < levels[1] < levels[2] < 1.0


def test_a_left_out_source_is_judged_by_the_others():
    found = [*rows("a", 0.0), *rows("b", 0.0), *rows("c", 0.9)]
    errors = {one.residual.source: one.log_error for one in without_each_source(found)}
    assert errors["c"] == pytest.approx(0.9)
    assert errors["a"] < 0.0


def test_a_line_of_one_source_is_wider_than_one_of_many():
    alone = [*rows("a", 1.5, line=0), *rows("b", -1.5, line=1)]
    agreed = [one for name in "cdef" for one in rows(name, 0.3, line=2)]
    widths = widths_of(list(without_each_source([*alone, *agreed])))
    assert widths[1] > 2 * widths[2]
    assert widths[0] == widths[1]
