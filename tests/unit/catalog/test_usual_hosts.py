"""A host that an offer does not state is what other machines with its device have."""

from dataclasses import replace

import pytest

from paceline.app.api.planning import plan
from paceline.catalog.load import load_catalog
from paceline.catalog.usual_hosts import usual_host, with_usual_host

CATALOG = load_catalog()
STATED = [offer for offer in CATALOG.offers if offer.num_vcpus and offer.host_memory_bytes]
SILENT = [
    offer for offer in CATALOG.offers
    if not offer.num_vcpus and usual_host(CATALOG, offer.device_name).num_vcpus
]  # fmt: skip


@pytest.mark.parametrize("offer", STATED[::60], ids=lambda offer: offer.name)
def test_a_host_that_is_stated_stays(offer) -> None:
    assert with_usual_host(CATALOG, offer) == offer


@pytest.mark.parametrize("offer", SILENT[::4], ids=lambda offer: offer.name)
def test_each_device_has_the_middle_share_of_those_stated(offer) -> None:
    shares = [
        one.num_vcpus / one.num_devices
        for one in CATALOG.offers
        if one.device_name == offer.device_name and one.num_vcpus
    ]
    found = with_usual_host(CATALOG, offer).num_vcpus
    assert min(shares) - 1.0 <= found / offer.num_devices <= max(shares) + 1.0
    double = with_usual_host(CATALOG, replace(offer, num_devices=2.0 * offer.num_devices))
    assert double.num_vcpus == pytest.approx(2 * found, abs=1)


def test_nothing_is_taken_of_a_device_that_no_host_is_known_of() -> None:
    offer = replace(SILENT[0], device_name="of nobody")
    assert with_usual_host(CATALOG, offer) == offer


def test_a_machine_without_a_stated_host_feeds_no_faster_than_its_like() -> None:
    pinned = {"pin": "offer=coreweave/HGX H100", "epochs": 90}
    best = plan("resnet50", **pinned).choices[0]
    assert best.place.num_vcpus_per_node == usual_host(CATALOG, best.place.device).num_vcpus * 8
    assert any("does not state its host" in line for line in plan("resnet50", **pinned).assumptions)
