"""When releases of frameworks came out, and how people write their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache

from paceline.errors import UnknownNameError
from paceline.patterns import pattern
from paceline.shipped import shipped_rows
from paceline.values import dataclass

_HOURS_PER_YEAR = 8766
_RELEASE = pattern(
    r"\b(pytorch|torch|tensorflow|tf|jax|mxnet|paddle(?:paddle)?)[ =:/-]*v?(\d+(?:\.\d+)+)",
    re.IGNORECASE,
)
#: Names of packages, where others are in use.
_CALLED = {"pytorch": "torch", "tf": "tensorflow", "paddlepaddle": "paddle"}
#: NVIDIA's containers are named after the year and month in which they appear.
_CONTAINERS = pattern(r"\bngc\b|\bnvcr\b", re.IGNORECASE)
_YEAR_AND_MONTH = pattern(r"(?<![\d.])(\d\d\.(?:0[1-9]|1[0-2]))(?![\d.])")
_CONTAINER = "ngc"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDates:
    """Years, with their fraction, in which releases came out.

    Attributes:
        years: By ``package==release``.
    """

    years: Mapping[str, float]

    @property
    def newest(self) -> float:
        """Of the newest release on record."""
        return max(self.years.values())

    def year_of(self, libraries: Sequence[str]) -> float | None:
        """When libraries came out, the mean of several; None where none of them has dates.

        Args:
            libraries: As ``package==release``; ``ngc==YEAR.MONTH`` is a container.

        Raises:
            UnknownNameError: A library has dates, and this release of it has none.
        """
        dated = {name.partition("==")[0] for name in self.years}
        years = []
        for one in libraries:
            name, _, release = one.partition("==")
            if name == _CONTAINER:
                year, month = release.split(".")
                years.append(2000 + int(year) + (int(month) - 1) / 12)
            elif name in dated:
                if one not in self.years:
                    raise UnknownNameError.from_name(
                        "release", one, self.years, command="paceline stack --help"
                    )
                years.append(self.years[one])
        return sum(years) / len(years) if years else None

    def named_in(self, text: str) -> tuple[str, ...]:
        """Releases on record that a text names, as people write them.

        >>> shipped_release_dates().named_in("TensorFlow")
        ()
        """
        if _CONTAINERS.search(text):
            return tuple(f"{_CONTAINER}=={tag}" for tag in _YEAR_AND_MONTH.findall(text))
        if (named := _RELEASE.search(text)) is None:
            return ()
        name = named.group(1).lower()
        parts = named.group(2).split(".")
        written = (f"{_CALLED.get(name, name)}=={'.'.join(parts[:count])}" for count in (3, 2))
        return next(((one,) for one in written if one in self.years), ())


@cache
def shipped_release_dates() -> ReleaseDates:
    """The dates of ``data/releases.csv``."""
    return ReleaseDates(
        years={
            f"{_CALLED.get(row['framework'], row['framework'])}=={row['version']}": _as_year(
                date.fromisoformat(row["released_on"])
            )
            for row in shipped_rows("stack", "releases.csv")
        }
    )


def release_year(framework: str) -> float | None:
    """Year, with its fraction, in which a release came out; None where a text names none.

    >>> release_year("PyTorch") is None
    True
    """
    dates = shipped_release_dates()
    return dates.year_of(dates.named_in(framework))


def _as_year(day: date) -> float:
    return day.year + (day - date(day.year, 1, 1)).days * 24 / _HOURS_PER_YEAR
