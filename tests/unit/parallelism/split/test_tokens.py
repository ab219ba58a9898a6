from __future__ import annotations

import numpy as np
import pytest
from tests.unit.parallelism.links_of_tests import wires_in_node
from tests.unit.parallelism.small_denoiser import (
    HEADS,
    ITEMS,
    KV_LEN,
    LAYERS,
    PICTURE,
    Q_HEADS,
    Q_LEN,
    TEXT,
    WIDTH,
    denoiser,
)

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph, OpKind, Owner, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import COLLECTIVES, LinkTable
from paceline.parallelism.collectives.times import RankGroup, collective_s
from paceline.parallelism.split import RankGraph, SplitShape, calls_s, split
from paceline.parallelism.split.tokens import Streams, streams_of
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass

CATALOG = load_catalog()
NVLINK4 = next(link for link in CATALOG.links if link.name == "nvlink4")
H100 = DeviceTable.from_devices([find_device(CATALOG, "H100 SXM5 80GB")])
EAGER = Configuration(precision="bf16", attention="flash")
ONE_ITEM = Points(batch=np.ones(1), seq=np.ones(1))
ODD_TEXT = 333
SHAPES = [(1, 2), (2, 1), (2, 2), (4, 1), (1, 4), (4, 2), (8, 1), (1, 8)]


def ran(ring: int = 1, ulysses: int = 1, guidance: int = 1, text: int = TEXT) -> RankGraph:
    return split(denoiser(text), SplitShape(ring=ring, ulysses=ulysses, guidance=guidance))


def flop(graph: Graph) -> float:
    return float(graph.ops.flop.sum(axis=0) @ monomials(1.0)[0])


def sent_elements(one: RankGraph, name: str) -> list[float]:
    """Of one item, for each call."""
    calls = one.calls.take(one.calls.name == COLLECTIVES.index(name))
    return (calls.elements @ monomials(1.0)[0]).tolist()


def exchanged_s(one: RankGraph, attention_s: float = 0.0) -> float:
    busy_s = np.full((1, len(one.calls)), attention_s / LAYERS)
    wires = wires_in_node(one.shape, NVLINK4)
    return float(calls_s(one.calls, ONE_ITEM, wires, element_bytes=2.0, busy_s=busy_s).sum())


def device_s(graph: Graph) -> float:
    return float(predict_pass(lower(graph, EAGER), H100, ONE_ITEM).device_s[0, 0])


def test_one_rank_runs_the_step_as_it_is() -> None:
    one = ran()
    assert one.graph is denoiser(TEXT)
    assert exchanged_s(one) == 0.0


def test_tokens_of_the_picture_and_of_text_beside_it_are_told_apart() -> None:
    assert streams_of(denoiser()) == Streams(picture=PICTURE, text=TEXT, items=ITEMS)
    assert streams_of(denoiser(0)) == Streams(picture=PICTURE, text=0, items=ITEMS)


@pytest.mark.parametrize(("ring", "ulysses"), SHAPES)
def test_ranks_together_work_as_much_as_one_but_for_what_all_repeat(
    ring: int, ulysses: int
) -> None:
    """The text that is looked at and the time of the step are the same on every rank: 3 % of it."""
    alone, shared = flop(denoiser()), flop(ran(ring, ulysses).graph)
    together = ring * ulysses * shared
    assert alone < together < (1.0 + 0.03 * ring * ulysses) * alone


@pytest.mark.parametrize(("ring", "ulysses"), SHAPES)
def test_every_rank_keeps_all_weights(ring: int, ulysses: int) -> None:
    graph = ran(ring, ulysses).graph
    weights = graph.storages.owner == Owner.PARAMETER
    np.testing.assert_array_equal(
        graph.storages.elements[weights], denoiser().storages.elements[weights]
    )


@pytest.mark.parametrize("kind", ["ring", "ulysses"])
@pytest.mark.parametrize("text", [0, TEXT, ODD_TEXT])
def test_more_ranks_never_lengthen_the_devices_own_part(kind: str, text: int) -> None:
    times = [device_s(ran(**{kind: ranks}, text=text).graph) for ranks in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)


def attention_sizes(one: RankGraph) -> tuple[float, float, float]:
    """Heads, queries and keys of the attention over the picture."""
    dims = one.graph.ops.dims[one.attention[0], :, 0]
    return float(dims[Q_HEADS]), float(dims[Q_LEN]), float(dims[KV_LEN])


def test_ulysses_shares_heads_and_a_ring_queries() -> None:
    tokens = PICTURE + TEXT
    assert attention_sizes(ran(ulysses=4)) == (HEADS / 4, tokens, tokens)
    assert attention_sizes(ran(ring=4)) == (HEADS, tokens / 4, tokens)
    assert attention_sizes(ran(ring=2, ulysses=2)) == (HEADS / 2, tokens / 2, tokens)


def test_text_that_does_not_divide_is_copied_and_asked_for_by_every_rank() -> None:
    """xDiT joins it to the queries before they change places, and to the keys after."""
    keys = PICTURE + ODD_TEXT
    assert attention_sizes(ran(ring=4, text=ODD_TEXT)) == (HEADS, PICTURE / 4 + ODD_TEXT, keys)
    by_heads = ran(ulysses=4, text=ODD_TEXT)
    assert attention_sizes(by_heads) == (HEADS / 4, PICTURE + 4 * ODD_TEXT, keys)
    picture, both = PICTURE / 4 * ITEMS * WIDTH, (PICTURE / 4 + ODD_TEXT) * ITEMS * WIDTH
    assert sent_elements(by_heads, "all_to_all") == [both, picture, picture, both] * LAYERS


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ulysses_moves_queries_keys_values_and_outputs_once_each(ranks: int) -> None:
    """Jacobs et al., section 3.2: 4 N h / P a layer and device for sequences of N over P ranks."""
    moved = sent_elements(ran(ulysses=ranks), "all_to_all")
    assert len(moved) == 4 * LAYERS
    assert sum(moved) * ranks == LAYERS * 4 * ITEMS * (PICTURE + TEXT) * WIDTH


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_keys_and_values_go_round_once(ranks: int) -> None:
    """In all rounds a rank receives all keys and values but its own (Liu et al.)."""
    one = ran(ring=ranks)
    messages = sent_elements(one, "send_recv")
    assert len(messages) == LAYERS
    received = (ranks - 1) * messages[0]
    all_keys = 2 * ITEMS * (PICTURE + TEXT) * WIDTH
    assert received == pytest.approx(all_keys * (ranks - 1) / ranks)
    assert not sent_elements(one, "all_to_all")


def test_the_picture_is_put_together_once_a_step() -> None:
    assert sent_elements(ran(ring=2, ulysses=2), "all_gather") == [ITEMS * PICTURE * 64]


def test_a_ring_hides_behind_attention_that_is_longer() -> None:
    one = ran(ring=4)
    bare, hidden = exchanged_s(one), exchanged_s(one, attention_s=1.0)
    table = LinkTable.from_links([NVLINK4])
    group = RankGroup.of(np.array([4.0]), 4, table, table)
    gathered_s = float(collective_s("all_gather", ITEMS * PICTURE * 64 * 2.0, group)[0])
    assert hidden == pytest.approx(gathered_s)
    message = 2 * ITEMS * (PICTURE + TEXT) / 4 * WIDTH * 2.0
    send_s = float(collective_s("send_recv", message, group)[0])
    assert bare == pytest.approx(gathered_s + LAYERS * 3 * send_s)


def test_halves_of_guidance_are_half_a_batch() -> None:
    half = ran(guidance=2)
    assert flop(half.graph) == pytest.approx(flop(denoiser()) / 2)
    assert [COLLECTIVES[name] for name in half.calls.name] == ["all_gather"]
    with pytest.raises(InvalidInputError, match="two halves"):
        ran(guidance=4)


def test_guidance_and_tokens_multiply() -> None:
    both, alone = ran(ring=2, guidance=2), ran(ring=4)
    assert flop(both.graph) == pytest.approx(flop(alone.graph), rel=0.03)


def test_heads_and_tokens_must_divide() -> None:
    with pytest.raises(InvalidInputError, match="do not divide 16 heads"):
        ran(ulysses=32)
    with pytest.raises(InvalidInputError, match="do not divide the 4096 tokens"):
        ran(ring=3)


def test_a_model_without_attention_has_no_tokens_to_share() -> None:
    graph = load_workload("resnet18", task="infer").passes[0].graph
    with pytest.raises(InvalidInputError, match="no attention"):
        split(graph, SplitShape(ring=2))


def test_attention_alone_is_that_of_the_whole_step() -> None:
    one = ran(ring=2)
    only = one.only(one.attention)
    assert only.ops.kind.tolist() == [int(OpKind.ATTENTION)] * LAYERS
    np.testing.assert_array_equal(only.ops.flop, one.graph.ops.flop[one.attention])
    assert 0.0 < device_s(only) < device_s(one.graph)
