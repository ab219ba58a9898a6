from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from paceline.catalog.entities import Catalog, Machine
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.planning.goal.goal import Goal
from paceline.planning.places.own_machines import (
    electricity_usd_per_hour,
    host_power_w,
    machine_power_w,
)
from paceline.planning.places.place_table import place_table
from paceline.planning.places.places import find_places

CATALOG = load_catalog()


def test_a_board_draws_its_rated_power_and_a_workstation_more_than_its_card() -> None:
    board, card = (find_device(CATALOG, name) for name in ("orin nx", "rtx 4090"))
    assert host_power_w("edge") == 0
    assert host_power_w("laptop") < host_power_w()
    ratio = electricity_usd_per_hour(card, 1) / electricity_usd_per_hour(board, 1)
    assert ratio > card.tdp_w / board.tdp_w


@pytest.mark.parametrize(
    ("name", "nameplate_w"),
    # Makers' data sheets; a busy node draws 60 to 90 % of its nameplate (ownership.csv).
    [("A100 SXM4 40GB", 6500.0), ("H100 SXM5 80GB", 10200.0), ("B200 SXM", 14300.0)],
)
def test_a_server_draws_as_much_of_its_nameplate_as_busy_nodes_do(name, nameplate_w) -> None:
    device = find_device(CATALOG, name)
    assert 0.6 <= machine_power_w(device, 8) / nameplate_w <= 0.9
    assert machine_power_w(device, 1) >= device.tdp_w + host_power_w()


def test_an_own_machine_warms_its_room_with_all_it_draws_and_a_rented_one_another() -> None:
    machine = Machine(name="desk", device_name="GeForce RTX 4090", num_devices=2)
    found = find_places(replace(CATALOG, machines=(machine,)), Goal(), today=date(2026, 11, 20))
    places = [place for place in found.places if place.device.name == machine.device_name]
    table = place_table(
        places, [places[0].device], [np.inf] * len(places), today=date(2026, 11, 20), setup_s=0.0
    )
    tdp_w = places[0].device.tdp_w
    for place, heat_w in zip(places, table.heat_w, strict=True):
        drawn_w = host_power_w() + place.offer.num_devices * tdp_w
        assert heat_w == (drawn_w if place.is_owned else 0.0)
    assert {place.is_owned for place in places} == {True, False}


def test_machines_of_ones_own_are_no_old_prices() -> None:
    machine = Machine(name="board", device_name="Jetson Orin NX 16GB", num_devices=1)
    catalog = Catalog(
        version="now", devices=CATALOG.devices, links=CATALOG.links, offers=(), machines=(machine,)
    )
    found = find_places(catalog, Goal(), today=date(2030, 1, 1))
    assert [place.offer.name for place in found.places] == ["board"]
    assert not found.ranks_stale_prices
