"""Laws of Pareto fronts, against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.planning.search.pareto import pareto_front, thin_front

VALUES = st.floats(min_value=0.1, max_value=1e6)
PAIRS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=60)


def dominates(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] <= b[0] and a[1] <= b[1] and a != b


@given(PAIRS)
def test_front_is_what_brute_force_finds(pairs):
    cost, duration = np.array(pairs).T
    front = pareto_front(cost, duration)
    expected = {p for p in pairs if not any(dominates(q, p) for q in pairs)}
    assert {pairs[i] for i in front} == expected
    assert len(front) == len(expected)


@given(PAIRS)
def test_front_rises_in_cost_and_falls_in_duration(pairs):
    cost, duration = np.array(pairs).T
    front = pareto_front(cost, duration)
    assert (np.diff(cost[front]) > 0).all()
    assert (np.diff(duration[front]) < 0).all()


@given(PAIRS, st.integers(min_value=2, max_value=9))
def test_thinning_keeps_both_ends_and_the_limit(pairs, max_items):
    cost, duration = np.array(pairs).T
    front = pareto_front(cost, duration)
    thin = thin_front(front, duration, max_items=max_items)
    assert len(thin) <= max(max_items, 1)
    assert thin[0] == front[0]
    assert thin[-1] == front[-1]
    assert set(thin.tolist()) <= set(front.tolist())
