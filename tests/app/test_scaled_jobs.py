"""How much is scaled, and on whose machines: as plan reads both."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import plan, scale
from paceline.app.requests.scaling import Scaling
from paceline.reporting.figures import ItemRate
from paceline.reporting.headlines import scaled_headline
from paceline.reporting.screens.scaling import scaling_markdown, scaling_table, scaling_text

DAY = "2026-11-20"
IMAGES = ItemRate(unit="images")
LAB = """
[[machines]]
name = "lab"
device = "RTX 3090"
num_devices = 2
num_cores = 16
host_memory_bytes = 128e9
"""


def scaled(**options) -> Scaling:
    found = scale("resnet50", counts=(1,), batch=64, as_of=DAY, **options)
    assert isinstance(found, Scaling)
    return found


def test_time_and_cost_are_of_the_work_that_is_stated() -> None:
    whole, half = (scaled(device="a100", samples="1M", epochs=n).curve.points[0] for n in (10, 5))
    for of_whole, of_half in ((whole.time_s, half.time_s), (whole.cost_usd, half.cost_usd)):
        assert of_half is not None
        assert of_whole == pytest.approx(2 * of_half, rel=1e-3)


def test_a_cost_says_what_a_plan_adds_to_it() -> None:
    assert any("whole machines" in one for one in scaled(device="a100").assumptions)


def test_a_stated_job_is_no_assumption() -> None:
    assert any("reference job" in one for one in scaled(device="a100").assumptions)
    stated = scaled(device="a100", samples="1M", epochs=10)
    assert not any("reference job" in one for one in stated.assumptions)


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_curve_shows_memory_and_what_is_lost_at_every_width(width: int) -> None:
    found = scale("resnet50", device="a100", counts=(1, 8), batch=64, as_of=DAY)
    assert isinstance(found, Scaling)
    text = scaling_text("title", (), found.curve, IMAGES, width=width)
    told = ("strategy", "time", "cost USD", "memory", "exposed comm.", "lost to")
    assert all(title in text for title in told)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("model", ["qwen2.5-0.5b", "t5-small"])
def test_without_work_a_million_units_have_a_price(model: str) -> None:
    found = scale(model, device="a100", counts=(2,), batch=8, seq=512, as_of=DAY)
    assert isinstance(found, Scaling)
    (point,) = found.curve.points
    rate = ItemRate(unit=found.rate_unit, per_item=found.samples_per_item)
    table = scaling_table(found.curve, rate)
    titles = [one.title for one in table.columns]
    assert "time" not in titles
    assert point.usd_per_million_items is not None
    price = table.rows[0][titles.index(f"USD per M {rate.unit}")]
    assert float(price) == pytest.approx(point.usd_per_million_items / rate.per_item, abs=0.006)


@pytest.mark.parametrize("model", ["gpt2", "qwen2.5-0.5b"])
def test_whether_activations_are_computed_again_is_told(model: str) -> None:
    kept, again = (
        scale(model, device="a100", counts=(8,), batch=8, strategy=strategy, as_of=DAY)
        for strategy in ("dp8+zero2", "dp8+zero2+recompute-block")
    )
    assert isinstance(kept, Scaling)
    assert isinstance(again, Scaling)
    assert any("activation" in line for line in kept.assumptions)
    assert not any("activation" in line for line in again.assumptions)


@pytest.mark.parametrize("model", ["t5-small", "bart-base"])
def test_targets_that_are_shorter_than_sources_are_scaled(model: str) -> None:
    alike, shorter = (
        scale(model, device="a100", counts=(8,), batch=64, seq=512, as_of=DAY, output_tokens=length)
        for length in (None, 64)
    )
    assert isinstance(alike, Scaling)
    assert isinstance(shorter, Scaling)
    assert shorter.curve.points[0].step_s < 0.8 * alike.curve.points[0].step_s
    assert any("--output-tokens" in line for line in alike.assumptions)
    assert any("targets of 64 tokens" in line for line in shorter.assumptions)


@pytest.mark.parametrize(
    ("model", "seq", "unit"),
    [("gpt2", 1024, "tokens"), ("transformer:layers=4,hidden=512,heads=8", 256, "tokens"),
     ("bert-base", None, "sequences")],
)  # fmt: skip
def test_what_writes_is_scaled_in_tokens(model: str, seq: int | None, unit: str) -> None:
    found = scale(model, device="a100", counts=(1, 2), batch=8, seq=seq, as_of=DAY)
    assert isinstance(found, Scaling)
    rate = ItemRate(unit=found.rate_unit, per_item=found.samples_per_item)
    assert (rate.unit, rate.per_item) == (unit, 1 if seq is None else seq)
    knee = found.curve.points[-1]
    head = scaled_headline(found.device, found.curve, rate)
    text = scaling_text("title", (), found.curve, rate)
    assert rate.text(knee.items_per_s) in head
    assert f" {unit}/s" in head
    assert f" {unit}/s " in text
    assert rate.range_of(knee.items_per_s_interval).mid == pytest.approx(
        knee.items_per_s * rate.per_item
    )


@pytest.mark.parametrize("model", ["resnet18", "gpt2"])
def test_one_count_is_compared_with_nothing(model: str) -> None:
    found = scale(model, device="a100", counts=(4,), batch=8, as_of=DAY)
    assert isinstance(found, Scaling)
    for text in (
        scaling_text("title", (), found.curve, IMAGES),
        scaling_markdown("title", (), found.curve, IMAGES),
    ):
        assert "efficiency" not in text
        assert "knee" not in text.lower()


def test_counts_that_do_not_work_are_told_in_markdown_too() -> None:
    found = scale("resnet50", device="a100", counts=(1, 999_999), as_of=DAY)
    assert isinstance(found, Scaling)
    assert found.curve.rejected
    written = scaling_markdown("title", (), found.curve, IMAGES)
    assert all(reason in written for _, reason in found.curve.rejected)


def test_an_own_machine_is_scaled_at_the_pace_that_plan_gives_it(tmp_path: Path) -> None:
    """Of the steps alone: a plan adds what is evaluated, saved and done again."""
    facts = tmp_path / "lab.toml"
    facts.write_text(LAB, encoding="utf-8")
    curve = scale(
        "resnet50", offer="Lab", counts=(2,), batch=64, samples="1M", epochs=10, as_of=DAY,
        facts=(facts,), compiler="compiled", strategy="dp2",
    )  # fmt: skip
    assert isinstance(curve, Scaling)
    choice = plan(
        "resnet50", cloud="own", pin=["offer=lab", "batch=64", "strategy=dp2"], samples="1M",
        epochs=10, as_of=DAY, facts=(facts,), data="ready", global_batch=128,
        ideal=True,
    ).choices[0]  # fmt: skip
    assert choice.time_s is not None
    assert choice.cost_usd is not None
    assert curve.curve.points[0].time_s == pytest.approx(choice.time_s.mid, rel=0.01)
    assert curve.curve.points[0].cost_usd == pytest.approx(choice.cost_usd.mid, rel=0.01)


def test_the_length_that_is_told_is_the_one_asked_for() -> None:
    def told(**options) -> str:
        found = scale("gpt2", device="a100", counts=(1,), batch=4, as_of=DAY, **options)
        return "; ".join(found.assumptions)

    asked = told(seq=256)
    assert "here in sequences of 256 tokens" in asked
    assert "; sequences of 256 tokens;" in asked
    assert "here in sequences" not in told()
    assert "; sequences of 256 tokens;" in f"; {told(seq=256, tokens='1B')}"


@pytest.mark.parametrize("model", ["bert-large", "alexnet", "dcgan"])
def test_a_stated_batch_is_run_whatever_a_recipe_allows(model: str) -> None:
    found = scale(model, device="a100", counts=(1, 8), batch=48, as_of=DAY)
    assert isinstance(found, Scaling)
    assert [point.global_batch for point in found.curve.points] == [48, 384]


@pytest.mark.parametrize(
    ("device", "counts"), [("RTX A5000", (1, 4)), ("Instinct MI250X", (8, 16))]
)
def test_machines_are_assumed_where_all_for_rent_are_too_few(
    device: str, counts: tuple[int, ...]
) -> None:
    """Four cards of a workstation in one machine; two machines of MI250X by a network."""
    found = scale("bert-base", device=device, counts=counts, batch=16, as_of=DAY)
    few, many = found.curve.points
    assert many.items_per_s > 0.6 * counts[1] / counts[0] * few.items_per_s
    assert any("as assumed" in words for words in found.assumptions)


@pytest.mark.parametrize("batch", [1024, 8192])
def test_rows_of_a_table_are_taken_in_as_large_microbatches_as_a_stated_layout_takes(
    batch: int,
) -> None:
    """Tables of 105 GB over eight devices: each microbatch passes over their gradients."""
    ways = {"device": "H100 SXM5 80GB", "counts": (8,), "batch": batch, "optimizer": "sgd"}
    model = "published_tables:dlrm_dcnv2"
    found, stated = (
        scale(model, as_of=DAY, **ways, **more).curve.points[0]
        for more in ({}, {"strategy": "tp8"})
    )
    assert found.items_per_s > 0.8 * stated.items_per_s
