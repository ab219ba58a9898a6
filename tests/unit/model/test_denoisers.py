"""Denoisers by name and by their numbers: sizes as published, patches as pictures have them."""

import pytest
from tests.sampled import sampled

from paceline.errors import PacelineError
from paceline.model.items import as_items
from paceline.model.names.denoisers import denoiser_of
from paceline.model.names.lookup import entry_of
from paceline.model.reading.load import trace_workload

#: Parameters as their cards state them.
PUBLISHED = {"PixArt-Sigma": 0.61e9, "SD3": 2.03e9, "Wan2.1-T2V-1.3B": 1.42e9,
             "HunyuanVideo-1.5": 8.3e9}  # fmt: skip


@pytest.mark.parametrize("name", sampled(PUBLISHED, "SD3", "Wan2.1-T2V-1.3B"))
def test_families_have_their_published_size(name):
    family = denoiser_of(name)
    traced = trace_workload(family.entry, task="infer")
    assert traced.num_parameters == pytest.approx(PUBLISHED[name], rel=0.05)


@pytest.mark.parametrize(
    "spelled",
    ["Wan 2.1 T2V 1.3B", "wan2.1-t2v-1.3b", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "WAN_2.1_1.3B"],
)
def test_a_family_is_known_however_it_is_spelled(spelled):
    assert denoiser_of(spelled) == denoiser_of("Wan 2.1 1.3B")


def test_other_models_are_no_families():
    names = ("resnet50", "Llama 2 7B", "qwen-image-classifier of ours", "gpt2", "i3d")
    assert [name for name in names if denoiser_of(name)] == ["qwen-image-classifier of ours"]


def test_longer_and_larger_films_have_more_patches():
    family = denoiser_of("HunyuanVideo")
    patches = [family.num_patches(w, 480, f) for w, f in ((480, 1), (848, 1), (848, 61))]
    assert patches == [30 * 30, 53 * 30, 16 * 53 * 30]


def test_a_name_that_no_table_has_is_an_entry():
    assert entry_of("AuraFlow").startswith("denoiser:double=4,single=32")


def test_sizes_that_there_are_not_are_refused():
    with pytest.raises(PacelineError, match="layers"):
        trace_workload("denoiser:layers=2", task="train")
    with pytest.raises(PacelineError, match="no blocks"):
        trace_workload("denoiser:hidden=64", task="train")


@pytest.mark.parametrize(
    ("name", "patches", "unit"),
    [("HunyuanVideo-1.5", 31 * 30 * 53, "clips"), ("AuraFlow", 64 * 64, "images")],
)
def test_a_family_is_asked_for_whole_items_of_its_usual_size(name, patches, unit):
    step = trace_workload(entry_of(name), task="infer")
    item = as_items(step, typed=name)
    assert (step.default_seq, item.sample_unit) == (patches, unit)
    assert item.passes[0].repeats == 50


def test_a_denoiser_by_its_numbers_alone_is_one_step():
    step = trace_workload("denoiser:single=1,hidden=64,heads=2,patches=96", task="infer")
    assert step.default_seq == 96
    assert as_items(step, typed=step.name).passes == step.passes
