"""What published tables leave to their scripts becomes columns; what was measured never does."""

from __future__ import annotations

import csv
import re

import pytest

from paceline.catalog.load import load_catalog
from paceline.scoring.completion import completed, read_published
from paceline.scoring.naming.models import UnresolvedRowError, resolve_model
from paceline.scoring.readings import read_job
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows
from paceline.scoring.tables import read_table

MEASURED = re.compile(r"watt|joule|power_w|time|mfu|tflops|throughput|latency|memory|itl|eff", re.I)
MLPERF = {
    "model": "bert", "task": "train", "framework": "NGC MXNet 23.09", "gpu": "H100-SXM5-80GB",
    "n_gpus": "8", "n_nodes": "1", "interconnect": "NVSwitch", "batch_per_gpu": "48",
    "seq_len": "512", "unit": "seq/s", "input_data": "real (MLPerf)",
}  # fmt: skip
LAMBDA = {
    "model": "resnet50", "task": "train", "framework": "TensorFlow 1.15.3 (tf_cnn_benchmarks)",
    "precision": "fp16", "compiler_flags": "no XLA", "gpu": "A100-SXM4-40GB", "n_nodes": "1",
    "interconnect": "NVLink/NVSwitch", "parallelism": "DP", "batch_per_gpu": "128",
    "unit": "img/s",
}  # fmt: skip
EVALUATED = {"task": "infer", "gpu": "A100", "precision": "amp", "batch_per_gpu": "1"}


def entry_of(**cells: str) -> str:
    return resolve_model(parse_row(completed({"gpu": "A100", "task": "infer", **cells}))).entry


def test_no_measured_key_is_an_input() -> None:
    keys = [line["key"] for line in read_table("extra_inputs.csv")]
    assert not [key for key in keys if MEASURED.search(key)]
    measured = "time_to_train_min=3; avg_power_watts=700; gmacs=4; mfu=0.4"
    row = completed({"model": "m", "gpu": "g", "extra": measured})
    assert set(row) <= {"model", "gpu", "extra"}


def test_a_table_is_read_with_what_its_lines_leave_out(tmp_path) -> None:
    table = tmp_path / "rows.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=sorted({*MLPERF, *LAMBDA}))
        writer.writeheader()
        writer.writerows([MLPERF, LAMBDA])
    assert read_published(table) == tuple(parse_row(completed(r)) for r in (MLPERF, LAMBDA))
    assert read_published(table) != tuple(parse_row(r) for r in (MLPERF, LAMBDA))


def test_the_size_of_a_model_is_read_from_remarks() -> None:
    base, large = (
        entry_of(model="BERT", framework="TensorFlow", extra=f"model={size}; mfu=0.3")
        for size in ("base", "large")
    )
    assert (base, large) == ("published:bert_squad_base", "published:bert_squad_large")
    heading = "section=Inference performance results for EfficientNet v1-B4"
    assert entry_of(model="efficientnet_v1", extra=heading) == "timm:efficientnet_b4"


def test_a_stated_beam_settles_a_search() -> None:
    gnmt = {"model": "GNMT", "framework": "PyTorch", "unit": "tok/s"}
    assert entry_of(**gnmt, extra="beam size=2") == "published_sequences:gnmt_beam2"
    with pytest.raises(UnresolvedRowError, match="hypotheses"):
        entry_of(**gnmt)


def test_a_batch_takes_as_many_passes_as_its_longest_text() -> None:
    """All frameworks read the same text; no sentence is longer than where decoding stops."""
    gnmt = {
        "model": "GNMT",
        "gpu": "A100",
        "task": "infer",
        "unit": "tok/s",
        "extra": "beam size=1",
    }
    for framework, tokens in (("PyTorch", 58), ("TensorFlow", 54)):
        row = {**gnmt, "framework": framework, "precision": "AMP"}
        jobs = [
            read_job(parse_row(completed(row | {"batch_per_gpu": n}))) for n in ("1", "8", "512")
        ]
        assert [round(job.num_passes) for job in jobs] == [28, 51, 79]
        assert {job.units_per_item for job in jobs} == {tokens}


def test_stated_steps_count_as_passes() -> None:
    row = {"model": "PixArt-alpha/PixArt-Sigma-XL-2-1024-MS", "gpu": "H100"}
    half = resolve_model(parse_row(completed(row | {"extra": "inference_steps=10"})))
    assert (half.num_passes, resolve_model(parse_row(row)).num_passes) == (10, 20)


def test_facts_follow_the_benchmark_and_the_device() -> None:
    precisions = [
        completed(MLPERF | {"gpu": gpu}).get("precision") for gpu in ("H100-SXM5-80GB", "A30")
    ]
    assert precisions == ["fp8-true", "fp16-true"]
    assert "precision" not in completed(MLPERF | {"model": "minigo"}), "nothing is known of it"


@pytest.mark.parametrize(
    "where", [{"input_data": "real (MLPerf)"}, {"source": "mlcommons/training_results_v3.1"},
              {"framework": "MLPerf v4.0"}],
)  # fmt: skip
def test_the_benchmark_is_known_by_any_of_three_columns(where: dict[str, str]) -> None:
    silent = {"input_data": "", "source": ""}
    assert completed(MLPERF | silent | where).get("precision") == "fp8-true"
    assert "precision" not in completed(MLPERF | silent)


def test_what_a_row_states_stays() -> None:
    stated = completed(MLPERF | {"precision": "bf16", "parallelism": "FSDP"})
    assert (stated["precision"], stated["parallelism"]) == ("bf16", "FSDP")
    assert "precision" not in completed(MLPERF | {"task": "infer"}), "facts are of training"


def test_a_row_of_the_benchmark_is_answered_and_says_so() -> None:
    rows = [parse_row(cells) for cells in (completed(MLPERF), MLPERF)]
    told, silent = predict_rows(rows, catalog=load_catalog())
    assert told.throughput_mid is not None
    assert "benchmark" in told.note
    assert silent.reason == "no precision"


def test_masks_are_pasted_picture_by_picture() -> None:
    """Published: 23 pictures a second alone and 31 at a batch of 8, AMP on an A100."""
    row = completed(EVALUATED | {"model": "Mask R-CNN", "framework": "PyTorch 1.6"})
    assert float(row["added_item_s"]) < min(1 / 23, 1 / 31)
    assert float(row["added_step_s"]) == 0.0
    stated = EVALUATED | {"model": "Mask R-CNN", "framework": "PyTorch 1.6"}
    for change in ({"task": "train"}, {"framework": "MXNet"}, {"model": "resnet50"}):
        assert "added_item_s" not in completed(stated | change)


def kept(count: int, **change: str) -> float:
    """Share of ``count`` times the speed of one GPU."""
    rows = [parse_row(completed(LAMBDA | change | {"n_gpus": str(ranks)})) for ranks in (1, count)]
    one, many = predict_rows(rows, catalog=load_catalog())
    assert one.throughput_mid is not None
    assert many.throughput_mid is not None
    return many.throughput_mid / one.throughput_mid / count


@pytest.mark.parametrize(
    ("count", "low", "high"), [(2, 0.66, 0.81), (4, 0.52, 0.67), (8, 0.44, 0.60)]
)
def test_norms_in_16_bits_keep_what_the_published_rows_keep(
    count: int, low: float, high: float
) -> None:
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
def test_nothing_else_is_slowed(change: dict[str, str]) -> None:
    assert "time_factor" not in completed(LAMBDA | {"n_gpus": "8"} | change)


def test_a_script_says_its_optimizer_and_how_it_updates() -> None:
    bert = {"model": "BERT", "gpu": "A100", "framework": "PyTorch", "task": "train",
            "extra": "model=large"}  # fmt: skip
    narrow, wide = (completed(bert | {"precision": p}) for p in ("amp", "fp32"))
    assert (narrow["optimizer"], narrow["rewrite"]) == ("adam", "optimizer_kernel=fused")
    assert (wide["optimizer"], wide["rewrite"]) == ("bert-adam", "optimizer_kernel=plain")


def test_the_name_of_an_architecture_is_no_word_for_mixed_precision() -> None:
    bert = {"model": "BERT-base SQuAD", "gpu": "A100-SXM4-40GB", "framework": "PyTorch NGC 20.10",
            "task": "train", "precision": "FP32 (TF32 on Ampere by default)"}  # fmt: skip
    assert completed(bert)["optimizer"] == "bert-adam"


def test_an_update_is_launched_as_the_named_release_launches_it() -> None:
    row = {"model": "WaveGlow", "gpu": "A100-SXM4-40GB", "task": "train", "precision": "FP32",
           "batch_per_gpu": "8", "n_gpus": "1"}  # fmt: skip
    kernels = [
        read_job(parse_row(completed(row | {"framework": name}))).configuration.optimizer_kernel
        for name in ("PyTorch NGC 22.09", "PyTorch NGC 24.10", "PyTorch")
    ]
    assert kernels == ["plain", "foreach", "plain"]


def test_the_benchmark_of_a_library_names_the_optimizer_of_its_own_results_alone() -> None:
    row = {"model": "resnet50", "gpu": "RTX 3090", "task": "train", "framework": "PyTorch 1.12"}
    own = row | {"source": "timm:results/benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"}
    assert completed(own)["optimizer"] == "sgd-momentum"
    assert "optimizer" not in completed(row | {"source": "somebody:results/train.csv"})
