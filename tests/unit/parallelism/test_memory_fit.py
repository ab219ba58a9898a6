"""The chance that a job fits: laws, and the bounds that it must agree with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration, Peaks
from paceline.model.reading.load import load_workload
from paceline.parallelism.memory.memory_fit import (
    Z_95,
    chance_to_fit,
    peak_log_sigma,
    quantile_bytes,
)
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate

PEAKS = (st.floats(1e6, 1e12), st.floats(1.01, 4.0))


@given(*PEAKS, st.floats(0.5, 0.99))
def test_what_suffices_at_a_chance_fits_at_that_chance(mid: float, spread: float, chance: float):
    limit = float(quantile_bytes(mid, mid * spread, chance))
    assert chance_to_fit(limit, mid, mid * spread) == pytest.approx(chance, abs=1e-9)


@given(*PEAKS, st.floats(1e6, 1e12), st.floats(1.0, 3.0))
def test_more_memory_never_fits_less_often(mid: float, spread: float, limit: float, more: float):
    less, most = (chance_to_fit(size, mid, mid * spread) for size in (limit, limit * more))
    assert 0.0 <= less <= most <= 1.0


@pytest.mark.parametrize("text", ["dp1", "dp8", "dp8+zero3", "pp2.dp4/mb4", "tp4"])
def test_what_is_known_less_surely_spreads_more_about_the_same_median(text: str) -> None:
    """On every road, and by so much that the chance of the bound is what the table says."""
    known: tuple[Peaks, ...] = ("measured", "derived", "lengths", "rough")
    steps = simulate([job(one, text) for one in known], [machine(text)] * len(known))
    assert np.ptp(steps.memory_mid_bytes) == 0.0
    assert (np.diff(steps.memory_high_bytes) >= 0).all()
    assert steps.memory_high_bytes[-1] > steps.memory_high_bytes[0]
    assert (np.diff(steps.memory_low_bytes) <= 0).all()
    for row, one in enumerate(known):
        mid, high = steps.memory_mid_bytes[row], steps.memory_high_bytes[row]
        assert high >= mid * math.exp(Z_95 * peak_log_sigma(one)) * (1 - 1e-12)


@pytest.mark.parametrize("text", ["dp1", "dp8", "dp8+zero3", "pp2.dp4/mb4", "tp4"])
def test_parameters_and_optimizer_state_are_a_part_of_every_peak(text: str) -> None:
    """Twelve bytes of FP32 Adam without gradients; tensor ranks have the embedding whole."""
    steps = simulate([job("derived", text)], [machine(text)])
    whole, ranks = 12.0 * 124_439_808, {"dp8+zero3": 8, "tp4": 4, "pp2.dp4/mb4": 2}.get(text, 1)
    kept = float((steps.parameter_bytes + steps.optimizer_state_bytes)[0])
    most = whole if "p4" in text and "dp8" not in text else whole / ranks
    assert 0.99 * whole / ranks < kept < 1.01 * most
    assert kept < steps.memory_mid_bytes[0]


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_what_lasts_of_a_drivers_figure_is_known_more_surely(one: float, other: float) -> None:
    less, more = (peak_log_sigma("driver", share) for share in sorted((one, other)))
    assert less >= more >= peak_log_sigma("derived", one) == peak_log_sigma("derived", other)


def job(peaks: Peaks, text: str) -> Job:
    return Job(
        workload=load_workload("gpt2"), configuration=Configuration(peaks=peaks),
        strategy=Strategy.parse(text), batch=8,
    )  # fmt: skip


def machine(text: str) -> Machine:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    return Machine.of(
        find_device(catalog, "H100 SXM5 80GB"), Strategy.parse(text).num_ranks,
        devices_per_node=8, device_link=links["dgx-h100-nvls"], node_link=links["dgx-h100-ib"],
    )  # fmt: skip


def test_a_peak_that_is_known_exactly_fits_or_does_not() -> None:
    assert [chance_to_fit(limit, 8e9, 8e9) for limit in (7e9, 8e9)] == [0.0, 1.0]
    assert math.isclose(chance_to_fit(8e9, 8e9, 9e9), 0.5)
