from __future__ import annotations

import itertools

import pytest

from paceline.parallel import sharded_memory_bytes

#: The paper's 7.5 billion parameters: 2 + 2 + 12 bytes each.
STATE = {"parameter_bytes": 15e9, "gradient_bytes": 15e9, "optimizer_state_bytes": 90e9}


@pytest.mark.parametrize(
    ("sharding", "expected_gb"), [("none", 120.0), ("zero1", 31.4), ("zero2", 16.6)]
)
def test_the_figures_of_the_zero_paper(sharding, expected_gb) -> None:
    """Figure 1 of Rajbhandari et al. 2020: 7.5 B parameters on 64 devices."""
    found = sharded_memory_bytes(memory_bytes=120e9, num_ranks=64, sharding=sharding, **STATE)
    assert float(found) / 1e9 == pytest.approx(expected_gb, abs=0.05)


def test_zero3_adds_only_the_gathered_blocks_to_the_paper() -> None:
    found = sharded_memory_bytes(memory_bytes=120e9, num_ranks=64, sharding="zero3", **STATE)
    assert float(found) / 1e9 == pytest.approx(1.9 + 15 / 16, abs=0.05)


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "zero3"])
def test_one_rank_needs_what_one_device_needs(sharding) -> None:
    for view in (True, False):
        found = sharded_memory_bytes(
            memory_bytes=200e9, num_ranks=1, sharding=sharding, has_bucket_view=view, **STATE
        )
        assert float(found) == 200e9


def test_more_sharding_never_needs_more() -> None:
    levels = [
        sharded_memory_bytes(memory_bytes=200e9, num_ranks=[2, 8, 64], sharding=s, **STATE)
        for s in ("none", "zero1", "zero2", "zero3")
    ]
    for less, more in itertools.pairwise(levels):
        assert (more <= less).all()


def test_buckets_without_view_are_a_second_copy_of_the_gradients() -> None:
    found = sharded_memory_bytes(memory_bytes=120e9, num_ranks=2, has_bucket_view=False, **STATE)
    assert float(found) == 135e9
