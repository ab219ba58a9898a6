"""Kernels of matrix units ripen between the first device of an architecture and a release."""

import dataclasses
from datetime import date
from itertools import pairwise

import numpy as np
import pytest

from paceline.catalog import load_catalog
from paceline.catalog.architectures import NO_GENERATION, generation_of, shipped_generations
from paceline.predict import DeviceTable, Points, builtin_calibration
from paceline.predict.kernels import evaluate_shapes, row_times
from paceline.predict.ripeness import newest_release_year, release_year, ripeness_years
from paceline.shipped import shipped_rows

from .passes import device, lowered, matmul, stream

#: Of the devices made here, compute capability 8.0.
FIRST_YEAR = 2020.0
_AMPERE = generation_of(shipped_generations(), "Ampere", "8.0")


def test_first_devices_are_those_of_the_catalogue():
    first: dict[str, int] = {}
    for one in load_catalog().devices:
        if one.compute_capability and one.year:
            year = first.get(one.compute_capability, one.year)
            first[one.compute_capability] = min(year, one.year)
    told = {one.code: one.first_device_year for one in shipped_generations() if one.code in first}
    assert told == first


def test_releases_of_a_framework_follow_one_another():
    dates: dict[str, list[date]] = {}
    for row in shipped_rows("predict", "framework_releases.csv"):
        if row["version"].startswith(("1.15.", "0.")) or row["framework"] == "tensorflow":
            continue
        dates.setdefault(row["framework"], []).append(date.fromisoformat(row["released_on"]))
    assert len(dates) > 2
    assert all(a < b for of_one in dates.values() for a, b in pairwise(of_one))


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("PyTorch 2.9.1", 2025.8),
        ("torch==1.13.1", 2022.8),
        ("TensorFlow 1.15.4 (tf_cnn_benchmarks)", 2020.7),
        ("TensorFlow 1.15.2", 2019.8),
        ("PyTorch (NGC 22.09/22.10)", 2022.7),
        ("tf 2.3", 2020.6),
    ],
)
def test_a_release_is_dated_by_its_name(text, year):
    assert release_year(text) == pytest.approx(year, abs=0.06)


@pytest.mark.parametrize("text", ["", "TensorFlow", "PyTorch 99.1", "CuDNN[R4]", "NGC container"])
def test_what_names_no_known_release_has_no_date(text):
    assert release_year(text) is None


def test_years_grow_with_the_release_and_stop_when_kernels_are_ripe():
    releases = np.array([2018.0, 2020.0, 2022.0, 2024.0, 2030.0])
    years = ripeness_years([_AMPERE], releases)[0]
    assert years[0] == years[1]
    assert years[3] == years[4]
    np.testing.assert_allclose(np.diff(years)[1:3], 2.0)


def test_nothing_is_known_of_other_makers_or_unnamed_releases():
    assert not ripeness_years([NO_GENERATION], np.array([2025.0])).any()
    assert not ripeness_years([_AMPERE], np.array([np.nan])).any()


def times_s(work, *release_years):
    """Device time of the first row at each release, with a gain of 10 % a year."""
    shipped = builtin_calibration()
    effects = shipped.constants["device_effects"] | {"product_log_per_year": -0.1}
    changed = dataclasses.replace(
        shipped, constants={**shipped.constants, "device_effects": effects}
    )
    size = len(release_years)
    where = Points(
        batch=np.full(size, 16.0), seq=np.ones(size), release_year=np.array(release_years)
    )
    table = DeviceTable.from_devices([device()])
    return row_times(work, evaluate_shapes(work.costs, where), table, changed).device_s[0, :, 0]


def test_products_gain_with_every_release_and_streams_do_not():
    products = times_s(lowered(matmul(4096, 4096, 4096)), FIRST_YEAR, FIRST_YEAR + 2)
    assert products[1] / products[0] == pytest.approx(np.exp(-0.2), rel=0.03)
    streams = times_s(lowered(stream(2**24)), FIRST_YEAR, FIRST_YEAR + 2)
    assert streams[0] == streams[1]


def test_an_unnamed_release_is_the_reference_and_no_release_the_newest():
    work = lowered(matmul(4096, 4096, 4096))
    unnamed, reference = times_s(work, np.nan, FIRST_YEAR + 3)
    assert unnamed == reference
    table = DeviceTable.from_devices([device()])
    points = {"batch": np.array([16.0]), "seq": np.ones(1)}
    newest = Points(**points, release_year=np.array([newest_release_year()]))
    one, other = (
        row_times(work, evaluate_shapes(work.costs, p), table, builtin_calibration()).device_s
        for p in (Points(**points), newest)
    )
    assert one.item() == other.item()


def test_shipped_kernels_do_not_unripen():
    assert builtin_calibration().constants["device_effects"]["product_log_per_year"] < 0
