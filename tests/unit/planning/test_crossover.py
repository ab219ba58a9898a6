from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.planning.explain.crossover import (
    JobPlace,
    ServingPlace,
    job_crossover_samples,
    serving_crossover_requests_per_s,
    serving_usd_per_month,
)

CPU = ServingPlace(name="cpu", requests_per_s=20, usd_per_hour=0.145)
GPU = ServingPlace(name="gpu", requests_per_s=900, usd_per_hour=0.526)

places = st.builds(
    ServingPlace,
    name=st.just("x"),
    requests_per_s=st.floats(1, 1000),
    usd_per_hour=st.floats(0.01, 10),
)
jobs = st.builds(
    JobPlace,
    name=st.just("x"),
    s_per_sample=st.floats(1e-5, 1),
    setup_s=st.floats(0, 5000),
)


def job_time_s(place: JobPlace, num_samples: float) -> float:
    return place.setup_s + num_samples * place.s_per_sample


def test_a_cpu_is_enough_up_to_the_rate_where_a_fourth_is_needed() -> None:
    """3 CPUs cost 0.435 USD an hour, 4 cost 0.58: more than the GPU's 0.526."""
    assert serving_crossover_requests_per_s(CPU, GPU) == pytest.approx(60)
    assert serving_usd_per_month(CPU, 60) < serving_usd_per_month(GPU, 60)
    assert serving_usd_per_month(CPU, 61) > serving_usd_per_month(GPU, 61)


@given(first=places, second=places)
def test_below_the_crossover_the_first_place_never_costs_more(
    first: ServingPlace, second: ServingPlace
) -> None:
    rate = serving_crossover_requests_per_s(first, second)
    if rate is None:
        assert serving_usd_per_month(first, 1e-9) > serving_usd_per_month(second, 1e-9)
        return
    for share in np.linspace(0.01, 1, 50):
        at = share * min(rate, 1e4)
        own, other = serving_usd_per_month(first, at), serving_usd_per_month(second, at)
        assert own <= other * (1 + 1e-9)
    if math.isfinite(rate) and rate / first.requests_per_s < 100:
        above = rate * (1 + 1e-5)
        assert serving_usd_per_month(first, above) > serving_usd_per_month(second, above)


@given(near=jobs, far=jobs, share=st.floats(0, 3))
def test_up_to_the_crossover_the_near_place_is_as_good(
    near: JobPlace, far: JobPlace, share: float
) -> None:
    crossing = job_crossover_samples(near, far)
    at = share * (1e9 if crossing is None else crossing)
    gain = job_time_s(far, at) - job_time_s(near, at)
    tolerance = 1e-6 * (job_time_s(far, at) + job_time_s(near, at) + 1)
    if crossing is None or (crossing > 0 and share <= 1):
        assert gain >= -tolerance
    elif share > 1:
        assert gain <= tolerance


def test_the_own_machine_is_enough_for_small_jobs() -> None:
    """An MNIST-size network: 60 s on the laptop, or 10 min of renting first."""
    laptop = JobPlace(name="laptop", s_per_sample=1e-4, setup_s=0)
    cloud = JobPlace(name="cloud", s_per_sample=1e-5, setup_s=600)
    samples = job_crossover_samples(laptop, cloud)
    assert samples == pytest.approx(600 / 9e-5)
    assert samples > 60_000 * 10
