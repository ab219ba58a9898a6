"""Networks over volumes run on real tensors, and their products are those of the counter."""

import networks
import pytest
import torch
from test_flop_counter import counted_flop, traced_flop

from paceline.model.reading.load import load_workload


@pytest.mark.parametrize(
    "name", ["vnet", pytest.param("unet3d_brats", marks=pytest.mark.slow)]
)  # fmt: skip
def test_a_real_step_counts_the_same(name):
    model = networks.all_builders()[f"published_volumes:{name}"]()
    graph = load_workload(f"published_volumes:{name}").passes[0].graph
    counted = counted_flop(model, torch.rand(model.inputs(1).shape), torch.sum)
    assert traced_flop(graph, 1) == counted


def test_the_volume_of_inference_is_larger_and_its_network_the_same():
    crop, whole = (
        load_workload(f"published_volumes:unet3d_brats{end}", task="infer")
        for end in ("", "_whole")
    )
    assert crop.num_parameters == whole.num_parameters
    assert whole.sample_bytes / crop.sample_bytes == pytest.approx(224 * 224 * 160 / 128**3)
