"""Formats that a release of a framework runs, whatever its table calls them."""

import pytest

from paceline.catalog.load import load_catalog
from paceline.scoring.readings import on_device, read_job
from paceline.scoring.rows import parse_row

ROW = {"model": "resnet50", "task": "train", "gpu": "A100", "batch_per_gpu": "64"}


def precision(framework, stated="fp32", device="A100 SXM4 40GB"):
    found = next(d for d in load_catalog().devices if d.name == device)
    row = parse_row(ROW | {"framework": framework, "precision": stated})
    return on_device(read_job(row), found).configuration.precision


@pytest.mark.parametrize(
    ("framework", "expected"),
    [
        ("TensorFlow 2.3.0 (tf_cnn_benchmarks)", "fp32"),
        ("TensorFlow 2.4.1 (tf_cnn_benchmarks)", "tf32"),
        ("TensorFlow 2.15", "tf32"),
        ("TensorFlow 1.15.3", "fp32"),
        ("TensorFlow 1.15.4", "tf32"),
        ("TensorFlow", "fp32"),
        ("PyTorch 2.4.0", "fp32"),
    ],
)
def test_releases_that_turn_tf32_on_run_it_where_units_have_it(framework, expected):
    assert precision(framework) == expected
    assert precision(framework, device="Tesla V100 SXM2 16GB") == "fp32"


def test_other_formats_are_left_as_stated():
    assert precision("TensorFlow 2.4.1", stated="fp16") == "fp16"


@pytest.mark.parametrize(
    ("task", "framework", "is_served"),
    [("infer", "vLLM 0.11", True), ("infer", "PyTorch 2.9", False), ("train", "vLLM 0.11", False)],
)
def test_engines_run_inference_their_own_way(task, framework, is_served) -> None:
    row = ROW | {"model": "llama-3-8b", "task": task, "framework": framework, "precision": "bf16"}
    assert read_job(parse_row(row)).configuration.is_served == is_served
