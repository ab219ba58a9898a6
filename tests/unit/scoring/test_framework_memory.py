"""Peaks of ranks as frameworks plan them, against counts by hand."""

from __future__ import annotations

from paceline.catalog.load import load_catalog
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows

#: FP32 weights and gradients and two FP32 moments, which `run_check_capacity` of llm-foundry's
#: benchmarks counts too.
FULLY_SHARDED_BYTES = 4 + 4 + 8
FOUNDRY = {
    "model": "MPT-30b", "task": "train", "framework": "PyTorch (llm-foundry/Composer FSDP)",
    "precision": "amp_bf16", "compiler_flags": "activation checkpointing; FSDP mp_mode=DEFAULT",
    "gpu": "A100-SXM4-80GB", "gpu_mem_gb": "80", "n_gpus": "8", "n_nodes": "1",
    "interconnect": "NVLink", "parallelism": "FSDP FULL_SHARD", "batch_per_gpu": "1",
    "grad_accum": "21", "seq_len": "2048", "params_m": "29975.2", "unit": "tok/s",
}  # fmt: skip


def test_composer_shards_fp32_weights_and_states_and_updates_them_one_by_one() -> None:
    """Its 30 billion parameters ran on eight devices of 80 GB, with no room for temporaries."""
    (answer,) = predict_rows([parse_row(FOUNDRY)], catalog=load_catalog())
    state_bytes = FULLY_SHARDED_BYTES * 29.98e9 / 8
    assert answer.memory_low_bytes is not None
    assert state_bytes < answer.memory_low_bytes < 1.5 * state_bytes
    assert answer.fits != "no"
