"""On which machines a job is scaled where no fresh offer says so, and names by their words."""

from __future__ import annotations

import pytest

import paceline
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import PacelineError
from paceline.model.names.lookup import entry_of
from paceline.reporting.figures import ItemRate
from paceline.reporting.headlines import scaled_headline


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Xeon 8380", "Intel Xeon Platinum 8380 (Ice Lake)"),
        ("Jetson Orin Nano", "Jetson Orin Nano Super 8GB"),
    ],
)
def test_words_of_one_family_name_it(typed: str, name: str) -> None:
    assert find_device(load_catalog(), typed).name == name


@pytest.mark.parametrize("typed", ["RTX 4080 Ti", "Jetson", "A1000 Max"])
def test_words_of_none_or_several_are_refused(typed: str) -> None:
    with pytest.raises(PacelineError):
        find_device(load_catalog(), typed)


def test_words_of_one_model_name_it() -> None:
    assert entry_of("nllb-600m") == "hf:nllb-200-600m"
    with pytest.raises(PacelineError):
        entry_of("llama-instruct")


@pytest.mark.parametrize("device", ["TPU v5e", "TPU v4"])
def test_a_slice_of_a_pod_grows(device: str) -> None:
    found = paceline.scale("gpt2", device=device, counts=[8, 128])
    few, many = found.curve.points
    assert many.items_per_s > 8 * few.items_per_s


def test_time_needs_no_price() -> None:
    found = paceline.scale("gpt2", device="H800", counts=[8])
    (point,) = found.curve.points
    assert point.cost_usd is None
    assert point.time_s is not None
    assert any("like " in line and "no price" in line for line in found.assumptions)


def test_a_lone_count_has_no_efficiency() -> None:
    one = paceline.scale("resnet50", device="a100", counts=[8])
    two = paceline.scale("resnet50", device="a100", counts=[1, 8])
    assert "efficient" not in scaled_headline(one.device, one.curve, ItemRate(unit="images"))
    assert "efficient" in scaled_headline(two.device, two.curve, ItemRate(unit="images"))
