from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from links_of_tests import make_link

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Checkpointing, Configuration
from paceline.model.graph.graph import Graph
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.schedule.blocks import BlockCosts, TensorGroup, block_costs
from paceline.parallelism.split import SplitShape
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points

BATCHES, SEQ, HIDDEN, WIDTH = (1.0, 4.0), 512.0, 768, 2


@pytest.fixture(scope="module")
def gpt2() -> Graph:
    return load_workload("gpt2").passes[0].graph


def costs_of(
    graph: Graph,
    checkpointing: Checkpointing,
    device: str = "A100 SXM4 80GB",
    batches: tuple[float, ...] = BATCHES,
    log_shift: float = 0.0,
    tensor: int = 1,
    **settings: Any,
) -> BlockCosts:
    link = LinkTable.from_links([make_link()])
    return block_costs(
        graph,
        Configuration(checkpointing=checkpointing, training_format="half-weights", **settings),
        DeviceTable.from_devices([find_device(load_catalog(), device)]),
        Points(batch=np.array(batches), seq=np.full(len(batches), SEQ)),
        TensorGroup(
            shape=SplitShape(tensor=tensor), ranks_per_node=8, device_link=link, node_link=link
        ),
        calibration=replace(builtin_calibration(), device_log_shift={device: log_shift}),
    )


def assert_same(one: object, other: object) -> None:
    """Every number is equal, to the bit, however deep records hold it."""
    assert type(one) is type(other)
    if not is_dataclass(one):
        assert np.array_equal(one, other)
        return
    for field in fields(one):
        assert_same(getattr(one, field.name), getattr(other, field.name))


def layers_of(costs: BlockCosts) -> np.ndarray:
    return np.array([name[-1:].isdigit() for name in costs.names])


def test_a_recomputed_layer_keeps_its_input_and_nothing_else(gpt2) -> None:
    """What it receives is its own to keep, so a stage's memory follows from its own layers."""
    costs = costs_of(gpt2, "block")
    expected = np.array(BATCHES)[:, None] * SEQ * HIDDEN * WIDTH
    assert np.allclose(costs.saved_bytes[:, layers_of(costs)], expected, rtol=1e-3)
    before_layers = costs.saved_bytes[:, : layers_of(costs).argmax()].sum(axis=1)
    assert (before_layers < expected[:, 0]).all(), "a mask at most: the input is the layer's"


@pytest.mark.parametrize("other", [("H100 SXM5 80GB", BATCHES), ("A100 SXM4 80GB", (2.0, 3.0))])
def test_costs_are_the_same_whatever_was_asked_before(gpt2, other) -> None:
    """What machines of all kinds share is kept between them, and none of their own figures."""
    costs_of(gpt2, "none", *other)
    after, alone = costs_of(gpt2, "none"), costs_of(replace(gpt2), "none")
    assert_same(after, alone)


def test_what_the_user_measured_of_a_device_holds_for_each_of_its_blocks(gpt2) -> None:
    plain, slower = costs_of(gpt2, "none"), costs_of(gpt2, "none", log_shift=np.log(1.5))
    for name in ("forward_s", "backward_s", "weight_s"):
        assert getattr(slower, name) == pytest.approx(1.5 * getattr(plain, name), rel=1e-5)
    assert np.array_equal(slower.forward_host_s, plain.forward_host_s)


@pytest.mark.parametrize("checkpointing", ["none", "block"])
def test_tensor_ranks_talk_as_often_as_models_beside_them_run(gpt2, checkpointing) -> None:
    """A frozen reference sums in forward as the model does, a critic in both passes as well."""
    alone, dpo, ppo = (
        costs_of(gpt2, checkpointing, tensor=2, objective=name).tensor_s
        for name in ("next-token", "dpo", "ppo")
    )
    forward = dpo - alone
    backward = alone - forward
    assert (forward[:, layers_of(costs_of(gpt2, "none"))] > 0).all()
    # Forward and backward of a layer sum equally often, and what is recomputed sums once more.
    layers = layers_of(costs_of(gpt2, "none"))
    ratio = 1.0 if checkpointing == "none" else 2.0
    assert np.allclose(backward[:, layers], ratio * forward[:, layers])
    assert np.allclose(ppo, 2.0 * alone + 4.0 * forward)


def test_alike_layers_keep_alike(gpt2) -> None:
    costs = costs_of(gpt2, "none")
    kept = costs.saved_bytes[:, layers_of(costs)]
    assert np.allclose(kept, kept[:, :1], rtol=1e-6)


def test_recomputing_keeps_less_and_takes_longer(gpt2) -> None:
    plain, recomputed = costs_of(gpt2, "none"), costs_of(gpt2, "block")
    assert (recomputed.saved_bytes.sum(axis=1) < plain.saved_bytes.sum(axis=1)).all()
    assert (recomputed.backward_s.sum(axis=1) > plain.backward_s.sum(axis=1)).all()
    assert np.array_equal(recomputed.parameters, plain.parameters)


def test_experts_kept_whole_and_tokens_sent_once_spare_communication() -> None:
    """Whole experts need no sum over tensor ranks; a dispatcher sends no copy twice."""
    graph, link = load_workload("mixtral-8x7b").passes[0].graph, LinkTable.from_links([make_link()])
    plain = TensorGroup(
        shape=SplitShape(tensor=2, sequence_parallel=True, experts=2), ranks_per_node=8,
        device_link=link, node_link=link,
    )  # fmt: skip
    whole = replace(plain, shape=replace(plain.shape, whole_experts=True))
    costs = [
        block_costs(
            graph,
            Configuration(),
            DeviceTable.from_devices([find_device(load_catalog(), "A100 SXM4 80GB")]),
            Points(batch=np.ones(1), seq=np.full(1, SEQ)),
            group,
        )
        for group in (
            plain,
            whole,
            replace(whole, profile=replace(whole.profile, tokens_once=True)),
            replace(whole, profile=replace(whole.profile, tokens_once=True, hides_exchange=True)),
        )
    ]
    split_s, whole_s, once_s, behind_s = (float(one.tensor_s.sum()) for one in costs)
    assert split_s > whole_s > once_s > behind_s > 0.0
    assert np.array_equal(costs[0].state.values, costs[1].state.values)


def test_rows_are_sorted_by_expert_where_a_rank_has_several() -> None:
    """Over wires that take next to no time: each row of Mixtral is read and written four times."""
    link = LinkTable.from_links([replace(make_link(bytes_per_s=1e30), latency_s=0.0)])
    graph = load_workload("mixtral-8x7b").passes[0].graph
    device = find_device(load_catalog(), "H100 SXM5 80GB")
    took_s = {}
    for experts in (2, 8):
        costs = block_costs(
            graph, Configuration(), DeviceTable.from_devices([device]),
            Points(batch=np.array([256.0]), seq=np.array([SEQ])),
            TensorGroup(
                shape=SplitShape(experts=experts), ranks_per_node=8, device_link=link,
                node_link=link,
            ),
        )  # fmt: skip
        took_s[experts] = costs.tensor_s[0, layers_of(costs)]
    row_bytes, copies = 4096 * 2, 2
    rate = 0.9 * device.memory_bytes_per_s
    assert np.allclose(took_s[2], 4 * 2 * 256 * SEQ * copies * row_bytes / rate, rtol=0.02)
    assert (took_s[8] < 0.02 * took_s[2]).all()
