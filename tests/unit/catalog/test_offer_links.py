from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.catalog.entities import Machine
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_offer
from paceline.catalog.offer_links import joint_link, machine_links, named_link, offer_links

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


def test_an_unknown_interconnect_of_a_board_with_a_fabric_is_its_family_s_and_says_so() -> None:
    offer = find_offer(CATALOG, "aws/p4d.24xlarge")
    guessed = offer_links(CATALOG, replace(offer, interconnect="unknown (host dependent)"))
    assert guessed.device == offer_links(CATALOG, offer).device
    assert any("no source says" in line for line in guessed.assumptions)


def test_an_unknown_interconnect_of_a_card_is_the_conservative_one_and_says_so() -> None:
    offer = find_offer(CATALOG, "azure/Standard_NC48ads_A100_v4")
    guessed = offer_links(CATALOG, replace(offer, interconnect="unknown (host dependent)"))
    assert guessed.device.bytes_per_s < offer_links(CATALOG, offer).device.bytes_per_s
    assert any("taken to talk over PCIe" in line for line in guessed.assumptions)


@pytest.mark.parametrize(
    ("name", "kind", "rate"),
    [
        ("H100 SXM5 80GB", "nvlink", 450e9),
        ("H800 SXM5 80GB", "nvlink", 200e9),
        ("A800 SXM4 80GB", "nvlink", 200e9),
        ("Tesla V100 SXM2 32GB", "nvlink", 150e9),
        ("Instinct MI300X", "infinity-fabric", 448e9),
        ("TPU v4 (per chip)", "ici", 300e9),
        ("Gaudi 2 (HL-225)", "roce", 300e9),
        ("Trainium2 (per chip)", "neuronlink", 640e9),
        ("AMD EPYC 7763 (Milan)", "sockets", 41.6e9),
    ],
)
def test_no_board_with_a_fabric_falls_to_pcie_without_a_word(
    name: str, kind: str, rate: float
) -> None:
    found = machine_links(CATALOG, Machine(name="own", device_name=name, num_devices=8))
    assert found.device is not None
    assert (found.device.kind, found.device.bytes_per_s) == (kind, pytest.approx(rate, rel=0.05))
    assert name in found.assumptions[0]
    assert named_link(CATALOG, found.device.name) == found.device


def test_no_device_of_the_catalogue_talks_faster_than_its_fabric() -> None:
    for device in CATALOG.devices:
        if device.fabric_bytes_per_s is None:
            continue
        for count in (2, 4, 8):
            machine = Machine(name="own", device_name=device.name, num_devices=count)
            link = machine_links(CATALOG, machine).device
            assert link is not None
            assert link.bytes_per_s <= 1.05 * device.fabric_bytes_per_s, device.name
            assert machine_links(CATALOG, machine).assumptions


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("GeForce RTX 4090", "host-staged"),
        ("GeForce RTX 3090", "host-staged"),
        ("GeForce RTX 2080 Ti", "host-staged"),
        ("GeForce GTX 1080 Ti", "ws-pcie3"),
        ("RTX A6000", "ws-pcie4"),
    ],
)
def test_cards_without_peer_access_talk_through_their_host(name: str, link: str) -> None:
    machine = Machine(name="own", device_name=name, num_devices=4)
    found = machine_links(CATALOG, machine)
    assert found.device is not None
    assert found.device.name == link
    assert any("peer access" in said for said in found.assumptions) == (link == "host-staged")


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
    assert plain.device.name == "host-staged", "no bridge, no peer access"
    assert plain.assumptions


def own(name: str, device_name: str, **facts: object) -> Machine:
    return Machine(name=name, device_name=device_name, num_devices=1, **facts)  # type: ignore[arg-type]


def test_machines_meet_over_the_slower_of_their_networks() -> None:
    fast = own("fast", "A100 SXM4 80GB", network_bytes_per_s=25e9, network_kind="infiniband")
    slow = own("slow", "Tesla V100 SXM2 16GB", network_bytes_per_s=1.25e9)
    for pair in ((fast, slow), (slow, fast)):
        link = joint_link(CATALOG, *pair)
        assert link is not None
        assert (link.bytes_per_s, link.source.text) == (1.25e9, "slow, as its owner says")
    bare = own("bare", "A100 SXM4 80GB")
    assert joint_link(CATALOG, fast, bare) is joint_link(CATALOG, bare, fast) is None


def test_kinds_of_device_in_one_box_meet_over_the_slower_slot_whatever_its_network() -> None:
    """An A100 has PCIe 4, a V100 PCIe 3 (their datasheets)."""
    new, old = (
        own(name, name, box="tower", network_bytes_per_s=25e9)
        for name in ("A100 PCIe 40GB", "Tesla V100 PCIe 16GB")
    )
    for pair in ((new, old), (old, new)):
        link = joint_link(CATALOG, *pair)
        assert link is not None
        assert link.name == "ws-pcie3"
    alone = joint_link(CATALOG, new, replace(new, name="other"))
    assert alone is not None
    assert alone.name == "ws-pcie4"
    unknown = replace(old, device_name=None)
    assert joint_link(CATALOG, new, unknown) is None
    apart = joint_link(CATALOG, new, replace(old, box="other"))
    assert apart is not None
    assert apart.bytes_per_s == 25e9


def test_what_was_inferred_of_each_link_is_told() -> None:
    links = offer_links(CATALOG, find_offer(CATALOG, "aws/g5.12xlarge"))
    assert links.assumptions == (
        "devices whose link is not stated are taken to talk over PCIe (ws-pcie4): "
        "the source says `pcie`",
        "efa-40g between machines: listed rate, latency assumed for efa",
    )
    pair = replace(own("pair", "A100 PCIe 40GB"), num_devices=2)
    assert machine_links(CATALOG, pair).assumptions[0].endswith("the source says nothing")
