"""One serving run has one answer, whoever asks: predict, plan, and the benchmark's function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import paceline
from paceline.catalog.entities import Link
from paceline.catalog.entities import Machine as OwnMachine
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.catalog.offer_links import machine_links
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.serving.batching import (
    EnginePasses,
    ServingRuns,
    ServingTimes,
    request_times,
)
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planning.forecast.grid import GridCell
from paceline.planning.goal.options import format_goal, parse_goal
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.engine_tables import EngineTable, engine_tables
from paceline.simulation.queue.load import Requests
from paceline.simulation.queue.step_loop import run_steps
from paceline.simulation.simulator import simulate
from paceline.stack.engines import find_engine

AS_OF = "2026-11-20"
MODEL, DEVICE, REQUESTS, PROMPT, OUTPUT = "llama-3-8b", "H100 SXM5 80GB", 32, 512, 128
#: A machine of one's own.
LAB = """
machines:
  - {name: lab, device: H100 SXM5 80GB, num_devices: 4}
"""


def predicted(**options: object) -> GridCell:
    asked = {"task": "infer", "device": DEVICE, "batch": (REQUESTS,)} | options
    return paceline.predict(MODEL, **asked).cells[0]


def benchmark(name: str = "vllm", ranks: int = 1, link: Link | None = None) -> ServingTimes:
    """As `tools/accuracy_serving` asks."""
    device = find_device(load_catalog(), DEVICE)
    engine = find_engine(name).on(device)
    job = Job(
        workload=load_workload(MODEL, task="infer"),
        configuration=Configuration(precision="bf16"),
        strategy=Strategy.from_degrees(tp=ranks), batch=REQUESTS,
        prompt_tokens=PROMPT, output_tokens=OUTPUT, profile=str(engine),
    )  # fmt: skip
    steps = simulate([job], [Machine.of(device, ranks, device_link=link)])
    runs = ServingRuns.of(np.array([float(REQUESTS)]), PROMPT, OUTPUT)
    return request_times(runs, EnginePasses.of(steps), engine)


@pytest.mark.parametrize("engine", ["vllm", "vllm 0.12", "sglang", "trtllm"])
def test_predict_answers_by_the_function_that_the_benchmark_judges(engine: str) -> None:
    cell, times = predicted(framework=engine), benchmark(engine)
    assert cell.latency_s.mid == pytest.approx(times.per_token_s[0], rel=1e-6)
    assert cell.ttft_s.mid == pytest.approx(times.first_token_s[0], rel=1e-6)
    assert cell.step_s.mid == pytest.approx(times.request_s[0], rel=1e-6)
    per_s = REQUESTS * OUTPUT / float(times.request_s[0])
    assert cell.samples_per_s.mid == pytest.approx(per_s, rel=1e-6)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize(
    ("requests", "prompt", "output"), [(32, 512, 128), (64, 128, 128), (128, 64, 64)]
)
def test_requests_that_come_at_once_take_what_the_step_loop_takes(
    engine: str, requests: int, prompt: int, output: int
) -> None:
    """Step by step with the same passes; short prompts that read weights each were twice it."""
    job = Job(
        workload=load_workload(MODEL, task="infer"), configuration=Configuration(precision="bf16"),
        batch=requests, prompt_tokens=prompt, output_tokens=output, profile=engine,
    )  # fmt: skip
    machine = Machine.of(find_device(load_catalog(), DEVICE), 1)
    told = simulate([job], [machine])
    (table,) = engine_tables([replace(job, batch=1, output_tokens=1)], [machine])
    assert isinstance(table, EngineTable)
    alike = np.ones(requests, dtype=np.int64)
    asked = Requests(
        arrival_s=np.zeros(requests), prompt_tokens=prompt * alike, output_tokens=output * alike
    )
    seen = run_steps(asked, table.times, table.batching)
    assert told.step_s[0] == pytest.approx(seen.finish_s.max(), rel=0.12)
    per_token_s = float((seen.finish_s - seen.first_token_s).mean()) / (output - 1)
    assert told.per_token_s[0] == pytest.approx(per_token_s, rel=0.12)


def test_a_device_fills_its_steps_alone_as_beside_others() -> None:
    """The engine reads 8,192 tokens a step on an H100, and 2,048 on an A100 or a small card."""
    devices = ("H100 SXM5 80GB", "A100 SXM4 80GB", "L4")
    both = paceline.predict(MODEL, task="infer", device=devices, batch=(REQUESTS,)).cells
    for cell, device in zip(both, devices, strict=True):
        alone = predicted(device=device)
        assert cell.ttft_s.mid == pytest.approx(alone.ttft_s.mid, rel=1e-6), device
        assert cell.memory_bytes.mid == pytest.approx(alone.memory_bytes.mid, rel=1e-6), device
    # Prompts that come at once are read in one step, as many as it has room for.
    count, way_s = 8192 // PROMPT, find_engine("vllm").path_s
    one_s, all_s = (predicted(batch=(n,)).ttft_s.mid - way_s for n in (1, count))
    assert all_s > 0.7 * count * one_s


def test_a_format_of_files_is_served_by_what_reads_it() -> None:
    """vLLM hardly serves files of llama.cpp; whoever names it gets it all the same."""
    asked = {"task": "infer", "device": "RTX 4090", "batch": (1,)}
    names = {"q4_k_m": None, "int4": None, "Q8_0": None, "Q4_0": "vllm"}
    told = {
        name: " ".join(
            paceline.predict(MODEL, precision=name, framework=framework, **asked).assumptions
        )
        for name, framework in names.items()
    }
    by = {name: next(one for one in ("llama.cpp", "vLLM") if f"served by {one}" in words)
          for name, words in told.items()}  # fmt: skip
    assert by == {"q4_k_m": "llama.cpp", "int4": "vLLM", "Q8_0": "llama.cpp", "Q4_0": "vLLM"}
    goal = parse_goal({"precision": "q4_k_m"})
    assert parse_goal(format_goal(goal)) == goal


@pytest.mark.parametrize("framework", [None, "sglang", "torch"])
def test_a_pinned_plan_answers_as_predict(framework: str | None) -> None:
    stated = {} if framework is None else {"framework": framework}
    plan = paceline.plan(
        MODEL, task="infer", device=DEVICE, max_devices=1, as_of=AS_OF, **stated,
        pin=f"batch={REQUESTS}",
    )  # fmt: skip
    cell, choice = predicted(**stated, **_compiled(framework)), plan.choices[0]
    for name in ("latency_s", "ttft_s", "step_s", "samples_per_s", "memory_bytes"):
        mine, others = getattr(cell, name), getattr(choice, name)
        assert mine.mid == pytest.approx(others.mid, rel=1e-6), name
        assert mine.high == pytest.approx(others.high, rel=1e-6), name


@pytest.mark.parametrize("release", ["vLLM 0.12.0", "vLLM 0.19.0"])
def test_a_row_that_states_the_same_is_scored_alike(release: str) -> None:
    """`score` adds nothing to what `predict` says of the engine, its release and its requests."""
    row = {
        "model": MODEL, "task": "infer", "framework": release, "precision": "bf16",
        "gpu": "H100 SXM5 80GB", "n_gpus": "1", "batch_per_gpu": str(REQUESTS),
        "compiler_flags": f"ISL={PROMPT}; OSL={OUTPUT}",
    }  # fmt: skip
    (answer,) = predict_rows([parse_row(row)], catalog=load_catalog())
    assert answer.step_mid_s == pytest.approx(predicted(framework=release).latency_s.mid, rel=1e-6)


def _compiled(framework: str | None) -> dict[str, str]:
    """Of a loop, what a plan takes."""
    return {"compiler": "compiled"} if framework == "torch" else {}


def test_ranks_that_share_a_model_answer_alike(tmp_path: Path) -> None:
    """A plan pins the strategy that predict takes where one device cannot hold the model."""
    facts = tmp_path / "lab.yaml"
    facts.write_text(LAB)
    plan = paceline.plan(
        MODEL, task="infer", facts=[facts], cloud="own", as_of=AS_OF,
        pin=f"batch={REQUESTS},strategy=tp4",
    )  # fmt: skip
    machine = OwnMachine(name="lab", device_name=DEVICE, num_devices=4)
    link = machine_links(load_catalog(), machine).device
    times = benchmark(ranks=4, link=link)
    choice = plan.choices[0]
    assert choice.strategy == "tp4"
    assert choice.latency_s.mid == pytest.approx(times.per_token_s[0], rel=1e-6)
    assert choice.ttft_s.mid == pytest.approx(times.first_token_s[0], rel=1e-6)
    assert choice.step_s.mid == pytest.approx(times.request_s[0], rel=1e-6)


def test_devices_share_every_layer_where_one_cannot_hold_the_model() -> None:
    grid = paceline.predict("llama-3-70b", task="infer", device="h100", batch=(1,), devices=(1, 4))
    alone, four = grid.cells
    assert alone.status == "out of memory"
    assert (four.status, four.tensor_degree) == ("fits", 4)
    assert any("4 of 4 devices share every layer (tp4)" in said for said in grid.assumptions)
    small = paceline.predict(MODEL, task="infer", device="h100", batch=(8,), devices=(4,))
    assert small.cells[0].tensor_degree == 1


def test_who_serves_is_said_and_can_be_chosen() -> None:
    grid = paceline.predict(MODEL, task="infer", device="h100", batch=(1,))
    assert any(said.startswith("served by vLLM") for said in grid.assumptions)
    loop = paceline.predict(MODEL, task="infer", device="h100", batch=(1,), framework="torch")
    assert not any("served by" in said for said in loop.assumptions)
    assert loop.cells[0].compiler == "eager"


def test_each_device_is_served_by_what_has_kernels_for_it() -> None:
    devices = ("h100", "p100", "Apple M2 Ultra", "tpu-v5e")
    grid = paceline.predict("gpt2", task="infer", device=devices, batch=(1,))
    assert any(said.startswith("H100 SXM5 80GB: served by vLLM") for said in grid.assumptions)
    assert any(
        said.startswith("Tesla P100 PCIe 16GB, Apple M2 Ultra: served by llama.cpp")
        for said in grid.assumptions
    )
    assert any(said.startswith("a plain loop on TPU v5e") for said in grid.assumptions)
    for device, framework in (("h100", "vllm"), ("Apple M2 Ultra", "llamacpp")):
        [named] = paceline.predict(
            "gpt2", task="infer", device=device, batch=(1,), framework=framework
        ).cells
        [same] = [cell for cell in grid.cells if cell.device == named.device]
        assert same.latency_s == named.latency_s


def test_a_device_without_kernels_of_the_engine_that_is_wanted_has_no_answer() -> None:
    wanted = paceline.predict("gpt2", task="infer", device="p100", batch=(1,), framework="vllm")
    assert wanted.cells == ()
    assert "vLLM has no kernels" in wanted.unanswered[0].reason


@pytest.mark.parametrize(
    ("model", "task", "options", "said"),
    [
        ("gpt2", "infer", {"framework": "sglagn"}, "sglang"),
        ("resnet50", "infer", {"framework": "vllm"}, "--framework torch"),
        ("gpt2", "train", {"framework": "vllm"}, "--framework torch"),
        ("gpt2", "infer", {"compiler": "eager"}, "--framework torch"),
        ("gpt2", "infer", {"rewrite": "is_served=true"}, "--framework vllm"),
    ],
)
def test_what_no_engine_does_is_refused_with_a_hint(model, task, options, said) -> None:
    with pytest.raises((InvalidInputError, UnknownNameError)) as refused:
        paceline.predict(model, task=task, device="h100", **options)
    assert said in refused.value.hint
