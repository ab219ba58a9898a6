"""Distance to measured devices, and clocks beyond what a board sustains."""

import math

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.prediction.devices import DeviceTable
from paceline.prediction.uncertainty.device_distance import (
    clock_log_sigma,
    clock_power_excess,
    coordinates,
    distances,
)

from .passes import device


def table(*devices):
    return DeviceTable.from_devices(devices)


def test_a_measured_device_is_at_no_distance():
    one, other = device(), device("E", year=2023)
    assert distances(table(one), coordinates(table(one, other)))[0] == 0


def test_a_generation_counts_as_much_as_twice_the_power_per_operation():
    here = coordinates(table(device()))
    later = distances(table(device(year=2023)), here)[0]
    hotter = distances(table(device(tdp_w=800.0)), here)[0]
    assert later == pytest.approx(1.0)
    assert hotter == pytest.approx(1.0)


def test_an_unknown_fact_is_a_distance_and_no_error():
    here = coordinates(table(device()))
    assert distances(table(device(tdp_w=None)), here)[0] == pytest.approx(1.0)


def test_the_oldest_cards_are_farther_from_those_of_today_than_these_from_one_another():
    names = ("Tesla K80 (one of two GPUs)", "A100 SXM4 80GB", "H100 SXM5 80GB")
    kepler, ampere, hopper = (find_device(load_catalog(), name) for name in names)
    assert (
        distances(table(kepler), coordinates(table(ampere, hopper)))[0]
        > distances(table(hopper), coordinates(table(ampere)))[0]
    )


def test_a_clock_that_is_kept_asks_no_more_power_and_twice_the_clock_eight_times():
    kept, doubled = (device(base_clock_hz=1.41e9 / ratio) for ratio in (1.0, 2.0))
    assert clock_power_excess(table(kept, doubled)) == pytest.approx([0.0, 7.0])


def test_an_unknown_base_clock_lies_between_one_that_is_kept_and_a_board_short_of_power():
    kept, unknown, short = (device(base_clock_hz=clock) for clock in (1.41e9, None, 1.41e9 / 2.0))
    excess = clock_power_excess(table(kept, unknown, short))
    assert excess[0] < excess[1] < excess[2]


def test_a_clock_lies_between_base_and_listed_however_far_they_are_apart():
    short = device(base_clock_hz=1.41e9 / 4.0)
    assert clock_power_excess(table(short))[0] == pytest.approx(63.0)
    assert clock_log_sigma(table(short), 0.031)[0] == pytest.approx(math.log(4.0) / math.sqrt(12.0))
    near = device(base_clock_hz=1.41e9 / 1.2)
    assert clock_log_sigma(table(near), 0.031)[0] == pytest.approx(0.031 * (1.2**3 - 1.0))
