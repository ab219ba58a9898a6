from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.unit.parallel.links_of_tests import (
    ETHERNET,
    INFINIBAND,
    NOTHING,
    NVLINK,
    PCIE,
    SWITCH,
    make_link,
)

from paceline.parallel import RankGroup, all_gather_s, all_reduce_s, reduce_scatter_s
from paceline.parallel.collectives import collective_s, exchange_tokens_s
from paceline.parallel.links import COLLECTIVES, LinkTable, load_coefficients

SIZES = (0.0, 8.0, 16e3, 1e6, 25e6, 1e9, 16e9)


def group(ranks: float, per_node: float, device: LinkTable, node: LinkTable) -> RankGroup:
    return RankGroup.of(ranks, per_node, device, node)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_one_rank_costs_nothing(name) -> None:
    assert collective_s(name, 1e9, group(1, 8, NOTHING, NOTHING))[0] == 0.0


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_larger_message_is_never_faster(name) -> None:
    for ranks, per_node in ((2, 8), (8, 8), (64, 8), (16, 1)):
        times = [
            collective_s(name, s, group(ranks, per_node, SWITCH, INFINIBAND))[0] for s in SIZES
        ]
        assert all(b >= a > 0 for a, b in itertools.pairwise(times))


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_faster_link_is_never_slower(name) -> None:
    slow, fast = (LinkTable.from_links([make_link(bytes_per_s=b)]) for b in (100e9, 200e9))
    for size in SIZES:
        assert (
            collective_s(name, size, group(8, 8, fast, NOTHING))[0]
            <= collective_s(name, size, group(8, 8, slow, NOTHING))[0]
        )


def test_all_reduce_approaches_twice_the_message_over_the_rate() -> None:
    size = 1e13
    rate = NVLINK.bytes_per_s[0] * np.exp(
        load_coefficients().log_efficiency[NVLINK.kind_row[0], 0, -1, -1]
    )
    seconds = all_reduce_s(size, group(1000, 1000, NVLINK, NOTHING))[0]
    assert seconds == pytest.approx(2 * size / rate, rel=2e-3)


def test_all_reduce_moves_the_bytes_of_a_scatter_and_a_gather() -> None:
    ring = LinkTable.from_links([make_link(kind="generic", name="generic")])
    members = group(8, 8, ring, NOTHING)
    parts = reduce_scatter_s(1e12, members) + all_gather_s(1e12, members)
    assert all_reduce_s(1e12, members)[0] == pytest.approx(parts[0], rel=1e-3)


def test_the_switch_helps_eight_and_never_hurts() -> None:
    for size in SIZES:
        with_switch = all_reduce_s(size, group(8, 8, SWITCH, NOTHING))[0]
        assert with_switch <= all_reduce_s(size, group(8, 8, NVLINK, NOTHING))[0]
    assert (
        all_reduce_s(1e9, group(8, 8, SWITCH, NOTHING))[0]
        < 0.9 * all_reduce_s(1e9, group(8, 8, NVLINK, NOTHING))[0]
    )


def test_small_messages_grow_with_the_logarithm_between_nodes() -> None:
    times = [all_reduce_s(8, group(8 * m, 8, SWITCH, INFINIBAND))[0] for m in (128, 256, 512, 1024)]
    steps = np.diff(times)
    assert np.allclose(steps, steps[0])


def test_a_missing_link_takes_for_ever_only_if_crossed() -> None:
    assert np.isfinite(all_reduce_s(1e6, group(8, 8, NVLINK, NOTHING))[0])
    assert np.isinf(all_reduce_s(1e6, group(16, 8, NVLINK, NOTHING))[0])
    assert np.isinf(all_reduce_s(1e6, group(8, 8, NOTHING, INFINIBAND))[0])
    assert np.isfinite(all_reduce_s(1e6, group(8, 1, NOTHING, INFINIBAND))[0])


def test_siblings_share_the_network() -> None:
    alone = RankGroup.of(4, 1, NVLINK, INFINIBAND)
    shared = RankGroup.of(4, 1, NVLINK, INFINIBAND, node_share_frac=1 / 8)
    assert all_reduce_s(1e9, shared)[0] == pytest.approx(8 * all_reduce_s(1e9, alone)[0], rel=0.02)


def test_links_rank_as_everybody_knows() -> None:
    order = [
        all_reduce_s(100e6, members)[0]
        for members in (
            group(8, 8, SWITCH, NOTHING),
            group(8, 8, PCIE, NOTHING),
            group(8, 1, NOTHING, ETHERNET),
        )
    ]
    assert order == sorted(order)


def test_dgx_h100_reaches_its_published_bus_bandwidth() -> None:
    """NCCL tests, 8 GPUs, NVLS: 464 GB/s at 1 GiB (awslabs, read 2026-08)."""
    size = 2**30
    seconds = all_reduce_s(size, group(8, 8, SWITCH, NOTHING))[0]
    assert size * 2 * 7 / 8 / seconds == pytest.approx(464e9, rel=0.1)


def test_tokens_sent_once_cross_the_network_no_more_than_an_all_to_all() -> None:
    """With as many nodes as experts of a token, and one rank in each, both send the same."""
    spread = group(64, 8, SWITCH, INFINIBAND)
    all_copies = exchange_tokens_s(1e9, spread, per_rank_frac=1.0, per_node_frac=1.0)
    fewer = exchange_tokens_s(1e9, spread, per_rank_frac=0.9, per_node_frac=0.4)
    assert 0.0 < fewer[0] < all_copies[0]
    apart = group(8, 1, NOTHING, INFINIBAND)
    once = exchange_tokens_s(1e9, apart, per_rank_frac=1.0, per_node_frac=1.0)
    assert once[0] == pytest.approx(collective_s("all_to_all", 1e9, apart)[0])


def test_one_rank_sends_no_tokens() -> None:
    alone = group(1, 8, NOTHING, NOTHING)
    assert exchange_tokens_s(1e9, alone, per_rank_frac=1.0, per_node_frac=1.0)[0] == 0.0
