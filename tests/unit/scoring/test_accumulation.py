"""What happens once a step and what with every microbatch, on one device and on several."""

from __future__ import annotations

import pytest

from paceline.catalog.load import load_catalog
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows

BASE = {
    "model": "llama3_8b", "task": "train", "framework": "PyTorch 2.4 (llm-foundry)",
    "precision": "bf16-true", "compiler_flags": "FSDP mp_mode=PURE", "gpu": "A100-SXM4-80GB",
    "gpu_mem_gb": "80", "n_gpus": "8", "n_nodes": "1", "interconnect": "NVLink",
    "parallelism": "FSDP FULL_SHARD", "batch_per_gpu": "1", "grad_accum": "1", "seq_len": "2048",
    "unit": "tok/s",
}  # fmt: skip


def steps_s(*changes: dict[str, str]) -> list[float]:
    rows = [parse_row(BASE | change) for change in changes]
    answers = predict_rows(rows, catalog=load_catalog())
    return [answer.step_mid_s or 0.0 for answer in answers]


def test_parameters_are_updated_once_a_step() -> None:
    """By kernels that touch each of 8 billion parameters 20 times in 16 bits, none at the peak."""
    alone = {"n_gpus": "1", "parallelism": ""}
    one_s, two_s, four_s = steps_s(*(alone | {"grad_accum": n} for n in ("1", "2", "4")))
    update_s = 2.0 * one_s - two_s
    at_peak_s = 20 * 2 * 8.03e9 / 2.039e12
    assert at_peak_s < update_s < 2.0 * at_peak_s
    assert four_s == pytest.approx(4.0 * one_s - 3.0 * update_s)
    longer = alone | {"seq_len": "4096"}
    one_s, four_s = steps_s(longer, longer | {"grad_accum": "4"})
    assert 3.0 * one_s < four_s < 3.9 * one_s


def test_an_update_that_the_host_dispatches_is_waited_for_once() -> None:
    """BERT's own optimizer launches some twenty kernels for each of 400 tensors, one by one."""
    job = {
        "model": "bert-large", "framework": "PyTorch", "precision": "fp32", "n_gpus": "1",
        "parallelism": "", "batch_per_gpu": "2", "seq_len": "128", "compiler_flags": "",
        "optimizer": "bert-adam", "rewrite": "optimizer_kernel=plain",
    }  # fmt: skip
    one_s, two_s, eight_s = steps_s(*(job | {"grad_accum": n} for n in ("1", "2", "8")))
    update_s = 2.0 * one_s - two_s
    touched_s = 20 * 4 * 0.335e9 / 2.039e12
    assert update_s > 5.0 * touched_s
    assert eight_s == pytest.approx(8.0 * one_s - 7.0 * update_s)


def test_a_rank_that_shards_updates_only_its_part() -> None:
    whole_s, sharded_s = steps_s({"parallelism": "dp"}, {})
    assert sharded_s < whole_s


def test_fully_sharded_parameters_are_gathered_for_every_microbatch() -> None:
    """Nearly all of a step repeats: gathers do, the sharded update is small."""
    one_s, four_s = steps_s({}, {"grad_accum": "4"})
    assert four_s == pytest.approx(4.0 * one_s, rel=0.05)
