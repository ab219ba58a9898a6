"""Models that published measurements name: parameters and arithmetic of their papers.

GPUNet: Wang et al. 2022 (11.9, 12.7, 25.8 and 10.6 million parameters).
"""

import sys
from pathlib import Path

import pytest
from tests.sampled import sampled

torch = pytest.importorskip("torch")
WORKERS = Path(__file__).parents[3] / "src" / "paceline" / "frontends" / "torch"
sys.path.insert(0, str(WORKERS))

from torch_networks import published_gpunet  # noqa: E402


def built(module, name):
    with torch.device("meta"):
        return module._MODELS[name]()


def num_parameters(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "millions"),
    [("gpunet_0", 11.9), ("gpunet_1", 12.7), ("gpunet_2", 25.8), ("gpunet_d1", 10.6)],
)
def test_a_network_of_gpunet_has_the_parameters_of_its_paper(name, millions):
    assert num_parameters(built(published_gpunet, name)) == pytest.approx(millions * 1e6, rel=0.005)


@pytest.mark.parametrize(
    "name", sampled(sorted(published_gpunet._MODELS), "gpunet_0", "gpunet_p0", "gpunet_d1")
)
def test_a_network_of_gpunet_shrinks_its_images_and_tells_a_thousand_classes(name):
    model = built(published_gpunet, name)
    images = torch.empty(2, 3, model.image_size, model.image_size, device="meta")
    assert model(images).shape == (2, 1000)
    strides = 64 if "_p" in name else 32
    assert model.features(images).shape[-1] == -(-model.image_size // strides)
