from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.parallelism.links_of_tests import make_link

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import DoesNotFitError
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.memory.memory_fit import MEMORY_CONFIDENCE, Z_95, quantile_bytes
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planning.decisions.device_counts import BatchRule, scaling_curve
from paceline.simulation.job import Job

PEAKS = st.tuples(st.floats(1e6, 1e12), st.floats(1.0, 3.0))


@given(peak=PEAKS, first=st.floats(0.01, 0.99), second=st.floats(0.01, 0.99))
def test_more_certainty_takes_no_less_memory(peak, first, second) -> None:
    mid, ratio = peak
    low, high = (quantile_bytes(mid, mid * ratio, c) for c in sorted((first, second)))
    assert low <= high


@given(peak=PEAKS)
def test_the_bounds_are_those_that_are_predicted(peak) -> None:
    mid, ratio = peak
    found = [float(quantile_bytes(mid, mid * ratio, chance)) for chance in (0.5, 0.95)]
    assert found == pytest.approx([mid, mid * ratio], rel=1e-9)


def test_the_chance_is_that_of_a_logarithm_that_is_normal() -> None:
    """Of a million draws, nine in ten stay within the bound of nine in ten."""
    mid, sigma = 8e9, 0.05
    drawn = mid * np.exp(sigma * np.random.default_rng(0).standard_normal(1_000_000))
    bound = quantile_bytes(mid, mid * np.exp(Z_95 * sigma))
    assert (drawn <= bound).mean() == pytest.approx(MEMORY_CONFIDENCE, abs=2e-3)


@pytest.mark.parametrize("text", [None, "dp8", "dp8/mb4", "dp4.tp2", "pp2.dp4@1f1b/mb4"])
def test_a_curve_holds_what_a_device_has_room_for_and_no_more(text: str | None) -> None:
    job = load_workload("gpt2")
    device = find_device(load_catalog(), "H100 SXM5 80GB")
    on = Cluster(device=device, devices_per_node=8, device_link=make_link(), node_link=make_link())

    def needed_bytes(memory_bytes: float) -> float:
        filled = replace(device, memory_bytes=memory_bytes, usable_memory_bytes=None)
        point = scaling_curve(
            Job(workload=job), replace(on, device=filled), counts=(8,),
            batch=BatchRule(global_batch=64),
            strategy=None if text is None else Strategy.parse(text),
        ).points[0]  # fmt: skip
        return point.memory_bytes

    needed = needed_bytes(1e12)
    assert needed_bytes(needed * (1 + 1e-9)) == pytest.approx(needed)
    if text is None:
        assert needed_bytes(needed * (1 - 1e-9)) < needed
    else:
        with pytest.raises(DoesNotFitError):
            needed_bytes(needed * (1 - 1e-9))
