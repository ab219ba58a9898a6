from __future__ import annotations

import pytest

from paceline.catalog import find_device, find_offer, load_catalog, offered_device, share_of_device

CATALOG = load_catalog()


def test_shares_of_a_device_add_up_to_it() -> None:
    whole = find_device(CATALOG, "a10")
    parts = [share_of_device(whole, share) for share in (0.25, 0.75)]
    assert sum(p.memory_bytes for p in parts) == whole.memory_bytes
    assert sum(p.peak_flop_per_s["fp16"] for p in parts) == whole.peak_flop_per_s["fp16"]
    assert sum(p.tdp_w for p in parts) == whole.tdp_w


def test_a_cpu_offer_has_its_cores_and_the_memory_of_its_machine() -> None:
    offer = find_offer(CATALOG, "aws/c7g.4xlarge")
    device = offered_device(CATALOG, offer)
    socket = find_device(CATALOG, "graviton3")
    assert device.num_sms == 16
    assert device.memory_bytes == offer.host_memory_bytes
    assert device.peak_flop_per_s["fp32"] == pytest.approx(socket.peak_flop_per_s["fp32"] / 4)


def test_a_whole_device_is_the_one_of_the_catalogue() -> None:
    offer = find_offer(CATALOG, "aws/p4d.24xlarge")
    assert offered_device(CATALOG, offer) is find_device(CATALOG, "A100 SXM4 40GB")
