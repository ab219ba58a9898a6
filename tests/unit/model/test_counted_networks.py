"""Networks that ship as graphs have the parameters that their papers and releases state."""

import pytest

from paceline.model.names.lookup import entry_of
from paceline.model.names.registry import parameters_of
from paceline.model.reading.load import load_workload

#: As typed, in millions: He et al. 2015 (table 6), Zagoruyko and Komodakis 2016 (table 5), Ge et
#: al. 2021 (table 3), yolov7's log of training, Tan et al. 2020 (table 2), the model zoo of
#: PyTorchVideo, Lim et al. 2017 (table 1), Xie et al. 2024.
PUBLISHED = {
    "resnet20": 0.27, "resnet56": 0.85, "resnet110": 1.7, "wrn-28-10": 36.5, "wrn-40-4": 8.9,
    "wrn-16-8": 11.0, "yolox-s": 9.0, "yolox-x": 99.1, "yolov7": 37.6, "efficientdet-d1": 6.6,
    "efficientdet-d3": 12.0, "efficientdet-d7": 51.9, "slowfast_r50": 34.57, "slow_r50": 32.45,
    "esrgan": 16.7, "edsr": 43.1, "sana-0.6b": 590.0,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_network_has_its_published_size(name):
    assert parameters_of(entry_of(name)) / 1e6 == pytest.approx(PUBLISHED[name], rel=0.02)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("efficientdet-d3", "images"), ("esrgan", "images"), ("dit-xl", "images"),
        ("slowfast_r50", "clips"), ("slow_r50", "clips"), ("wan2.1-1.3b", "clips"),
        ("unet3d", "volumes"), ("schnet", "molecules"), ("jasper", "recordings"),
        ("gpt2", "tokens"), ("dlrm-dcnv2", "samples"),
    ],
)  # fmt: skip
def test_an_item_is_called_what_a_person_calls_it(name, unit):
    workload = load_workload(entry_of(name), task="train")
    assert workload.sample_unit == unit
