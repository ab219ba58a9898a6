"""How ripe the kernels of a device are: libraries get faster for some years after it appears.

A release that comes out with an architecture has few kernels for its matrix units and rough rules
for choosing among them; later ones have more and better. What streams through memory or runs on
vector units needs no such kernels. So products on matrix units gain a share for every year between
the first device of an architecture and the release that runs, up to a limit. Both dates are known
beforehand; the share is fitted (`paceline.predict.device_effects`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from functools import cache
from statistics import fmean

import numpy as np

from paceline.catalog.architectures import Generation
from paceline.shipped import shipped_rows
from paceline.trace.graph import FloatArray

#: Years after which kernels are ripe, and years at which they change nothing.
_RIPE_YEARS, _REFERENCE_YEARS = 4.0, 3.0
_DAYS_PER_YEAR = 365.25
_RELEASE = re.compile(
    r"\b(pytorch|torch|tensorflow|tf|jax|mxnet|paddle(?:paddle)?)[ =:/-]*v?(\d+(?:\.\d+)+)",
    re.IGNORECASE,
)
#: Names of releases in `framework_releases.csv`, where others are in use.
_CALLED = {"torch": "pytorch", "tf": "tensorflow", "paddlepaddle": "paddle"}
#: NVIDIA's containers are named after the year and month in which they appear.
_CONTAINERS = re.compile(r"\bngc\b|\bnvcr\b", re.IGNORECASE)
_YEAR_AND_MONTH = re.compile(r"(?<![\d.])(\d\d)\.(0[1-9]|1[0-2])(?![\d.])")


@cache
def release_year(framework: str) -> float | None:
    """Year, with its fraction, in which a named release came out; None where none is known.

    >>> round(release_year("PyTorch 2.4.0"), 1)
    2024.6
    >>> round(release_year("PyTorch NGC 20.01/20.10"), 1)  # the mean of its containers
    2020.4
    >>> release_year("TensorFlow") is None
    True
    """
    if _CONTAINERS.search(framework):
        months = _YEAR_AND_MONTH.findall(framework)
        tagged = [2000 + int(year) + (int(month) - 1) / 12 for year, month in months]
        return fmean(tagged) if tagged else None
    if (named := _RELEASE.search(framework)) is None:
        return None
    name = named.group(1).lower()
    parts = named.group(2).split(".")
    versions = (".".join(parts[:count]) for count in (3, 2))
    known = _release_years()
    years = (known.get((_CALLED.get(name, name), version)) for version in versions)
    return next((year for year in years if year is not None), None)


@cache
def newest_release_year() -> float:
    """When the newest release that is known came out: what a job runs that names none."""
    return max(_release_years().values())


def ripeness_years(generations: Sequence[Generation], release_years: FloatArray) -> FloatArray:
    """Years that kernels had to ripen beyond a reference, (num_devices, num_points).

    Zero where the release or the first device of the architecture is not known.

    Args:
        generations: Of each device.
        release_years: Year of the release that runs, NaN where not told, (num_points,).
    """
    started = first_years(generations)
    years = np.clip(release_years - started[:, None], 0.0, _RIPE_YEARS) - _REFERENCE_YEARS
    return np.where(np.isnan(years), 0.0, years)


def first_years(generations: Sequence[Generation]) -> FloatArray:
    """When the first device of each generation came out, (num_devices,); NaN where unknown."""
    return np.array([one.first_device_year or np.nan for one in generations])


@cache
def _release_years() -> dict[tuple[str, str], float]:
    return {
        (row["framework"], row["version"]): _as_year(date.fromisoformat(row["released_on"]))
        for row in shipped_rows("predict", "framework_releases.csv")
    }


def _as_year(day: date) -> float:
    return day.year + (day - date(day.year, 1, 1)).days / _DAYS_PER_YEAR
