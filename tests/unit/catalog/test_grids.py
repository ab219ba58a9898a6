"""What electricity emits where a provider's machines stand."""

from collections import Counter

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.naming.grids import cleanest_and_dirtiest, grid_of
from paceline.shipped import shipped_rows

ROWS = shipped_rows("catalog", "grid_carbon.csv")


def test_a_region_is_on_one_grid_and_every_grid_within_what_fuels_emit() -> None:
    places = Counter(place for row in ROWS for place in row["regions"].split())
    assert set(places.values()) == {1}
    # Lignite emits some 1,100 g/kWh (IPCC 2014, annex III), and nothing less than none.
    assert all(0 < float(row["g_per_kwh"]) < 1100 for row in ROWS)
    least, most = cleanest_and_dirtiest()
    assert least.g_per_kwh == min(float(row["g_per_kwh"]) for row in ROWS) < most.g_per_kwh


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_nearly_all_offers_of_hyperscalers_that_name_a_region_have_a_grid(cloud: str) -> None:
    offers = [one for one in load_catalog().offers if one.cloud == cloud and one.region]
    known = [one for one in offers if grid_of(cloud, one.region) is not None]
    assert len(known) >= 0.9 * len(offers)


def test_a_country_is_no_region_of_another_cloud() -> None:
    assert grid_of("vast", "US") is None
    assert grid_of("aws", "us-central1") is None
