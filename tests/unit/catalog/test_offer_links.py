from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.catalog import Machine, find_offer, load_catalog, machine_links, offer_links

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("offer", "device", "node", "host"),
    [
        ("aws/p4d.24xlarge", "dgx-a100", "aws-p4d", "pcie4-x16"),
        ("aws/p5.48xlarge", "dgx-h100-nvls", "aws-p5", "pcie5-x16"),
        ("aws/p3.16xlarge", "dgx1-v100", "ethernet-25g", "pcie3-x16"),
        ("aws/g5.12xlarge", "ws-pcie4", "efa-40g", "pcie4-x16"),
        ("azure/Standard_ND96isr_H100_v5", "dgx-h100-nvls", "azure-nd-h100", "pcie5-x16"),
        ("gcp/a3-highgpu-8g", "dgx-h100-nvls", "gcp-a3high", "pcie5-x16"),
        ("gcp/a3-highgpu-2g", "dgx-h100-ring", "ethernet-50g", "pcie5-x16"),
        ("gcp/tpu-v4-32", "ici-v4", None, "pcie3-x16"),
        ("lambda/gpu_1x_a100_sxm4", None, None, "pcie4-x16"),
    ],
)
def test_published_links(offer: str, device: str | None, node: str | None, host: str) -> None:
    links = offer_links(CATALOG, find_offer(CATALOG, offer))
    names = [link.name if link else None for link in (links.device, links.node, links.host)]
    assert names == [device, node, host]


def test_every_offer_answers_or_says_unknown() -> None:
    published = {link.name for link in CATALOG.links}
    for offer in CATALOG.offers:
        links = offer_links(CATALOG, offer)
        for link in (links.device, links.node):
            assert link is None or link.name in published or links.assumptions, offer.name
        if offer.num_devices <= 1:
            assert links.device is None, offer.name
        if offer.network_bytes_per_s is None:
            assert links.node is None or links.node.name in published, offer.name


def test_an_unknown_interconnect_is_the_conservative_one_and_says_so() -> None:
    offer = find_offer(CATALOG, "aws/p4d.24xlarge")
    guessed = offer_links(CATALOG, replace(offer, interconnect="unknown (host dependent)"))
    assert guessed.device.bytes_per_s < offer_links(CATALOG, offer).device.bytes_per_s
    assert any("taken to talk over PCIe" in line for line in guessed.assumptions)


def test_bridges_join_two_cards_only() -> None:
    two, four = (
        offer_links(CATALOG, find_offer(CATALOG, f"azure/Standard_NC{cores}ads_A100_v4"))
        for cores in (48, 96)
    )
    assert two.device.name == "nvlink-bridge-a100"
    assert four.device.kind == "pcie"


def test_a_named_link_of_an_own_machine_is_taken() -> None:
    machine = Machine(
        name="lab", device_name="GeForce RTX 3090", num_devices=2, interconnect="nvlink-bridge-a40"
    )
    assert machine_links(CATALOG, machine).device.name == "nvlink-bridge-a40"
    plain = machine_links(CATALOG, replace(machine, interconnect=None))
    assert plain.device.kind == "pcie"
    assert plain.assumptions
