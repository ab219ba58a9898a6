"""Rows of MLPerf Training say neither format nor software: its rules and submissions do."""

import pytest

from paceline.catalog.load import load_catalog
from paceline.scoring.answers import Answer
from paceline.scoring.completion import completed
from paceline.scoring.rows import parse_row
from paceline.scoring.score import read_cell

ROW = {
    "source": "mlcommons/training_results_v5.1", "task": "train", "gpu": "H100-SXM5-80GB",
    "n_gpus": "8", "n_nodes": "1", "global_batch": "512", "input_data": "real (MLPerf)",
}  # fmt: skip


def reading(model, **cells):
    found = read_cell(0, parse_row(completed(ROW | {"model": model} | cells)), load_catalog())
    assert not isinstance(found, Answer), found.reason
    return found.reading


@pytest.mark.parametrize(
    ("model", "entry", "precision"),
    [
        ("stable_diffusion", "published_diffusion:sd2_unet", "fp16"),
        ("flux1", "published_images:flux1", "bf16"),
        ("llama31_8b", "llama-3-8b", "fp8"),
        ("rnnt", "published_speech:rnnt", "fp16"),
        ("dlrm", "dlrm", "fp16"),
        ("dlrm_dcnv2", "published_tables:dlrm_dcnv2", "fp16"),
    ],
)
def test_a_benchmark_says_what_its_rows_do_not(model, entry, precision):
    found = reading(model)
    assert (found.entry, found.configuration.precision) == (entry, precision)
    assert found.configuration.compiler == "compiled"


def test_pictures_of_flux_have_256_pixels():
    assert reading("flux1").image_size == 256


def test_recordings_in_training_are_twice_as_long():
    assert reading("rnnt").num_passes == 2.0


def test_a_device_without_fp16_trains_in_bf16():
    assert reading("stable_diffusion", gpu="Gaudi2").configuration.precision == "bf16"
