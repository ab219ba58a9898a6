"""What a benchmark's submissions run stands in their scripts, not in its tables."""

from __future__ import annotations

import pytest

from paceline.catalog import load_catalog
from paceline.scoring.benchmark_facts import with_benchmark_facts
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows

BASE = {
    "model": "bert", "task": "train", "framework": "NGC MXNet 23.09", "gpu": "H100-SXM5-80GB",
    "n_gpus": "8", "n_nodes": "1", "interconnect": "NVSwitch", "batch_per_gpu": "48",
    "seq_len": "512", "unit": "seq/s", "input_data": "real (MLPerf)",
}  # fmt: skip


def facts(**change: str):
    return with_benchmark_facts(parse_row(BASE | change))


def test_facts_follow_the_benchmark_and_the_device():
    assert [facts(gpu=gpu).precision for gpu in ("H100-SXM5-80GB", "A30")] == [
        "fp8-true", "fp16-true",
    ]  # fmt: skip
    assert facts(model="minigo").precision == "", "nothing is known of it"


@pytest.mark.parametrize(
    "where", [{"input_data": "real (MLPerf)"}, {"source": "mlcommons/training_results_v3.1"},
              {"framework": "MLPerf v4.0"}],
)  # fmt: skip
def test_the_benchmark_is_known_by_any_of_three_columns(where):
    silent = {"input_data": "", "source": ""}
    assert facts(**(silent | where)).precision == "fp8-true"
    assert facts(**silent).precision == ""


def test_a_release_that_prints_one_precision_speaks_for_itself_alone():
    def taken(release: str) -> str:
        return facts(
            framework=f"NeMo Megatron-Bridge {release} NeMo Container", input_data=""
        ).precision

    assert [taken(release) for release in ("25.09", "26.06")] == ["FP8", ""]


def test_what_a_row_states_stays():
    stated = facts(precision="bf16", parallelism="FSDP")
    assert (stated.precision, stated.parallelism) == ("bf16", "FSDP")
    assert facts(task="infer").precision == "", "facts are of training"


def test_a_row_of_the_benchmark_is_answered_and_no_other():
    told, silent = predict_rows(
        [parse_row(BASE), parse_row(BASE | {"input_data": "real"})], catalog=load_catalog()
    )
    assert told.throughput_mid is not None
    assert "benchmark" in told.note
    assert silent.reason == "no precision"
