from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.unit.parallelism.links_of_tests import make_link, wires_in_node

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.collectives.times import send_recv_s
from paceline.parallelism.schedule.blocks import BlockCosts, TensorGroup, block_costs
from paceline.parallelism.split import SplitShape, calls_s, split
from paceline.parallelism.split.calls import AXES
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.prediction import Points

BATCH, SEQ = 2.0, 8192.0
LAYERS, HEADS, KEY_HEADS, HEAD_SIZE = 32, 32, 8, 128


@cache
def graph_of(name: str) -> Graph:
    return load_workload(name).passes[0].graph


def points() -> Points:
    return Points(batch=np.array([BATCH]), seq=np.array([SEQ]))


@cache
def costs_of(context: int, *, bytes_per_s: float = 450e9) -> BlockCosts:
    link = LinkTable.from_links([make_link(bytes_per_s=bytes_per_s)])
    return block_costs(
        graph_of("llama-3-8b"),
        Configuration(precision="bf16", compiler="compiled", training_format="half-weights"),
        DeviceTable.from_devices([find_device(load_catalog(), "H100 SXM5 80GB")]),
        points(),
        TensorGroup(
            shape=SplitShape(ring=context), ranks_per_node=8, device_link=link, node_link=link
        ),
    )  # fmt: skip


def test_one_rank_is_the_graph_itself() -> None:
    assert split(graph_of("gpt2"), SplitShape()).graph is graph_of("gpt2")


def step_flop(graph: Graph) -> float:
    """Operations that kernels run in one step, without what a causal mask hides."""
    lowered = lower(graph, Configuration())
    at = Points(batch=np.array([BATCH]), seq=np.array([SEQ]))
    shapes = evaluate_shapes(lowered.costs, at)
    return float((shapes.flop * shapes.launches * lowered.costs.count).sum())


@pytest.mark.parametrize("name", ["bert-base", "gpt2", "llama-3-8b"])
@pytest.mark.parametrize(
    "shape", [SplitShape(ring=2), SplitShape(ring=8), SplitShape(ulysses=4),
              SplitShape(ring=2, ulysses=2)], ids=str
)  # fmt: skip
def test_ranks_share_the_work_and_repeat_the_update(name, shape) -> None:
    whole, part, degree = graph_of(name), split(graph_of(name), shape).graph, shape.sequence
    update = lower(whole, Configuration()).costs
    repeated = (update.count @ update.flop)[0]
    assert (step_flop(part) - repeated) * degree == pytest.approx(
        step_flop(whole) - repeated, rel=1e-4
    )
    assert lower(part, Configuration()).gradient_bytes == (
        lower(whole, Configuration()).gradient_bytes
    )


@pytest.mark.parametrize("degree", [2, 4])
def test_a_rank_keeps_its_part_of_the_activations_and_all_parameters(degree) -> None:
    whole, part = costs_of(1), costs_of(degree)
    assert np.allclose(part.saved_bytes * degree, whole.saved_bytes, rtol=1e-6)
    assert np.array_equal(part.parameters, whole.parameters)


@pytest.mark.parametrize("degree", [2, 8])
def test_the_ring_carries_the_keys_of_all_others_once_and_their_gradients_too(degree) -> None:
    """Liu et al. 2023: each rank sends its part of keys and values ``degree - 1`` times."""
    calls = split(graph_of("llama-3-8b"), SplitShape(ring=degree)).calls
    keys = BATCH * SEQ / degree * KEY_HEADS * HEAD_SIZE
    assert len(calls) == len(calls.along("ring")) == 2 * LAYERS
    assert set(calls.elements @ monomials(BATCH, SEQ)[0]) == {2 * keys, 4 * keys}


@pytest.mark.parametrize("degree", [2, 8])
def test_what_is_gathered_is_what_a_ring_carries_and_nothing_hides_it(degree) -> None:
    """Llama 3, section 3.3.2: keys and values of all ranks; in backward their gradients too."""
    ring, rank = (
        split(graph_of("llama-3-8b"), SplitShape(ring=degree, gathers_keys=gathers))
        for gathers in (False, True)
    )
    assert np.array_equal(rank.graph.ops.flop, ring.graph.ops.flop)
    of_rank = rank.calls.elements.sum(axis=0) / degree
    assert np.allclose(of_rank, ring.calls.elements.sum(axis=0))
    wires = wires_in_node(rank.shape, make_link(bytes_per_s=1e9))
    busy_s = np.full((1, len(rank.calls)), 1e9)
    bare, hidden = (
        calls_s(rank.calls, points(), wires, element_bytes=2, busy_s=busy)
        for busy in (None, busy_s)
    )
    assert np.array_equal(bare, hidden)
    rounds_s = calls_s(ring.calls, points(), wires, element_bytes=2)
    assert bare.sum() >= rounds_s.sum()


@pytest.mark.parametrize("degree", [2, 8])
def test_ulysses_hands_over_queries_keys_values_and_outputs_in_both_directions(degree) -> None:
    """Jacobs et al. 2023, section 3.2: each rank sends its part of all four."""
    calls = split(graph_of("llama-3-8b"), SplitShape(ulysses=degree)).calls
    part = BATCH * SEQ / degree * HEAD_SIZE
    sizes = (calls.elements @ monomials(BATCH, SEQ)[0]).reshape(2 * LAYERS, 4)
    keys, queries = part * KEY_HEADS, part * HEADS
    assert set(calls.axis) == {AXES.index("ulysses")}
    assert np.allclose(sizes, [queries, keys, keys, queries])


def test_tensor_ranks_pass_on_the_keys_of_their_own_heads() -> None:
    both = split(graph_of("llama-3-8b"), SplitShape(tensor=2, ring=2)).calls.along("ring")
    alone = split(graph_of("llama-3-8b"), SplitShape(ring=2)).calls
    assert np.allclose(2 * both.elements, alone.elements)


def test_a_message_hides_behind_the_attention_of_one_part_and_each_but_the_own_is_sent() -> None:
    degree = 4
    rank = split(graph_of("llama-3-8b"), SplitShape(ring=degree))
    wires = wires_in_node(rank.shape, make_link(bytes_per_s=1e9))
    message_bytes = rank.calls.elements @ monomials(BATCH, SEQ)[0] * 2
    send_s = np.array([[send_recv_s(size, wires.groups["ring"])[0] for size in message_bytes]])

    def added_s(busy_parts: float) -> np.ndarray:
        """With ops that compute so many messages long, a part each."""
        busy_s = degree * busy_parts * send_s
        return calls_s(rank.calls, points(), wires, element_bytes=2, busy_s=busy_s)

    bare, half, hidden = (added_s(share) for share in (0.0, 0.5, 1.0))
    np.testing.assert_allclose(bare, (degree - 1) * send_s)
    np.testing.assert_allclose(half, bare / 2)
    assert np.abs(hidden).max() < 1e-9


def test_a_fast_ring_hides_behind_attention_and_a_slow_one_does_not() -> None:
    slow, fast, one = costs_of(4, bytes_per_s=1e9), costs_of(4), costs_of(1)
    assert one.tensor_s.sum() == 0.0
    assert fast.tensor_s.sum() < 0.05 * (fast.forward_s + fast.backward_s).sum()
    keys = BATCH * SEQ / 4 * KEY_HEADS * HEAD_SIZE * 2
    least_s = LAYERS * 3 * (2 + 4) * keys / 1e9
    attention_s = (slow.forward_s + slow.backward_s - slow.tensor_s).sum()
    assert least_s - attention_s < slow.tensor_s.sum()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("resnet50", "it has no sequence"),
        ("lstm", "no fused attention"),
    ],
)
def test_what_cannot_be_split_says_why(name, why) -> None:
    with pytest.raises(InvalidInputError, match=why) as caught:
        split(graph_of(name), SplitShape(ring=2))
    assert "`dp`" in caught.value.hint
