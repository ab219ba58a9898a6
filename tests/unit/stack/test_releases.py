"""Releases have dates, and people write their names in many ways."""

from datetime import date
from itertools import pairwise

import pytest

from paceline.errors import UnknownNameError
from paceline.shipped import shipped_rows
from paceline.stack.releases import release_year, shipped_release_dates


def test_releases_of_a_framework_follow_one_another():
    dates: dict[str, list[date]] = {}
    for row in shipped_rows("stack", "releases.csv"):
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


def test_a_text_names_releases_as_packages():
    dates = shipped_release_dates()
    assert dates.named_in("PyTorch 2.4.0") == ("torch==2.4",)
    assert dates.named_in("PyTorch NGC 20.01/20.10") == ("ngc==20.01", "ngc==20.10")


def test_libraries_without_dates_say_nothing_and_unknown_releases_are_refused():
    dates = shipped_release_dates()
    assert dates.year_of(["bitsandbytes==0.41"]) is None
    with pytest.raises(UnknownNameError, match="torch==99"):
        dates.year_of(["torch==99.0"])
