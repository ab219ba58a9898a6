"""Rows of what serves requests: read, answered by the queue, in their own units."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from paceline.catalog.load import load_catalog
from paceline.scoring.answers import Answer, write_answers
from paceline.scoring.completion import completed
from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.rows import Row, parse_row
from paceline.scoring.score import predict_rows
from paceline.scoring.services.loads import load_of

_ROW = {
    "model": "gpt2",
    "task": "infer",
    "framework": "vLLM 0.19",
    "precision": "bf16",
    "gpu": "H100 SXM5 80GB",
    "n_gpus": "1",
    "unit": "output tokens/s",
}


def _row(extra: str, **cells: str) -> Row:
    return parse_row(completed(_ROW | cells | {"extra": extra}))


def _answers(*rows: Row) -> list[Answer]:
    return predict_rows(rows, catalog=load_catalog())


@pytest.mark.parametrize(
    ("words", "scenario"),
    [
        ("single stream", "static"),
        ("static batch, one shot", "static"),
        ("offline", "backlog"),
        ("server", "poisson"),
        ("interactive", "poisson"),
        ("closed loop", "closed"),
        ("all requests at once, ShareGPT", "at-once"),
        ("largest batch that fits", "backlog"),
        ("constant or poisson rate (guidellm)", "poisson"),
        ("words of somebody", "closed"),
    ],
)
def test_a_scenario_says_how_requests_come(words: str, scenario: str) -> None:
    row = _row(f"scenario={words};isl=128;osl=32;concurrency=4")
    assert load_of(row, generates=True).scenario == scenario


def test_mean_lengths_that_are_no_whole_numbers_spread() -> None:
    spread, alike = (
        load_of(_row(f"scenario=offline;isl={isl};osl=100"), generates=True).load
        for isl in ("219.2", "219")
    )
    assert (spread.prompt.spread, alike.prompt.spread) == (0.7, 0.0)


def test_unstated_lengths_and_scenarios_are_reasons() -> None:
    with pytest.raises(UnresolvedRowError, match="not stated"):
        load_of(_row("scenario=offline"), generates=True)
    with pytest.raises(UnresolvedRowError, match="how requests come"):
        load_of(_row("scenario=words;isl=1;osl=1"), generates=True)


def test_a_closed_loop_is_littles_law_in_every_unit() -> None:
    extra = "scenario=closed loop;isl=100;osl=50;concurrency=16"
    units = ("output tokens/s", "input+output tokens/s", "requests/s", "output tokens/s/GPU")
    rates = [one.throughput_mid for one in _answers(*(_row(extra, unit=u) for u in units))]
    assert None not in rates
    tokens, both, requests, each = (float(rate or 0.0) for rate in rates)
    assert tokens == pytest.approx(50 * requests)
    assert both == pytest.approx(150 * requests)
    assert each == pytest.approx(tokens)


def test_a_rate_below_capacity_is_delivered_and_one_above_is_not() -> None:
    low, high = _answers(
        *(
            _row(f"scenario=server;isl=100;osl=50;rate_per_s={r}", unit="requests/s")
            for r in (2, 1e4)
        )
    )
    assert low.throughput_mid == pytest.approx(2.0)
    assert high.throughput_mid is not None
    assert high.throughput_mid < 9e3
    assert low.first_token is not None
    assert high.first_token is not None
    assert high.first_token.p99_mid_s > 10 * low.first_token.p99_mid_s


def test_a_row_whose_rate_is_impossible_fails_alone() -> None:
    extra = "scenario=server;isl=100;osl=50;rate_per_s={}"
    wrong, right = _answers(
        *(_row(extra.format(rate), unit="requests/s", n_gpus="8") for rate in ("3e9", "20"))
    )
    assert "cannot be served" in wrong.reason
    assert right.throughput_mid == pytest.approx(20.0)


def test_beams_of_a_search_are_written_at_once_and_share_their_prompt() -> None:
    one, searched, apart = _answers(
        _row("scenario=offline;isl=800;osl=64", unit="requests/s"),
        _row("scenario=offline;isl=800;osl=64", unit="requests/s", compiler_flags="beam=4"),
        _row("scenario=offline;isl=800;osl=256", unit="requests/s"),
    )
    assert apart.throughput_mid < searched.throughput_mid < one.throughput_mid


def test_mlperfs_gptj_is_searched_with_four_beams() -> None:
    row = _row("scenario=offline", model="gptj-99", framework="MLPerf Inference v4.1; TensorRT 10")
    assert "beam=4" in row.flags
    assert (row.input_tokens, row.output_tokens) == (778, 69)


def test_limits_without_a_rate_ask_for_the_rate_that_keeps_them() -> None:
    extra = "scenario=server;isl=2000;osl=5;ttft_p99_limit_ms={}"
    tight, loose, free = _answers(
        *(_row(extra.format(limit), unit="requests/s") for limit in (60, 2000)),
        _row("scenario=offline;isl=2000;osl=5", unit="requests/s"),
    )
    rates = [one.throughput_mid or 0.0 for one in (tight, loose, free)]
    assert 0.0 < rates[0] < rates[1] <= rates[2]
    assert loose.first_token is not None
    assert loose.first_token.p99_mid_s <= 2.0


def test_intervals_are_in_order_and_replicas_add_up() -> None:
    extra = "scenario=offline;isl=100;osl=50"
    harness = "MLPerf Inference; vLLM 0.19"
    one, eight = _answers(_row(extra), _row(extra, n_gpus="8", framework=harness))
    assert one.throughput_low is not None
    assert one.throughput_mid is not None
    assert one.throughput_high is not None
    assert one.throughput_low < one.throughput_mid < one.throughput_high
    assert eight.throughput_mid == pytest.approx(8 * one.throughput_mid)


def test_an_engine_without_degrees_takes_no_more_devices_than_its_weights_need() -> None:
    extra = "scenario=offline;isl=100;osl=50"
    small, alone = _answers(_row(extra, n_gpus="8"), _row(extra))
    assert small.throughput_mid == pytest.approx(alone.throughput_mid)
    assert "1 replicas of 1 devices" in small.note
    (tight,) = _answers(_row(extra, n_gpus="2", model="gpt-oss-120b", precision="mxfp4"))
    assert "1 replicas of 1 devices" in tight.note
    large, shared = _answers(
        *(
            _row(extra, n_gpus="4", model="llama-3-70b", parallelism=degrees)
            for degrees in ("", "tp=4")
        )
    )
    assert large.throughput_mid == pytest.approx(shared.throughput_mid)


def test_what_generates_on_tensorrt_is_served_by_its_engine() -> None:
    extra = "scenario=offline;isl=100;osl=50"
    runtime, engine = _answers(
        *(_row(extra, framework=name) for name in ("MLPerf; TensorRT 10.2.0", "TensorRT-LLM"))
    )
    assert runtime.throughput_mid == pytest.approx(engine.throughput_mid)


def test_columns_of_latencies_are_written_in_seconds(tmp_path: Path) -> None:
    rows = [_row("scenario=closed loop;isl=100;osl=50;concurrency=4")]
    path = tmp_path / "out.csv"
    write_answers(path, rows, _answers(*rows))
    with path.open(encoding="utf-8") as lines:
        found = next(csv.DictReader(lines))
    for name in ("tpot", "ttft"):
        for percentile in ("p50", "p99"):
            low, mid, high = (
                float(found[f"{name}_{percentile}_{bound}_s"]) for bound in ("low", "mid", "high")
            )
            assert 0.0 < low < mid < high < 1.0
            assert math.isfinite(high)


def test_a_rate_that_was_kept_says_how_slow_steps_are() -> None:
    extra = "scenario=server;isl=294.5;osl=290.5;rate_per_s={};tpot_p99_limit_ms=200"
    extra += ";ttft_p99_limit_ms=2000"
    harness = "MLPerf Inference; TensorRT 10.2.0"
    cells = {"model": "llama-2-70b", "precision": "fp8", "gpu": "H200 SXM", "framework": harness}
    slow, fast = (_answers(_row(extra.format(rate), **cells))[0] for rate in (6, 13))
    for one, rate in ((slow, 6), (fast, 13)):
        assert one.per_token is not None
        assert one.first_token is not None
        assert one.per_token.p99_mid_s < 0.2
        assert one.first_token.p99_mid_s < 2.0
        assert one.per_token.p50_low_s < one.per_token.p50_mid_s < one.per_token.p50_high_s
        assert one.throughput_mid == pytest.approx(290.5 * rate, rel=0.05)
    assert slow.per_token is not None
    assert slow.per_token.p50_mid_s > 0.06


def test_pieces_of_a_picture_are_read_together() -> None:
    """One network over 1,200 pixels of a side, told as 16 of 300, is no sixteen steps of one."""
    stream = {
        "framework": "MLPerf Inference v1.1; TensorRT 8.0",
        "precision": "int8",
        "gpu": "A100 SXM4 80GB",
        "unit": "ms latency",
    }
    whole, piece = _answers(
        _row("scenario=single stream;concurrency=1", model="ssd-resnet34", **stream),
        _row("scenario=single stream;concurrency=1", model="ssd300", **stream),
    )
    assert whole.step_mid_s is not None
    assert piece.step_mid_s is not None
    assert whole.step_mid_s < 8 * piece.step_mid_s


def test_an_engine_that_shares_no_layer_is_no_faster_on_more_devices() -> None:
    one, two = (
        _row(
            "scenario=single stream;isl=128;osl=32;concurrency=1", framework="llama.cpp",
            n_gpus=count, parallelism=f"tp={count}",
        )
        for count in ("1", "2")
    )  # fmt: skip
    alone, both = _answers(one, two)
    assert both.throughput_mid == pytest.approx(alone.throughput_mid)


def test_a_late_item_of_a_single_stream_takes_longer_than_the_usual_one() -> None:
    """Volumes of KiTS19 are of unlike sizes, those of BraTS alike."""
    cells = {"model": "3d-unet-99", "precision": "int8", "gpu": "NVIDIA A30"}
    late, usual = (
        _row(
            "scenario=singlestream;concurrency=1", **cells, unit=unit,
            framework="MLPerf Inference v3.0; TensorRT 8.6",
        )
        for unit in ("ms latency (p90 single stream, p99 multi stream)", "ms")
    )  # fmt: skip
    told = [answer.throughput_mid for answer in _answers(late, usual)]
    assert told[0] == pytest.approx(1.72 * told[1], rel=1e-3)
    whole = _row(
        "scenario=singlestream;concurrency=1", **cells, unit="ms latency (p90 single stream)",
        framework="MLPerf Inference v1.1; TensorRT 8.0",
    )  # fmt: skip
    assert whole.time_factor == 1.0


def test_gaudi_by_optimum_habana_shares_layers_and_keeps_a_cache_in_eight_bits() -> None:
    row = {
        "source": "huggingface/optimum-habana", "framework": "Optimum Habana", "task": "infer",
        "model": "llama-2-70b", "gpu": "Intel Gaudi 2", "precision": "fp8", "n_gpus": "4",
        "extra": "scenario=static batch;isl=128;osl=128;concurrency=8",
    }  # fmt: skip
    found = completed(row)
    assert (found["parallelism"], found["compiler_flags"]) == ("tp=4", "KV cache=fp8")
    assert not completed(row | {"n_gpus": "1"}).get("parallelism")
    assert completed(row | {"parallelism": "tp=2"})["parallelism"] == "tp=2"


def test_modules_called_one_by_one_write_a_token_as_slowly_as_their_host() -> None:
    """GPT-2's steps are launches alone; two published sources have 20 to 27 us for each."""
    load = "scenario=single stream;isl=128;osl=32;concurrency=1"
    loop, engine = _answers(_row(load, framework="transformers (pytorch)"), _row(load))
    assert loop.per_token.p50_mid_s > 3.0 * engine.per_token.p50_mid_s


def test_a_server_around_a_loop_answers_one_request_after_the_other() -> None:
    def told(scenario: str, concurrency: int) -> Row:
        load = f"scenario={scenario};isl=128;osl=32;concurrency={concurrency}"
        return _row(load, framework="text-generation-webui Transformers")

    one, four, batch = _answers(
        told("closed loop", 1), told("closed loop", 4), told("static batch", 4)
    )
    assert four.throughput_mid == pytest.approx(one.throughput_mid, rel=1e-3)
    assert batch.throughput_mid > 3.0 * one.throughput_mid
    assert four.first_token.p50_mid_s > 2.0 * one.first_token.p50_mid_s


def test_an_engine_without_graphs_waits_for_its_launches() -> None:
    load = "scenario=single stream;isl=128;osl=32;concurrency=1"
    names = ("DeepSpeed-MII", "vLLM 0.2.7", "vLLM 0.6.0")
    mii, early, later = _answers(*(_row(load, framework=name) for name in names))
    assert max(mii.throughput_mid, early.throughput_mid) < 0.7 * later.throughput_mid


def test_weights_in_fp8_are_widened_where_no_unit_multiplies_them() -> None:
    load = "scenario=single stream;isl=128;osl=32;concurrency=1"
    narrow, widened, wide = _answers(
        *(
            _row(load, gpu="A100 SXM4 80GB", precision=precision)
            for precision in ("fp8", "8-bit weights", "bf16")
        )
    )
    assert not narrow.reason
    assert narrow.throughput_mid == pytest.approx(widened.throughput_mid)
    assert narrow.memory_mid_bytes < wide.memory_mid_bytes


def test_a_recording_is_transcribed_whole() -> None:
    row = _row(
        "scenario=one file of 13 minutes;concurrency=1", model="whisper-small", precision="fp16",
        framework="faster-whisper", unit="audio seconds/s", global_batch="1",
    )  # fmt: skip
    (answer,) = _answers(row)
    assert not answer.reason
    assert answer.throughput_mid > 10.0
