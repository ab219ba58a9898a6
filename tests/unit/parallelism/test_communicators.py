"""Buffers of collectives: what a communicator holds of its device."""

from __future__ import annotations

import pytest

from paceline.catalog.load import load_catalog
from paceline.parallelism.collectives.communicators import (
    communicator_bytes,
    num_channels,
)

LINKS = {link.name: link for link in load_catalog().links}


@pytest.mark.parametrize(
    ("link", "channels"), [("dgx1-v100", 12), ("dgx-a100", 24), ("dgx-h100-ring", 24)]
)
def test_channels_are_those_that_logs_show(link: str, channels: int) -> None:
    """NCCL_DEBUG=INFO prints `12 coll channels` on V100 and 24 on A100 and H100."""
    assert communicator_bytes(2, num_channels(LINKS[link])) == channels * 12 * 2**20


def test_a_ring_has_two_neighbours_however_many_ranks_it_joins() -> None:
    two, three, eight = communicator_bytes([2, 3, 8], num_channels(LINKS["dgx-a100"]))
    assert 2 * two == three == eight


def test_nothing_lies_on_a_device_that_is_alone_or_talks_through_its_host() -> None:
    assert communicator_bytes(1, num_channels(LINKS["dgx-a100"])) == 0.0
    assert num_channels(LINKS["host-staged"]) == num_channels(None) == 0


@pytest.mark.parametrize("link", ["gaudi3-roce", "ici-v5p", "neuronlink3"])
def test_collectives_of_other_makers_are_not_those_of_nccl(link: str) -> None:
    assert num_channels(LINKS[link]) == 0
