"""What electricity emits where a provider's machines stand."""

from __future__ import annotations

from functools import cache

from paceline.shipped import shipped_rows
from paceline.values import dataclass

_ANY_CLOUD = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A grid of electricity.

    Attributes:
        name: Where it is, as a sentence says it.
        g_per_kwh: Mean emissions of a year, in grams of CO2 equivalent for each kWh.
    """

    name: str
    g_per_kwh: float


def grid_of(cloud: str, region: str) -> Grid | None:
    """The grid of a provider's region; None where it is not known.

    Args:
        cloud: Of an offer.
        region: Likewise; marketplaces write the country.

    >>> grid_of("aws", "us-east-1"), grid_of("vast", "FR").name, grid_of("vast", "US")
    (Grid(name='Virginia and Ohio', g_per_kwh=343.48), 'France', None)
    """
    found = _grids()
    return found.get(f"{cloud}:{region}") or found.get(f"{_ANY_CLOUD}:{region}")


def clouds_with(region: str) -> tuple[str, ...]:
    """Providers that are known to have a region of that name, whether anything is priced there.

    >>> clouds_with("europe-north1"), clouds_with("FI")
    (('gcp',), ())
    """
    places = (place.partition(":") for place in _grids())
    return tuple(
        cloud for cloud, _, name in places if name == region.lower() and cloud != _ANY_CLOUD
    )


def cleanest_and_dirtiest() -> tuple[Grid, Grid]:
    """The ends of what is known."""
    grids = sorted(_grids().values(), key=lambda grid: grid.g_per_kwh)
    return grids[0], grids[-1]


@cache
def _grids() -> dict[str, Grid]:
    """By ``cloud:region``."""
    return {
        place: Grid(name=row["grid"], g_per_kwh=float(row["g_per_kwh"]))
        for row in shipped_rows("catalog", "grid_carbon.csv")
        for place in row["regions"].split()
    }
