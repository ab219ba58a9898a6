from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.unit.parallelism.links_of_tests import (
    ETHERNET,
    INFINIBAND,
    NOTHING,
    NVLINK,
    PCIE,
    SWITCH,
    make_link,
)

from paceline.catalog.entities import Link
from paceline.catalog.load import load_catalog
from paceline.parallelism.collectives.links import (
    COLLECTIVES,
    TRANSFERS,
    LinkTable,
    load_coefficients,
)
from paceline.parallelism.collectives.times import (
    RankGroup,
    all_gather_s,
    all_reduce_s,
    collective_s,
    exchange_tokens_s,
    reduce_scatter_s,
)
from paceline.parallelism.uncertainty import sharing_log_sigma

#: Long enough that nothing but its bytes takes time.
LONG = 1e13
SIZES = (0.0, 8.0, 16e3, 1e6, 25e6, 1e9, 16e9)


def group(ranks: float, per_node: float, device: LinkTable, node: LinkTable) -> RankGroup:
    return RankGroup.of(ranks, per_node, device, node)


def test_no_links_are_a_table_of_no_rows() -> None:
    """Where nothing is offered, a search has no machines."""
    assert len(LinkTable.from_links([])) == 0


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


def rate(link: LinkTable, name: str) -> float:
    """Bytes per second that long messages among many ranks reach."""
    efficiency = load_coefficients().log_efficiency[link.kind_row[0], TRANSFERS.index(name), -1, -1]
    return float(link.bytes_per_s[0] * np.exp(efficiency))


def generic(bytes_per_s: float) -> LinkTable:
    return LinkTable.from_links([make_link("any", kind="generic", bytes_per_s=bytes_per_s)])


@pytest.mark.parametrize(
    ("name", "frac"),
    [
        ("all_reduce", 2 * 7 / 8),
        ("all_gather", 7 / 8),
        ("reduce_scatter", 7 / 8),
        ("all_to_all", 7 / 8),
        ("send_recv", 1.0),
    ],
)
def test_a_rank_sends_what_the_others_need_of_it(name, frac) -> None:
    """Eight ranks, inside one node and with a node each."""
    for link, members in (
        (NVLINK, group(8, 8, NVLINK, NOTHING)),
        (INFINIBAND, group(8, 1, NOTHING, INFINIBAND)),
    ):
        seconds = collective_s(name, LONG, members)[0]
        assert seconds == pytest.approx(frac * LONG / rate(link, name), rel=1e-3)


def test_an_all_to_all_crosses_each_link_with_what_lies_beyond_it() -> None:
    """Of 64 ranks, 7 others share the node; 8 ranks of a node send 7/8 of their bytes out of it."""
    slow, fast = generic(1e9), generic(1e18)
    inside = collective_s("all_to_all", LONG, group(64, 8, slow, fast))[0]
    assert inside == pytest.approx(7 / 64 * LONG / rate(slow, "all_to_all"), rel=1e-3)
    between = group(64, 8, fast, slow)
    crossing_s = 8 * 7 / 8 * LONG / rate(slow, "all_to_all")
    assert collective_s("all_to_all", LONG, between)[0] == pytest.approx(crossing_s, rel=1e-3)
    tokens = exchange_tokens_s(LONG, between, per_rank_frac=1.0, per_node_frac=0.5)[0]
    assert tokens == pytest.approx(crossing_s / 2, rel=1e-3)


def test_the_faster_level_hides_behind_the_slower_in_long_messages_alone() -> None:
    def added_frac(size: float) -> float:
        """What the links of a node add to those between, over what they take alone."""
        slow, fast = (
            all_gather_s(size, group(64, 8, generic(b), ETHERNET))[0] for b in (100e9, 1e18)
        )
        alone = [all_gather_s(s, group(8, 8, generic(100e9), NOTHING))[0] for s in (size, 0.0)]
        return float((slow - fast) / (alone[0] - alone[1]))

    assert 0.5 < added_frac(1e3) < 1.2
    assert 0.0 <= added_frac(1e10) < 0.01


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
    assert steps[0] > 1e-6, "twice the nodes cost one more hop, which takes a microsecond or more"


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


def known_link(name: str) -> Link:
    return next(link for link in load_catalog().links if link.name == name)


def test_one_stream_through_the_host_serves_all_ranks() -> None:
    """Whatever their number, all of them together move 16 GB/s."""
    staged = LinkTable.from_links([known_link("host-staged")])
    for ranks in (2, 4, 8):
        sent_bytes = 2 * (ranks - 1) / ranks * 10e9
        rate = sent_bytes / float(all_reduce_s(10e9, group(ranks, 8, staged, NOTHING))[0])
        assert rate * ranks == pytest.approx(16e9, rel=0.01)


@pytest.mark.parametrize(("name", "port_bytes_per_s"), [("gaudi2", 12.5e9), ("gaudi3", 25e9)])
def test_devices_joined_pair_by_pair_send_over_three_ports_to_each_peer(
    name: str, port_bytes_per_s: float
) -> None:
    """All peers at once, at no more than the ports to them carry; calls do not grow as a ring's."""
    link = LinkTable.from_links([known_link(f"{name}-roce")])
    for ranks in (2, 4, 8):
        seconds = reduce_scatter_s(LONG, group(ranks, ranks, link, NOTHING))[0]
        to_each = LONG / ranks / (3 * port_bytes_per_s)
        assert to_each <= seconds <= 1.2 * to_each
    short = [all_reduce_s(8.0, group(n, n, link, NOTHING))[0] for n in (2, 8)]
    assert short[1] < 3 * short[0]


def spread_of(name: str, ranks: int, sent_frac: float) -> float:
    link = LinkTable.from_links([known_link(name)])
    return float(sharing_log_sigma(link, ranks, sent_s=sent_frac, step_s=1.0)[0])


@pytest.mark.parametrize("name", ["nvlink4", "ws-pcie4", "host-staged"])
def test_what_ranks_of_one_machine_share_is_less_sure(name: str) -> None:
    assert spread_of(name, 1, 0.0) == 0.0
    assert spread_of(name, 2, 0.3) > 0.0
    assert spread_of(name, 2, 0.3) <= spread_of(name, 8, 0.6)


def test_more_ranks_on_a_switch_are_less_sure() -> None:
    assert spread_of("nvlink4", 2, 0.1) < spread_of("nvlink4", 8, 0.1)


@pytest.mark.parametrize("name", ["ws-pcie4", "host-staged"])
def test_over_pcie_a_step_is_as_unsure_as_it_sends(name: str) -> None:
    """What sends nothing waits for no lane; what does nothing else is known within a factor."""
    spreads = [spread_of(name, 4, sent_frac) for sent_frac in (0.0, 0.1, 0.4, 1.0, 3.0)]
    assert spreads[0] == 0.0
    assert spreads[2] == pytest.approx(4 * spreads[1])
    assert spreads[3] == pytest.approx(spreads[4])
    assert 0.5 < spreads[3] < 1.0
