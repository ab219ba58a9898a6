from __future__ import annotations

import math

import pytest

from paceline.watch.events import StepRow
from paceline.watch.steps import rounds, step_times

_MS = 1_000_000


def _row(number: int, end_ms: float, *, wait_ms: float = 0.0) -> StepRow:
    return StepRow(
        optimizer=number, ended_ns=int(end_ms * _MS), wait_ns=int(wait_ms * _MS),
        forward_ns=_MS, backward_ns=2 * _MS, update_ns=_MS, num_batches=1, num_backwards=1,
        losses=(1.0,),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("optimizers", "num_steps"),
    [([0] * 7, 7), ([0, 1] * 5, 5), ([0, 0, 0, 0, 0, 1] * 4, 4), ([1, 0] * 3, 3), ([], 0)],
)
def test_a_step_is_one_round_of_all_optimizers(optimizers: list[int], num_steps: int):
    rows = [_row(number, at) for at, number in enumerate(optimizers)]
    found = rounds(rows)
    assert [row for one in found for row in one] == rows
    assert len(found) - num_steps in (0, 1)


def test_times_are_between_ends_and_parts_add_up_to_the_mean():
    times = step_times([_row(0, 10.0 * n, wait_ms=3.0) for n in range(30)])
    assert times is not None
    assert math.isclose(times.step_s, 0.010)
    assert math.isclose(times.mean_s, 0.010)
    assert math.isclose(times.wait_s, 0.003)
    assert math.isclose(times.rest_s, 0.003)
    assert times.num_steps == 30


def test_the_first_steps_are_not_measured():
    ends = [0.0, 500.0, 900.0, *(900.0 + 10 * n for n in range(1, 30))]
    times = step_times([_row(0, end) for end in ends])
    assert times is not None
    assert math.isclose(times.high_s, 0.010)


@pytest.mark.parametrize("between_ms", [0.0, -5.0])
def test_steps_in_which_no_time_passes_have_no_times(between_ms: float):
    assert step_times([_row(0, 1000.0 + between_ms * n) for n in range(30)]) is None


def test_recent_steps_follow_a_change():
    ends = [10.0 * n for n in range(50)] + [490.0 + 30 * n for n in range(1, 60)]
    rows = [_row(0, end) for end in ends]
    recent, every = step_times(rows, is_recent=True), step_times(rows)
    assert recent is not None
    assert every is not None
    assert math.isclose(recent.step_s, 0.030)
    assert recent.mean_s > every.mean_s


def test_one_step_has_no_time():
    assert step_times([_row(0, 1.0)]) is None
