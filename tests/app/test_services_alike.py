"""One service asked of `plan`, `predict` and `score`: the same times, to one part in a million."""

from __future__ import annotations

import math

import pytest
from tests.sampled import sampled

import paceline
from paceline.catalog.load import load_catalog
from paceline.errors import NoOfferError
from paceline.planning.forecast.services import ServiceCell, first_cell
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.reporting.headlines import predicted_headline
from paceline.reporting.pages.changes import load_section
from paceline.scoring.completion import completed
from paceline.scoring.jobs import Cell
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows, read_cell
from paceline.stack.engines import find_engine

_DEVICE = "H100 SXM5 80GB"
_RATE = 4


@pytest.fixture(scope="module")
def cell() -> ServiceCell:
    grid = paceline.predict(
        "llama-3-8b", task="infer", device=_DEVICE, devices=(1,), rps=_RATE, precision="bf16"
    )
    return grid.services[0]


@pytest.mark.parametrize("engine", sampled(["vLLM 0.19", "vLLM 0.11"], "vLLM 0.11"))
def test_a_published_row_is_answered_as_predict_answers(engine: str) -> None:
    cell = paceline.predict(
        "llama-3-8b", task="infer", device=_DEVICE, devices=(1,), rps=_RATE, precision="bf16",
        framework=engine,
    ).services[0]  # fmt: skip
    row = {
        "model": "llama-3-8b",
        "task": "infer",
        "framework": engine,
        "precision": "bf16",
        "gpu": _DEVICE,
        "n_gpus": "1",
        "unit": "requests/s",
        "extra": f"scenario=server;isl=512;osl=128;rate_per_s={_RATE}",
    }
    answer = predict_rows(
        [parse_row(completed(row))], catalog=load_catalog(), calibration=builtin_calibration()
    )[0]
    assert answer.first_token is not None
    assert answer.per_token is not None
    assert cell.first_token is not None
    assert cell.per_token is not None
    for told, seen in ((answer.first_token, cell.first_token), (answer.per_token, cell.per_token)):
        assert told.p50_mid_s == pytest.approx(seen.p50_s.mid, rel=1e-6)
        assert told.p99_mid_s == pytest.approx(seen.p99_s.mid, rel=1e-6)
    assert answer.throughput_mid == pytest.approx(cell.requests_per_s, rel=1e-6)


def test_a_host_that_schedules_between_steps_costs_its_time_in_each(cell: ServiceCell) -> None:
    before = paceline.predict(
        "llama-3-8b", task="infer", device=_DEVICE, devices=(1,), rps=_RATE, precision="bf16",
        framework="vllm 0.11",
    ).services[0]  # fmt: skip
    assert before.per_token is not None
    assert cell.per_token is not None
    host_s = find_engine("vllm").step_s
    assert host_s is not None
    assert before.per_token.p50_s.mid > cell.per_token.p50_s.mid + host_s


def test_a_plan_has_the_percentile_that_predict_has(cell: ServiceCell) -> None:
    plan = paceline.plan(
        "llama-3-8b", task="infer", rps=_RATE, tpot="50ms", ttft="1s", percentile=95,
        device=_DEVICE, max_devices=1, precision="bf16",
    )  # fmt: skip
    choice = plan.choices[0]
    assert choice.num_devices == 1
    assert choice.ttft_s is not None
    assert choice.latency_s is not None
    assert cell.first_token is not None
    assert cell.per_token is not None
    assert choice.ttft_s.mid == pytest.approx(cell.first_token.p95_s.mid, rel=1e-6)
    assert choice.latency_s.mid == pytest.approx(cell.per_token.p95_s.mid, rel=1e-6)


def test_more_than_a_device_can_do_is_refused_with_what_it_can(cell: ServiceCell) -> None:
    assert cell.capacity_requests_per_s is not None
    most = cell.capacity_requests_per_s.mid
    with pytest.raises(NoOfferError, match=f"at most {most:.3g} requests/s") as caught:
        paceline.predict(
            "llama-3-8b", task="infer", device=_DEVICE, devices=(1,), rps=20 * most,
            precision="bf16",
        )  # fmt: skip
    assert "--devices" in caught.value.hint


def test_no_plan_for_more_than_all_can_do() -> None:
    with pytest.raises(NoOfferError) as caught:
        paceline.plan(
            "llama-3-8b", task="infer", rps=5000, tpot="50ms", device=_DEVICE, max_devices=1
        )
    assert "--rps" in caught.value.hint


def test_what_answers_batches_whole_is_queued_alike() -> None:
    asked = {"rps": 200, "device": "Tesla T4"}
    seen = paceline.predict("bert-base", devices=(1,), compiler="compiled", **asked).services[0]
    choice = paceline.plan("bert-base", max_devices=1, **asked).choices[0]
    assert seen.request is not None
    assert seen.first_token is None
    assert choice.ttft_s is None
    assert choice.latency_s is not None
    assert choice.latency_s.mid == pytest.approx(seen.request.p95_s.mid, rel=1e-6)
    assert choice.service is not None
    assert seen.capacity_requests_per_s is not None
    most = choice.service.capacity_requests_per_s.mid
    assert most == pytest.approx(seen.capacity_requests_per_s.mid, rel=1e-6)


def test_a_load_above_capacity_has_a_status_and_no_times(cell: ServiceCell) -> None:
    grid = paceline.predict("llama-3-8b", device=f"L4,{_DEVICE}", devices=(1,), rps=_RATE)
    small, large = grid.services
    assert (small.status, large.status) == ("overloaded", "served")
    assert small.first_token is small.request is None
    assert small.capacity_requests_per_s is not None
    assert small.capacity_requests_per_s.mid < _RATE
    assert large.settings


def test_a_plan_keeps_its_settings_and_what_it_stands() -> None:
    plan = paceline.plan("llama-3-8b", rps=_RATE, ttft="1s", device=_DEVICE, max_devices=1)
    assert plan.workload.task == "infer"
    service = plan.choices[0].service
    assert service is not None
    assert (service.engine, service.chunk_tokens, service.max_requests) == ("vllm", 8192, 1024)
    loads = [point.requests_per_s for point in service.curve]
    assert loads == sorted(loads)
    assert loads[-1] < service.capacity_requests_per_s.mid
    assert service.curve[-1].request_s > service.curve[0].request_s


def test_a_report_draws_latency_up_to_where_the_service_saturates() -> None:
    plan = paceline.plan("llama-3-8b", rps=_RATE, ttft="1s", device=_DEVICE, max_devices=1)
    section = load_section(plan)
    assert section is not None
    layers = section.charts[0].spec["layer"]
    seen = [one for layer in layers for one in layer["data"]["values"] if "what" in one]
    service = plan.choices[0].service
    assert service is not None
    assert {one["what"] for one in seen} == {"first token", "per token", "whole answer"}
    assert max(one["requests_per_s"] for one in seen) < service.capacity_requests_per_s.mid
    edge = layers[-1]["data"]["values"][0]["requests_per_s"]
    assert edge == service.capacity_requests_per_s.mid


def test_a_first_token_sooner_than_its_way_is_refused_with_the_way() -> None:
    with pytest.raises(NoOfferError, match="the way of a request to vLLM") as caught:
        paceline.plan("llama-3-8b", rps=_RATE, ttft="0.1ms", device=_DEVICE, max_devices=1)
    assert "--ttft 100ms" in caught.value.hint


@pytest.mark.parametrize(
    ("stated", "framework", "compiler", "rewrite"),
    [("MLPerf Inference v4.1; TensorRT 10.2", "tensorrt", "", ""),
     ("diffusers", "torch", "eager", "attention=flash-2")],
)  # fmt: skip
def test_a_picture_of_a_stream_takes_what_predict_says(
    stated: str, framework: str, compiler: str, rewrite: str
) -> None:
    """Of PyTorch without a release, measured before it took cuDNN's attention."""
    grid = paceline.predict(
        "sdxl", task="infer", device=_DEVICE, batch=[1], precision="fp16",
        compiler=compiler or None, denoising_steps=20, framework=framework,
        rewrite=rewrite,
    )  # fmt: skip
    row = {
        "model": "stable-diffusion-xl",
        "task": "infer",
        "framework": stated,
        "precision": "fp16",
        "gpu": _DEVICE,
        "n_gpus": "1",
        "unit": "images/s",
        "compiler_flags": "channels_last",
        "extra": "scenario=single stream;concurrency=1;inference_steps=20",
    }
    cell = read_cell(0, parse_row(completed(row)), load_catalog())
    assert isinstance(cell, Cell)
    answer = predict_rows([cell.row], catalog=load_catalog(), calibration=builtin_calibration())[0]
    level = math.exp(cell.reading.log_level)
    assert answer.step_mid_s == pytest.approx(grid.cells[0].step_s.mid * level, rel=1e-6)


@pytest.mark.parametrize("device", ["TPU v6e (per chip)", "Gaudi 2"])
@pytest.mark.parametrize("asked", [{"rps": 0.5}, {"concurrency": 4}])
def test_where_no_engine_is_known_requests_wait_for_whole_answers(
    device: str, asked: dict[str, float]
) -> None:
    cells = paceline.predict(
        "qwen2.5-0.5b", task="infer", device=device, devices=(1,), precision="bf16", **asked
    ).services
    assert [cell.status for cell in cells] == ["served"]
    assert cells[0].first_token is None
    assert cells[0].request is not None
    assert cells[0].capacity_requests_per_s is not None
    assert cells[0].requests_per_s <= cells[0].capacity_requests_per_s.mid


def test_the_first_sentence_is_of_the_layout_that_can_do_most() -> None:
    """Two replicas and two ranks keep the same rate on the same devices; one can do more."""
    grid = paceline.predict(
        "qwen2.5-14b", device="L40S", devices=(2,), rps=4, prefix_share=0.4,
        adapters="count=24,rank=16",
    )  # fmt: skip
    most = [cell.capacity_requests_per_s for cell in grid.services]
    largest = max(one.mid for one in most if one is not None)
    first = first_cell(grid.services)
    assert first is not None
    assert {cell.requests_per_s for cell in grid.services} == {4.0}
    assert first.capacity_requests_per_s is not None
    assert first.capacity_requests_per_s.mid == largest
    assert f"it can do {largest:.3g}" in predicted_headline(grid)
    assert first.settings


def test_a_plain_loop_answers_batches_of_requests_whole() -> None:
    """Prompt and answer: each was taken to be one token, 2,590 requests a second on an L4."""
    asked = {"task": "infer", "device": "l4", "framework": "torch"}
    alone = paceline.predict("llama-3-8b", batch=(1,), **asked).cells[0]
    (cell,) = paceline.predict("llama-3-8b", concurrency=1, **asked).services
    assert cell.request.p50_s.mid == pytest.approx(alone.step_s.mid, rel=0.02)
    several = paceline.predict("llama-3-8b", batch=(8,), **asked).cells[0]
    each_per_s = 1.0 / alone.step_s.mid
    assert 8 / several.step_s.mid <= cell.capacity_requests_per_s.mid < 64 * each_per_s


def test_a_large_model_in_four_bits_runs_on_two_cards_of_24_gb() -> None:
    """As people run it: buffers that are made once leave nothing unused between blocks."""
    grid = paceline.predict(
        "llama-3.3-70b", task="infer", device="RTX 4090", devices=(2,), precision="q4_k_m",
        batch=(1,),
    )  # fmt: skip
    (cell,) = grid.cells
    assert cell.status == "fits"
    parts = cell.memory_parts
    told_bytes = parts.weights_bytes + parts.rest_bytes + parts.process_bytes
    assert told_bytes == pytest.approx(cell.memory_bytes.mid, rel=0.001)
    assert any("one after the other" in said for said in grid.assumptions)


@pytest.mark.parametrize("model", ["wan2.1-t2v-1.3b", "pixart-sigma", "cogvideox-5b"])
def test_weights_beside_a_denoiser_count_once_whichever_network_is_larger(model):
    """Their sum is what stands in memory: never more than all that does."""
    cell = paceline.predict(model, task="infer", device="a100", batch=1).cells[0]
    parts = cell.memory_parts
    told_bytes = parts.weights_bytes + parts.rest_bytes + parts.process_bytes
    assert told_bytes == pytest.approx(cell.memory_bytes.mid, rel=1e-6)
    assert parts.rest_bytes > 0
