"""AlexNet's hybrid: dense layers split, convolutions replicated."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from tests.unit.parallelism.links_of_tests import ETHERNET, INFINIBAND, NOTHING, NVLINK, PCIE

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.schedule.blocks import BlockCosts, TensorGroup, block_costs
from paceline.parallelism.split import SplitShape
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points

dense_hybrid = import_module("accuracy_clusters.dense_hybrid")

BATCH = 128


@pytest.fixture(scope="module")
def alexnet() -> BlockCosts:
    return block_costs(
        load_workload("alexnet").passes[0].graph,
        Configuration(precision="fp32"),
        DeviceTable.from_devices([find_device(load_catalog(), "Tesla K20")]),
        Points(batch=np.array([float(BATCH)]), seq=np.ones(1)),
        TensorGroup(
            shape=SplitShape(), ranks_per_node=1, device_link=NVLINK, node_link=NVLINK,
        ),
    )  # fmt: skip


def hybrid(costs: BlockCosts, num_ranks: int, link: LinkTable, *, dense: str) -> Any:
    return dense_hybrid.hybrid_step(
        costs, np.array([name.startswith(dense) for name in costs.names]),
        num_ranks=num_ranks, ranks_per_node=8, device_link=link, node_link=INFINIBAND,
        gradient_element_bytes=4,
    )  # fmt: skip


def test_one_rank_sends_nothing(alexnet: BlockCosts) -> None:
    step = hybrid(alexnet, 1, NOTHING, dense="classifier")
    assert step.dense_exposed_s == step.gradient_exposed_s == 0.0
    assert step.step_s == pytest.approx(float((alexnet.forward_s + alexnet.backward_s).sum()))


def test_over_a_slow_link_activations_of_dense_layers_are_cheaper_than_their_gradients(
    alexnet: BlockCosts,
) -> None:
    """59 of 61 million parameters are dense; their inputs are 17,408 numbers an image."""
    for num_ranks in (2, 4):
        split = hybrid(alexnet, num_ranks, ETHERNET, dense="classifier")
        replicated = hybrid(alexnet, num_ranks, ETHERNET, dense="nothing")
        assert split.step_s < 0.9 * replicated.step_s
        assert split.gradient_exposed_s < replicated.gradient_exposed_s
        assert replicated.dense_exposed_s == 0.0


def test_activations_grow_with_the_ranks_and_gradients_of_convolutions_hardly(
    alexnet: BlockCosts,
) -> None:
    two, eight = (hybrid(alexnet, n, PCIE, dense="classifier") for n in (2, 8))
    assert eight.dense_exposed_s > 2.0 * two.dense_exposed_s
    assert eight.step_s > two.step_s


def test_what_a_dense_layer_takes_in_is_what_travels(alexnet: BlockCosts) -> None:
    names = list(alexnet.names)
    widths = [
        float(alexnet.boundary_bytes[0, names.index(name) - 1])
        for name in ("classifier.1", "classifier.4", "classifier.6")
    ]
    assert widths == pytest.approx([BATCH * 9216 * 4, BATCH * 4096 * 4, BATCH * 4096 * 4], rel=0.3)


@pytest.mark.parametrize("num_ranks", [2, 8])
def test_the_batch_of_one_rank_travels_before_there_is_anything_to_compute(
    alexnet: BlockCosts, num_ranks: int
) -> None:
    """With much to compute one rank's part is bare, with nothing to compute all of them."""
    idle, busy = (
        replace(
            alexnet, forward_s=factor * alexnet.forward_s, backward_s=factor * alexnet.backward_s
        )
        for factor in (0.0, 1e6)
    )
    bare, hidden = (
        hybrid(costs, num_ranks, PCIE, dense="classifier").dense_exposed_s for costs in (idle, busy)
    )
    assert bare == pytest.approx(num_ranks * hidden)
