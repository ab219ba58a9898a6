"""Distance to measured devices, and the intervals that widen with it."""

import numpy as np
import pytest

from paceline.catalog import find_device, load_catalog
from paceline.predict import DeviceTable, builtin_calibration
from paceline.predict.intervals import log_sigma
from paceline.predict.nearness import coordinates, distances
from paceline.predict.prediction import Knowledge

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


def test_intervals_of_unmeasured_devices_widen_with_the_distance():
    near, far = device(), device(year=2035, tdp_w=50.0)
    sigma = [
        log_sigma(
            table(one), np.array([case], np.int8), np.zeros((1, 1)), builtin_calibration()
        )[0, 0]
        for case in (Knowledge.MEASURED, Knowledge.UNKNOWN)
        for one in (near, far)
    ]  # fmt: skip
    assert sigma[0] == sigma[1] < sigma[2] < sigma[3]


def test_the_oldest_cards_are_farther_from_those_of_today_than_these_from_one_another():
    names = ("Tesla K80 (one of two GPUs)", "A100 SXM4 80GB", "H100 SXM5 80GB")
    kepler, ampere, hopper = (find_device(load_catalog(), name) for name in names)
    assert (
        distances(table(kepler), coordinates(table(ampere, hopper)))[0]
        > distances(table(hopper), coordinates(table(ampere)))[0]
    )
