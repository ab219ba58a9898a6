"""Published serving runs: what is asked of each, and where nothing is; how experts are reached."""

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("scipy")
pytest.importorskip("torch")
RUN = {
    "silicon_data_source": "db-dump/2026-04-27; config_id=1", "backend": "vllm", "mode": "agg",
    "backend_version": "0.18.0",
    "model_path": "meta-llama/Llama-3.1-70B", "system": "h100_sxm", "precision": "fp8",
    "gemm_quant_mode": "fp8", "isl": 1000, "osl": 500, "batch_size": 16.0, "tp_size": 4.0,
    "attention_dp_size": np.nan, "moe_tp_size": 4.0, "moe_ep_size": 1.0,
    "silicon_ttft_ms": 100.0, "silicon_tpot_ms": 10.0, "pp_size": 1.0,
    "decode_batch_size": np.nan, "decode_tp_size": np.nan, "decode_pp_size": np.nan,
    "decode_attention_dp_size": np.nan, "decode_moe_tp_size": np.nan, "decode_moe_ep_size": np.nan,
}  # fmt: skip


def read(tmp_path, **changes):
    from accuracy_serving.rows import read_runs

    path = tmp_path / "runs.csv"
    pd.DataFrame([RUN | changes]).to_csv(path, index=False)
    return read_runs(path).iloc[0]


def test_lengths_and_rounds_are_those_of_the_benchmark(tmp_path):
    run = read(tmp_path)
    assert (run.input_tokens, run.output_tokens, run.rounds) == (900.0, 450.0, 10.0)
    other = read(tmp_path, silicon_data_source="somewhere")
    assert other.input_tokens == 1000
    assert np.isnan(other.rounds)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"mode": "disagg"}, "devices of their own"),
        ({"model_path": "nobody/nothing"}, "not known"),
        ({"tp_size": 64.0, "moe_tp_size": 64.0}, "servers of prompts and of tokens"),
    ],
)
def test_what_is_not_predicted_says_why(tmp_path, changes, reason):
    found = read(tmp_path, **changes).reason
    assert reason in found
    assert bool(found) == bool(changes)


def test_tensors_and_experts_over_the_same_ranks_are_so_many_devices(tmp_path):
    assert read(tmp_path, tp_size=64.0, moe_tp_size=8.0, moe_ep_size=8.0).ranks == 8
    assert read(tmp_path, tp_size=8.0, moe_tp_size=2.0, moe_ep_size=4.0).ranks == 8


def test_ranks_with_requests_of_their_own_share_those_in_flight(tmp_path):
    """Whether the degrees of tensors and of replicas are told apart, or both as all devices."""
    apart = read(tmp_path, tp_size=1.0, attention_dp_size=8.0, moe_tp_size=1.0, moe_ep_size=8.0)
    assert (apart.ranks, apart.replicas, apart.concurrency) == (8, 8, 128)
    both = read(tmp_path, tp_size=4.0, attention_dp_size=4.0, moe_tp_size=1.0, moe_ep_size=16.0)
    assert (both.ranks, both.replicas, both.concurrency) == (4, 4, 64)
    product = {"tp_size": 1.0, "attention_dp_size": 64.0, "moe_tp_size": 8.0, "moe_ep_size": 8.0}
    run = read(tmp_path, backend="trtllm", batch_size=2.0, **product)
    assert (run.ranks, run.replicas, run.concurrency, run.balance_steps) == (8, 8, 128, 60)
    assert not read(tmp_path, isl=1024, batch_size=1.0, **product).gave_path
    none = read(tmp_path, attention_dp_size=0.0)
    assert (none.reason, none.ranks, none.replicas, none.concurrency) == ("", 4, 1, 16)


def test_devices_that_only_write_are_asked_for_their_steps_alone(tmp_path):
    written = {"decode_batch_size": 48.0, "decode_tp_size": 8.0, "batch_size": np.nan}
    run = read(tmp_path, mode="disagg", tp_size=np.nan, **written)
    assert (run.reason, run.concurrency, run.ranks) == ("", 48.0, 8.0)
    assert np.isnan(run.rounds)


def test_runs_that_gave_the_way_of_a_request_do_not_judge_it(tmp_path):
    few = {"isl": 1024, "batch_size": 8.0}
    assert read(tmp_path, **few).gave_path
    for other in ({"isl": 8192}, {"batch_size": 16.0}, {"system": "b200_sxm"}):
        assert not read(tmp_path, **few | other).gave_path


def test_four_bits_are_multiplied_only_where_units_do(tmp_path):
    assert read(tmp_path, precision="fp4").format == "int4"
    assert read(tmp_path, precision="fp4", system="b200_sxm").format == "fp4"
    assert read(tmp_path, precision=np.nan, gemm_quant_mode=np.nan).format == "bf16"


def test_four_bits_of_a_model_released_in_mxfp4_are_those(tmp_path):
    """And the kernel of its experts is that which the benchmark's scripts set."""
    own = {"precision": "fp4", "model_path": "openai/gpt-oss-120b"}
    for changes, kernel in (
        ({}, "marlin"),
        ({"backend_version": "0.11.2"}, ""),
        ({"system": "b200_sxm"}, "trtllm-mxfp8"),
        ({"backend": "trtllm"}, ""),
    ):
        run = read(tmp_path, **own | changes)
        assert (run.format, run.kernel) == ("mxfp4", kernel)
    assert read(tmp_path, **own | {"precision": "fp8"}).kernel == ""


def test_the_page_counts_and_compares(tmp_path):
    from accuracy_serving.report import page
    from accuracy_serving.rows import read_runs

    path = tmp_path / "runs.csv"
    pd.DataFrame([RUN] * 3 + [RUN | {"mode": "disagg"}]).to_csv(path, index=False)
    runs = read_runs(path)
    asked = runs.reason == ""
    runs = runs.assign(ttft_ms=150.0, tpot_ms=np.where(asked, 12.0, np.nan))
    text = page(runs)
    assert "3 of 4 runs (75%)" in text
    assert "| dense | 3 | 1.20 | 20% | 20% | 3 | 1.50 | 50% | 50% |" in text


def test_unbalanced_routers_reach_fewer_experts_with_as_many_rows():
    from fit.experts import routed

    even, uneven = (routed(64, 8, 256, 1, name) for name in ("balanced", "power_law_1.2"))
    assert uneven[0] < even[0]
    assert uneven[0] * uneven[1] == pytest.approx(64 * 8)
    assert even == (256.0, 2.0)


def test_ranks_share_the_experts_of_a_balanced_router():
    from fit.experts import routed

    assert routed(256, 8, 128, 4, "balanced") == (32.0, 16.0)


def test_blocks_are_counted_from_the_tokens_of_each_expert():
    """A router that is not even fills more blocks; experts of several ranks get higher ones."""
    from fit.marlin_experts import filled_blocks

    even, uneven = (filled_blocks(3072, 8, 384, 1, name) for name in ("balanced", "power_law_1.2"))
    assert even == (384.0, 64.0, 384.0, 64.0)
    assert uneven[2] > 1.2 * even[2]
    assert filled_blocks(512, 8, 384, 1, "balanced")[3] == 16.0
    assert filled_blocks(512, 8, 384, 8, "balanced")[3] == 64.0
