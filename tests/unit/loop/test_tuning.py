"""How many threads feed: from the model, then from trials that must repeat."""

from __future__ import annotations

import pytest

from paceline.loop.feeding.filling import NOTHING, Spent, added
from paceline.loop.feeding.tuning import Cost, Tuner, cost_of, enough_threads, expected_per_s

CORES = 2


class _Host:
    """Threads on a stand-in host: samples per second are a function of their number."""

    def __init__(self, rate_of, spent: Spent) -> None:
        self.rate_of, self._a_window, self.spent = rate_of, spent, NOTHING
        self.now = self.num_filled = 0.0
        self.num_threads, self.history = CORES, []

    def resize(self, number: int) -> None:
        self.num_threads = number
        self.history.append(number)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.spent = added(self.spent, self._a_window)
        self.num_filled += seconds * self.rate_of(self.num_threads, self.now)


def _spent(work_s: float, wait_s: float, around_s: float = 0.0) -> Spent:
    return Spent(100, 100 * wait_s, 0.0, 100 * work_s, 100 * work_s, 100 * around_s)


def _tuned(rate_of, spent: Spent, *, waited_s: float = 0.1, num_windows: int = 12) -> Tuner:
    host = _Host(rate_of, spent)
    tuner = Tuner(host, CORES, clock=lambda: host.now)
    for _ in range(5 * num_windows):
        host.pass_time(0.1)
        tuner.after_batch(waited_s)
    return tuner


def _by_model(work_s: float, wait_s: float):
    return lambda number, _: min(number / (work_s + wait_s), CORES / work_s)


@pytest.mark.parametrize(("work_s", "wait_s"), [(1e-3, 0.0), (1e-3, 4e-3), (1e-3, 2e-2)])
def test_the_model_keeps_all_cores_busy(work_s: float, wait_s: float) -> None:
    rate_of, spent = _by_model(work_s, wait_s), _spent(work_s, wait_s)
    number = enough_threads(cost_of(spent), CORES)
    assert rate_of(number, 0) == pytest.approx(CORES / work_s)
    assert expected_per_s(cost_of(spent), number, CORES) == pytest.approx(CORES / work_s)
    found = _tuned(rate_of, spent).choice
    assert found.num_threads <= number
    assert found.measured_per_s == pytest.approx(CORES / work_s)
    assert rate_of(found.num_threads, 0) == pytest.approx(CORES / work_s)


def test_cores_that_sleep_between_samples_are_read_again_when_they_do_not() -> None:
    """On idle cores a sample takes 2 ms, and half of that on busy ones."""

    def spent_of(number: int) -> Spent:
        return _spent(2e-3 if number <= CORES else 1e-3, 16e-3)

    host = _Host(_by_model(1e-3, 16e-3), NOTHING)
    tuner = Tuner(host, CORES, clock=lambda: host.now)
    for _ in range(40):
        host._a_window = spent_of(host.num_threads)
        host.pass_time(0.1)
        tuner.after_batch(0.1)
    assert host.history[0] == enough_threads(Cost(2e-3, 16e-3), CORES) < 0.6 * CORES * 17
    assert tuner.choice.measured_per_s == pytest.approx(CORES / 1e-3)


def test_what_the_queue_costs_counts_as_work() -> None:
    assert expected_per_s(cost_of(_spent(9e-4, 0.0, 1e-4)), 3, CORES) == pytest.approx(2000)


def test_the_first_batch_in_which_all_is_new_is_not_learned_from() -> None:
    host = _Host(_by_model(1e-3, 0.0), _spent(1e-3, 0.0))
    host.spent = _spent(1.0, 5.0)
    tuner = Tuner(host, CORES, clock=lambda: host.now)
    for _ in range(3):
        tuner.after_batch(0.1)
        host.pass_time(0.1)
    assert tuner.choice.expected_per_s == pytest.approx(2000)


def test_waiting_for_the_interpreter_is_not_storage() -> None:
    late = Spent(100, 0.1, 0.02, 0.3, 0.1)
    assert enough_threads(cost_of(late), CORES) == CORES + 1


def test_one_window_that_others_disturbed_moves_nothing() -> None:
    def rate_of(number: int, now: float) -> float:
        return (2000 if number >= 3 else 1800) * (0.5 if 0.1 < now < 0.55 else 1)

    assert _tuned(rate_of, _spent(1e-3, 0.0)).choice.num_threads == 3


def test_more_threads_are_kept_where_they_give_more_twice() -> None:
    found = _tuned(lambda number, _: 400 * number, _spent(1e-3, 0.0)).choice
    assert (found.num_threads, found.measured_per_s) == (4, pytest.approx(1600))


def test_a_consumer_that_does_not_wait_ends_the_trials() -> None:
    tuner = _tuned(_by_model(1e-3, 0.0), _spent(1e-3, 0.0), waited_s=0.0)
    assert tuner.choice.num_threads == tuner.num_threads == 3
