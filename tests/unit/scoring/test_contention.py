"""Norms of old releases in 16 bits slow down beside the exchange of gradients, and nothing else."""

from __future__ import annotations

import pytest

from paceline.catalog import load_catalog
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows

BASE = {
    "model": "resnet50", "task": "train", "framework": "TensorFlow 1.15.3 (tf_cnn_benchmarks)",
    "precision": "fp16", "compiler_flags": "no XLA", "gpu": "A100-SXM4-40GB", "n_nodes": "1",
    "interconnect": "NVLink/NVSwitch", "parallelism": "DP", "batch_per_gpu": "128",
    "unit": "img/s",
}  # fmt: skip


def kept(count: int, **change: str) -> float:
    """Share of ``count`` times the speed of one GPU."""
    rows = [parse_row(BASE | change | {"n_gpus": str(ranks)}) for ranks in (1, count)]
    one, many = predict_rows(rows, catalog=load_catalog())
    assert one.throughput_mid is not None
    assert many.throughput_mid is not None
    return many.throughput_mid / one.throughput_mid / count


@pytest.mark.parametrize(
    ("count", "low", "high"), [(2, 0.66, 0.81), (4, 0.52, 0.67), (8, 0.44, 0.60)]
)
def test_norms_in_16_bits_keep_what_the_published_rows_keep(count, low, high):
    assert low < kept(count) < high


@pytest.mark.parametrize(
    "change",
    [
        {"precision": "fp32"},
        {"compiler_flags": "XLA"},
        {"model": "vgg16"},
        {"framework": "TensorFlow 2.4.1 (tf_cnn_benchmarks)"},
        {"framework": "PyTorch 1.6"},
    ],
)
def test_nothing_else_is_slowed(change):
    assert kept(8, **change) > 0.9
