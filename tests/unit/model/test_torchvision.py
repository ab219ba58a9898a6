"""Every classification model of torchvision against the figures that it publishes."""

import warnings

import pytest
from traced import trace_here, worker

from paceline.model.graph.graph import monomials

#: Its published count leaves out the two auxiliary heads, which training has: two 1×1 convolutions
#: with batch norm, and dense layers of 2048 × 1024 and 1024 × 1000.
_GOOGLENET_AUXILIARY = 6_379_984


@pytest.mark.slow
def test_parameters_and_forward_arithmetic_are_the_published_ones():
    """Parameters equal; multiply-adds within 1 % and the rounding to 0.001 G of the metadata."""
    torchvision = worker("torch_networks.zoo").import_torchvision()
    wrong = []
    for name in torchvision.models.list_models(module=torchvision.models):
        weights = next(iter(torchvision.models.get_model_weights(name)))
        size = weights.transforms.keywords["crop_size"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            workload = trace_here(f"torchvision:{name}", task="infer", image_size=size)
        graph = workload.passes[0].graph
        gmac = float((graph.ops.flop @ monomials(1, 1).T).sum()) / 2e9
        expected = weights.meta["num_params"]
        expected += _GOOGLENET_AUXILIARY if name == "googlenet" else 0
        is_near = abs(gmac - weights.meta["_ops"]) <= 0.01 * weights.meta["_ops"] + 0.0005
        if workload.num_parameters != expected or not is_near:
            wrong.append((name, workload.num_parameters, expected, gmac, weights.meta["_ops"]))
    assert wrong == []
