from __future__ import annotations

from datetime import date

from paceline.catalog import Catalog, Machine, find_device, load_catalog
from paceline.plan.goal import Goal
from paceline.plan.own_machines import electricity_usd_per_hour, host_power_w
from paceline.plan.places import find_places

CATALOG = load_catalog()


def test_a_board_draws_its_rated_power_and_a_workstation_more_than_its_card() -> None:
    board, card = (find_device(CATALOG, name) for name in ("orin nx", "rtx 4090"))
    assert host_power_w("edge") == 0
    assert host_power_w("laptop") < host_power_w()
    ratio = electricity_usd_per_hour(card, 1) / electricity_usd_per_hour(board, 1)
    assert ratio > card.tdp_w / board.tdp_w


def test_machines_of_ones_own_are_no_old_prices() -> None:
    machine = Machine(name="board", device_name="Jetson Orin NX 16GB", num_devices=1)
    catalog = Catalog(
        version="now", devices=CATALOG.devices, links=CATALOG.links, offers=(), machines=(machine,)
    )
    found = find_places(catalog, Goal(), today=date(2030, 1, 1))
    assert [place.offer.name for place in found.places] == ["board"]
    assert not found.ranks_stale_prices
