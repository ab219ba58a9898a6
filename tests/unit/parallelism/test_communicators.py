"""Buffers of collectives: what a communicator holds of its device."""

from __future__ import annotations

import pytest

from paceline.catalog.load import load_catalog
from paceline.parallelism.collectives.communicators import communicator_bytes

LINKS = {link.name: link for link in load_catalog().links}


@pytest.mark.parametrize(
    ("link", "channels"), [("dgx1-v100", 12), ("dgx-a100", 24), ("dgx-h100-ring", 24)]
)
def test_channels_are_those_that_logs_show(link: str, channels: int) -> None:
    """NCCL_DEBUG=INFO prints `12 coll channels` on V100 and 24 on A100 and H100."""
    assert communicator_bytes(2, LINKS[link]) == channels * 12 * 2**20


def test_a_ring_has_two_neighbours_however_many_ranks_it_joins() -> None:
    link = LINKS["dgx-a100"]
    two, three, eight = (communicator_bytes(ranks, link) for ranks in (2, 3, 8))
    assert 2 * two == three == eight


def test_nothing_lies_on_a_device_that_is_alone_or_talks_through_its_host() -> None:
    assert communicator_bytes(1, LINKS["dgx-a100"]) == 0.0
    assert communicator_bytes(8, LINKS["host-staged"]) == communicator_bytes(8, None) == 0.0
