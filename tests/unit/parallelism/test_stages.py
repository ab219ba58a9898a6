from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidInputError
from paceline.parallelism.schedule.stages import balanced_cuts, even_cuts, per_stage


def bottleneck(cost: np.ndarray, cuts) -> float:
    return float(per_stage(cost, np.array(cuts)).max())


@given(st.lists(st.floats(0.01, 10.0), min_size=1, max_size=9), st.integers(1, 9))
def test_no_other_cut_is_better(cost, num_stages) -> None:
    if num_stages > len(cost):
        num_stages = len(cost)
    block_cost = np.array(cost)
    best = min(
        bottleneck(block_cost, (0, *rest))
        for rest in itertools.combinations(range(1, len(cost)), num_stages - 1)
    )
    cuts = balanced_cuts(block_cost, num_stages)
    assert len(cuts) == num_stages
    assert (np.diff(cuts) > 0).all()
    assert bottleneck(block_cost, cuts) == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("num_stages", [2, 3, 4, 5])
def test_no_other_cut_of_many_random_models_is_better(num_stages) -> None:
    """As above, of costs that are as different as blocks are: one that is dear may be the first."""
    costs = np.random.default_rng(num_stages).uniform(0.01, 10.0, (150, 8))
    for cost in costs:
        best = min(
            bottleneck(cost, (0, *rest))
            for rest in itertools.combinations(range(1, 8), num_stages - 1)
        )
        found = bottleneck(cost, balanced_cuts(cost, num_stages))
        assert found == pytest.approx(best, rel=1e-8)


def test_layers_divide_evenly_with_the_ends_attached() -> None:
    names = ("embedding", *(f"layers.{i}" for i in range(8)), "norm", "head")
    assert even_cuts(names, 4).tolist() == [0, 3, 5, 7]


def test_what_cannot_be_cut_says_so() -> None:
    with pytest.raises(InvalidInputError, match="more than the model's 3 blocks"):
        balanced_cuts(np.ones(3), 4)
    with pytest.raises(InvalidInputError, match="8 layers do not divide into 3"):
        even_cuts(tuple(f"layers.{i}" for i in range(8)), 3)
