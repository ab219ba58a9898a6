"""Kernels of matrix units ripen between the first device of an architecture and a release."""

import dataclasses

import numpy as np
import pytest

from paceline.catalog.architectures import NO_GENERATION, generation_of, shipped_generations
from paceline.catalog.load import load_catalog
from paceline.model.graph.costs import Configuration
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernel_maturity import maturity_years
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.row_times import row_times
from paceline.prediction.prediction import Points

from .passes import device, lowered, matmul, stream

_AMPERE = generation_of(shipped_generations(), "Ampere", "8.0")


def test_first_devices_are_those_of_the_catalogue():
    first: dict[str, int] = {}
    for one in load_catalog().devices:
        if one.compute_capability and one.year:
            year = first.get(one.compute_capability, one.year)
            first[one.compute_capability] = min(year, one.year)
    told = {one.code: one.first_device_year for one in shipped_generations() if one.code in first}
    assert told == first


def test_years_grow_with_the_release_and_stop_when_kernels_are_ripe():
    releases = np.array([2018.0, 2020.0, 2022.0, 2024.0, 2030.0])
    years = maturity_years([_AMPERE], releases)[0]
    assert years[0] == years[1]
    assert years[3] == years[4]
    np.testing.assert_allclose(np.diff(years)[1:3], 2.0)


def test_nothing_is_known_of_other_makers_or_unnamed_releases():
    assert not maturity_years([NO_GENERATION], np.array([2025.0])).any()
    assert not maturity_years([_AMPERE], np.array([np.nan])).any()


def times_s(work, *libraries):
    """Device time of the first row with each release, with a gain of 10 % a year."""
    shipped = builtin_calibration()
    effects = shipped.constants["device_effects"] | {"product_log_per_year": -0.1}
    changed = dataclasses.replace(
        shipped, constants={**shipped.constants, "device_effects": effects}
    )
    where, table = Points.of([16], seq=1), DeviceTable.from_devices([device()])
    shapes = evaluate_shapes(work.costs, where)
    return [
        row_times(
            dataclasses.replace(work, configuration=Configuration(libraries=one)),
            shapes, table, changed,
        ).device_s.item()
        for one in libraries
    ]  # fmt: skip


def test_products_gain_with_every_release_and_streams_do_not():
    releases = ("torch==1.7",), ("torch==1.13",)
    dates = builtin_calibration().releases
    gained = dates.year_of(releases[1]) - dates.year_of(releases[0])
    products = times_s(lowered(matmul(4096, 4096, 4096)), *releases)
    assert products[1] / products[0] == pytest.approx(np.exp(-0.1 * gained), rel=0.03)
    streams = times_s(lowered(stream(2**24)), *releases)
    assert streams[0] == streams[1]


def test_a_job_that_names_no_release_runs_the_newest():
    dates = builtin_calibration().releases
    newest = max(dates.years, key=lambda name: dates.years[name])
    unnamed, named = times_s(lowered(matmul(4096, 4096, 4096)), (), (newest,))
    assert unnamed == named


def test_shipped_kernels_do_not_unripen():
    assert builtin_calibration().constants["device_effects"]["product_log_per_year"] < 0
