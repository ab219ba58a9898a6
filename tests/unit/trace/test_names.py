"""Models by the names that people type: the zoo, sizes of hubs, libraries."""

import pytest
from traced import worker

from paceline.errors import UnknownNameError
from paceline.shipped import shipped_rows
from paceline.trace.load import load_workload
from paceline.trace.names import _hub_names, entry_of
from paceline.trace.zoo_facts import zoo_facts


@pytest.mark.parametrize(
    ("typed", "entry"),
    [
        ("resnet-50", "resnet50"), ("microsoft/resnet-50", "resnet50"),
        ("llama3-8b", "llama-3-8b"), ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("meta-llama/Llama-4-Scout-17B-16E", "hf:llama-4-scout"),
        ("meta-llama/Llama-3.3-70B-Instruct", "hf:llama-3.1-70b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "hf:mistral-7b"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "hf:qwen2.5-7b"), ("qwen3-235b", "hf:qwen3-235b-a22b"),
        ("google/gemma-3-27b-it", "hf:gemma-3-27b"), ("deepseek-r1", "hf:deepseek-v3"),
        ("facebook/esm2_t33_650M_UR50D", "hf:esm2-650m"), ("RT-DETR", "hf:rt-detr-r50"),
        ("yolov8n", "published_yolo:yolov8n"), ("dlrm-v2", "published_tables:dlrm_dcnv2"),
        ("YOLO11x", "published_yolo:yolo11x"),
        ("stabilityai/stable-diffusion-xl-base-1.0", "published_diffusion:sdxl"),
        ("black-forest-labs/FLUX.1-dev", "published_images:flux1"),
        ("convnextv2_base.fcmae", "timm:convnextv2_base"), ("ViT-B/32", "torchvision:vit_b_32"),
        ("hf:anything", "hf:anything"), ("train:make_model", "train:make_model"),
    ],
)  # fmt: skip
def test_a_typed_name_means_its_model(typed, entry):
    assert entry_of(typed) == entry


def test_every_name_means_itself():
    assert all(entry_of(name) == name for name in zoo_facts())
    for name in _hub_names():
        assert entry_of(name) in (name, f"hf:{name}")


@pytest.mark.parametrize(
    ("typed", "near"),
    [("whisper", "whisper-large-v3"), ("mixtral", "mixtral-8x22b"), ("dinov2", "dinov2-base"),
     ("swinv2", "timm:swinv2_base_window12_192"), ("yolov8", "published_yolo:yolov8n"),
     ("faster-rcnn", "torchvision:fasterrcnn_resnet50_fpn"),
     ("qwen3-9b", "qwen3-8b"), ("nobody/no-such-model", "hf:config.json")],
)  # fmt: skip
def test_a_name_of_several_or_of_none_says_what_there_is(typed, near):
    with pytest.raises(UnknownNameError) as caught:
        entry_of(typed)
    assert typed in str(caught.value)
    assert near in caught.value.hint


def test_a_config_in_a_folder_is_an_entry(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert entry_of(str(tmp_path)) == f"hf:{tmp_path}"
    assert entry_of(f"{tmp_path}/config.json") == f"hf:{tmp_path}/config.json"


def test_a_title_says_what_another_name_was_taken_as():
    assert load_workload("ResNet-50").title == load_workload("resnet50").title
    assert load_workload("rn/resnet-50-v1").title == "rn/resnet-50-v1 (as ResNet-50)"


def test_what_a_line_of_names_means_is_known():
    """Entries without a group of their pattern; those with one are spelled by the tests above."""
    for row in shipped_rows("trace", "hub_names.csv"):
        entry = row["entry"]
        if entry.startswith("hf:") and "\\" not in entry:
            assert entry.removeprefix("hf:") in _hub_names(), entry


def test_the_table_of_published_names_is_that_of_the_workers():
    pytest.importorskip("torch")
    schemes = worker("torch_subjects")._PUBLISHED
    known = {(scheme, one) for scheme, home in schemes.items() for one in worker(home)._MODELS}
    rows = shipped_rows("trace", "published_names.csv")
    assert {(row["scheme"], row["name"]) for row in rows} == known
