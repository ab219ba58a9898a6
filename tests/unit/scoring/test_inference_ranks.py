"""Rows of inference whose devices share the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.parallelism.links_of_tests import wires_of_engine
from tests.unit.parallelism.small_denoiser import denoiser

from paceline.catalog.load import load_catalog
from paceline.model.reading.load import load_workload
from paceline.parallelism.split import SplitShape, calls_s, split
from paceline.prediction.prediction import Points
from paceline.scoring import answering
from paceline.scoring.answers import Answer
from paceline.scoring.naming.inference_ranks import WHOLE, split_of
from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows

CATALOG = load_catalog()
NVLINK4 = next(link for link in CATALOG.links if link.name == "nvlink4")
SERVED = {
    "model": "llama-3-8b", "task": "infer", "framework": "vLLM", "precision": "bfloat16",
    "compiler_flags": "ISL=1000; OSL=500", "gpu": "H100-SXM5-80GB", "n_gpus": "1", "n_nodes": "1",
    "interconnect": "NVSwitch", "parallelism": "", "batch_per_gpu": "16", "unit": "tok/s (output)",
}  # fmt: skip
MIXTURE = {"model": "mixtral-8x7b"}
DENOISER = SERVED | {
    "model": "stabilityai/stable-diffusion-3.5-large", "framework": "xDiT/diffusers",
    "compiler_flags": "text-to-image", "batch_per_gpu": "4", "unit": "img/s",
}  # fmt: skip


def answer(**change: str) -> Answer:
    (found,) = predict_rows([parse_row(SERVED | change)], catalog=CATALOG)
    return found


def shape_of(text: str, num_devices: int = 8, **change: str) -> SplitShape:
    return split_of(parse_row(SERVED | change | {"parallelism": text, "n_gpus": str(num_devices)}))


@pytest.mark.parametrize(
    "text",
    ["TP=8", "tp8", "tp 8", "tensor_parallel_size=8", "tensor parallel 8", "TP: 8",
     "data_parallel=1 expert_parallel=1 notes= tensor_parallel=8", "DP=1 TP=8"],
)  # fmt: skip
def test_tensor_ranks_are_read_as_people_write_them(text: str) -> None:
    assert shape_of(text) == SplitShape.of_engine(tensor=8)


@pytest.mark.parametrize("text", ["TP=2", "DP=4 TP=2", "tensor_parallel=2 data_parallel=4"])
def test_devices_beyond_the_ranks_are_replicas(text: str) -> None:
    assert shape_of(text) == SplitShape.of_engine(tensor=2)


@pytest.mark.parametrize("text", ["", "none", "DP", "dp8", "DP=8", "data_parallel=8"])
def test_replicas_share_nothing(text: str) -> None:
    assert shape_of(text) == WHOLE


@pytest.mark.parametrize(
    "text",
    ["TP=8 EP=8", "data_parallel=1 expert_parallel=8 notes= tensor_parallel=1", "EP=8"],
)
def test_experts_of_one_engine_are_whole_on_its_tensor_ranks(text: str) -> None:
    """vLLM has no other way to run eight expert ranks without replicas."""
    assert shape_of(text) == SplitShape.of_engine(tensor=8, whole_experts=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ring_degree=2 ulysses_degree=4", SplitShape(ring=2, ulysses=4)),
        ("ulysses=4, ring=2", SplitShape(ring=2, ulysses=4)),
        ("ulysses_degree=4 cfg_parallel=2", SplitShape(ulysses=4, guidance=2)),
        ("cfg_parallel=2", SplitShape(guidance=2)),
        ("ring_degree=1 ulysses_degree=1", SplitShape()),
    ],
)
def test_degrees_of_denoisers_are_read(text: str, expected: SplitShape) -> None:
    assert shape_of(text) == expected


@pytest.mark.parametrize(
    ("text", "num_devices", "reason"),
    [
        ("TP=8", 4, "needs 8 devices, and the row has 4"),
        ("TP=2 DP=2", 8, "needs 4 devices, and the row has 8"),
        ("TP=8 EP=4", 8, "8 and not 4"),
        ("TP=4 PP=2", 8, "not predicted"),
        ("FSDP FULL_SHARD", 8, "not predicted"),
        ("pipefusion=2 ulysses=4", 8, "not predicted"),
        ("by magic", 8, "not predicted"),
        ("DP=8 EP=8 TP=1", 8, "share experts and not attention"),
        ("ring_degree=3", 8, "needs 3 devices"),
    ],
)
def test_what_cannot_be_is_refused(text: str, num_devices: int, reason: str) -> None:
    with pytest.raises(UnresolvedRowError, match=reason):
        shape_of(text, num_devices)


@pytest.mark.parametrize("text", ["tensor_parallel=1 expert_parallel=1 data_parallel=1", "TP=1"])
def test_a_degree_of_one_is_the_answer_of_one_device(text: str) -> None:
    alone, stated = answer(), answer(parallelism=text)
    assert stated == alone


def test_replicas_answer_as_one_device_for_all_their_requests() -> None:
    alone, many = answer(), answer(parallelism="DP=4", n_gpus="4")
    assert many.step_mid_s == alone.step_mid_s
    assert many.throughput_mid == pytest.approx(4 * alone.throughput_mid)


def test_tensor_ranks_have_one_batch_between_them() -> None:
    four, eight = (answer(parallelism="TP=4", n_gpus=n_gpus) for n_gpus in ("4", "8"))
    assert four.throughput_mid == pytest.approx(16 / four.step_mid_s)
    assert eight.throughput_mid == pytest.approx(2 * four.throughput_mid)


def test_a_global_batch_is_that_of_all_replicas() -> None:
    stated = answer(parallelism="TP=4", n_gpus="8")
    same = answer(parallelism="TP=4", n_gpus="8", batch_per_gpu="", global_batch="32")
    assert same == stated


@pytest.mark.parametrize("experts", ["", " EP={n}"])
def test_ranks_hold_their_share_of_weights(experts: str) -> None:
    """Ninety-three gigabytes of weights fit no card, half of them do."""
    alone = answer(**MIXTURE)
    two = answer(**MIXTURE, parallelism="TP=2" + experts.format(n=2), n_gpus="2")
    assert (alone.fits, two.fits) == ("no", "yes")
    assert two.memory_mid_bytes == pytest.approx(alone.memory_mid_bytes / 2, rel=0.03)


def test_a_step_adds_what_ranks_exchange_and_the_share_of_prompts() -> None:
    """A link of no time would leave the device's own part and the host's."""
    stated = answer(parallelism="TP=4", n_gpus="4")
    passes = {one.name: one.graph for one in load_workload("llama-3-8b", task="infer").passes}
    ranks = SplitShape.of_engine(tensor=4)
    wires = wires_of_engine(ranks, NVLINK4)
    step, prompt = (
        float(calls_s(split(passes[name], ranks).calls, points, wires, element_bytes=2.0).sum())
        for name, points in (
            ("decode", Points(batch=np.array([16.0]), seq=np.array([1250.0]))),
            ("prefill", Points(batch=np.ones(1), seq=np.array([1000.0]))),
        )
    )
    exchanged_s = step + prompt * 16 / 500
    host_s = 16 * 63e-6
    alone_s = answer().step_mid_s
    assert exchanged_s < stated.step_mid_s < alone_s
    assert stated.step_mid_s - exchanged_s > (alone_s - host_s) / 4


def test_ranks_of_several_nodes_are_refused() -> None:
    found = answer(parallelism="TP=8", n_gpus="8", n_nodes="2")
    assert found.reason == "8 ranks share the model, and a node has 4 devices"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A denoiser of two layers in the place of the one that rows name."""
    known = load_workload("vit_b_16", task="infer")
    only = replace(known.passes[0], name="forward", graph=denoiser())
    traced = replace(known, passes=(only,))
    monkeypatch.setattr(answering, "cached_workload", lambda *_, **__: traced)


def denoised(parallelism: str, n_gpus: int = 1) -> Answer:
    row = DENOISER | {"parallelism": parallelism, "n_gpus": str(n_gpus)}
    (found,) = predict_rows([parse_row(row)], catalog=CATALOG)
    assert not found.reason
    return found


@pytest.mark.usefixtures("small")
def test_one_rank_of_a_denoiser_answers_as_one_device() -> None:
    assert denoised("ring_degree=1 ulysses_degree=1") == denoised("")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["ring_degree", "ulysses_degree"])
def test_ranks_of_a_denoiser_make_one_batch_together(kind: str) -> None:
    alone, two = denoised(""), denoised(f"{kind}=2", 2)
    assert two.throughput_mid == pytest.approx(4 / two.step_mid_s)
    assert alone.step_mid_s / 2 < two.step_mid_s < alone.step_mid_s
    assert two.memory_mid_bytes < alone.memory_mid_bytes


@pytest.mark.usefixtures("small")
def test_more_ranks_of_a_denoiser_are_less_sure() -> None:
    """What they all repeat (decoders, text encoders) is not in the graph."""
    widths = [
        found.step_high_s / found.step_mid_s
        for found in (denoised(""), denoised("ring_degree=2", 2), denoised("ring_degree=8", 8))
    ]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1] < 2.0


def test_an_engine_whose_requests_are_not_stated_answers_usual_ones() -> None:
    """As long as `predict` takes them, and with a wider interval, which the note explains."""
    silent, stated = (
        answer(compiler_flags=flags, batch_per_gpu="32") for flags in ("", "ISL=512; OSL=128")
    )
    assert silent.step_mid_s == pytest.approx(stated.step_mid_s, rel=1e-6)
    assert silent.step_high_s / silent.step_mid_s > stated.step_high_s / stated.step_mid_s
    assert "requests are not stated" in silent.note


def test_requests_of_a_framework_that_is_no_engine_run_in_its_own_loop() -> None:
    """A loop that launches each kernel for every token waits for its host; an engine does not."""
    loop_s, engine_s = (
        answer(framework=framework, compiler_flags="ISL=512; OSL=128").step_mid_s
        for framework in ("PyTorch 2.4", "vLLM")
    )
    assert loop_s is not None
    assert engine_s is not None
    assert loop_s > 2 * engine_s
