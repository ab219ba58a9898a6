"""Every verb that tells a time, a rate or an energy tells how sure it is."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from refusals import Outcome

import paceline
from paceline.units import format_significant

POOL = """
pool: {A100 SXM4 80GB: 2}
jobs:
  reader: {model: gpt2, work: {tokens: 1M}}
  digits: {model: mnist-cnn, work: {samples: 60000, epochs: 2}, trials: 3}
"""


def width(figure: dict[str, float]) -> float:
    assert figure["low"] <= figure["mid"] <= figure["high"]
    return figure["high"] / figure["mid"]


def test_the_energy_of_a_sample_is_known_less_well_than_its_time(
    run: Callable[..., Outcome],
) -> None:
    out = run("predict", "gpt2", "--device", "a100,v100", "--batch", "4", "--json").out
    for cell in json.loads(out)["cells"]:
        energy = cell["energy_interval_j_per_sample"]
        assert energy["mid"] == cell["energy_j_per_sample"]
        assert width(energy) > width(cell["step_s"])
    text = run("predict", "gpt2", "--device", "a100,v100", "--batch", "4").out
    assert text.count("energy (J) is that of the device alone, within ×/÷") == 2


@pytest.mark.parametrize("model", ["qwen2.5-1.5b", "opt-1.3b"])
def test_joules_are_told_where_the_screen_has_no_room_for_their_column(
    model: str, run: Callable[..., Outcome]
) -> None:
    asked = ("predict", model, "--task", "infer", "--device", "l4", "--batch", "1")
    (cell,) = json.loads(run(*asked, "--json").out)["cells"]
    text = run(*asked).out
    assert " J/" not in text.split("energy")[0]
    assert f"energy: {format_significant(cell['energy_j_per_sample'])} J/token" in text


def test_a_planned_energy_has_the_interval_of_a_predicted_one() -> None:
    pins = ["device=A100 SXM4 80GB", "nodes=1", "batch=64", "precision=bf16", "compiler=eager"]
    plan = paceline.plan("resnet50", pin=pins, max_devices=1, data="ready", as_of="2026-11-20")
    choice = next(c for c in plan.choices if c.num_devices == 1 and c.microbatches == 1)
    (cell,) = paceline.predict("resnet50", device="A100 SXM4 80GB", batch=(64,)).cells
    assert choice.energy_interval_j_per_sample is not None
    assert cell.energy_interval_j_per_sample is not None
    planned, predicted = choice.energy_interval_j_per_sample, cell.energy_interval_j_per_sample
    assert planned.high == pytest.approx(predicted.high, rel=1e-9)


def test_a_pool_tells_when_each_job_is_done_at_the_latest(
    tmp_path, run: Callable[..., Outcome]
) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(POOL, encoding="utf-8")
    answer = json.loads(run("pool", str(path), "--json").out)
    for schedule in (answer["best"], answer["gang"], answer["share"]):
        assert 1.0 < width(schedule["makespan_interval_s"]) < 2.0
        for placed in schedule["placements"]:
            assert 1.0 < width(placed["finish_interval_s"]) < 2.0
    assert all(width(one["makespan_interval_s"]) > 1.0 for one in answer["trials"])


def test_a_host_that_was_measured_is_known_better() -> None:
    assumed = paceline.feed("imagenet").samples_per_s_interval
    measured = paceline.feed("imagenet", measured=assumed.mid).samples_per_s_interval
    assert measured.mid == pytest.approx(assumed.mid, rel=0.05)
    assert assumed.low < measured.low < measured.mid < measured.high < assumed.high


def test_what_a_job_of_a_pool_is_taken_to_do_is_told(tmp_path, run: Callable[..., Outcome]) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(POOL.replace("work: {tokens: 1M}", "seq: 1024"), encoding="utf-8")
    told = json.loads(run("pool", str(path), "--json").out)["assumptions"]
    assert "reader: reference job: pretraining on 300 billion tokens" in told[0]
    assert not any(line.startswith("digits") for line in told)


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        ("alibaba/ecs.gn6v-c8g1.16xlarge", "no price known"),
        ("aws/p4d.24xlarge", "seen 2026-07-20"),
        ("cudo-compute/1x A5000 (24 GB) (2 vCPU)", "seen on an unknown day"),
    ],
)
def test_a_curve_says_when_its_price_was_seen(
    offer: str, said: str, run: Callable[..., Outcome]
) -> None:
    asked = ("scale", "mnist-cnn", "--offer", offer, "--counts", "1", "--as-of", "2026-11-20")
    assert said in " ".join(run(*asked).out.split())
