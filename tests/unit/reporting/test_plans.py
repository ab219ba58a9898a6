from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.planfile import Interval, PlanFile, PlannedStack, ScalingPoint
from paceline.reporting.charts.planned import memory_fill_chart, scaling_chart, split_chart
from paceline.reporting.figures import chance, memory_bound_bytes, memory_share
from paceline.reporting.pages.markdown import plan_markdown
from paceline.reporting.screens.plans import headline, how, machine_name, place_name, plan_text
from paceline.reporting.tables import display_width

_SCREEN = """\
Rent 1×A100 SXM4 40GB at Lambda for 15.1 h: 19.5 USD, fits, in time with >99 %.

ResNet-50 · training · 1,281,167 images × 90 epochs · 25.6 M parameters
assumed: the reference job: 1,281,167 images × 90 epochs
         224×224, SGD, the input is fed from local NVMe
goal: done within 24 h (chance ≥ 80 %), cheapest first

#  offer                    USD/h  time                cost USD  in time    memory  batch, how
1  Lambda 1×A100 SXM4 40GB   1.29  15.1 h (14–17)  19.5 (18–21)    >99 %  22/40 GB  512
2  RunPod 1×RTX 4090         0.44  22.8 h (21–25)  19.5 (18–21)     71 %  22/40 GB  512
   ↳ too unsure for 24 h
3  Lambda 8×H100 SXM5 80GB   23.9  15.1 h (14–17)  19.5 (18–21)    >99 %  22/40 GB  8×512
   ↳ fastest

how: 1 device × batch 512, BF16, compiled
why: the cheapest of 312 that meet the deadline
sensitivity: a deadline of 27 h makes the RTX 4090 win at 10.0 USD
excluded: Vast 1×H100: priced 14 months ago; would win below 0.61 USD/h
          AWS p2: no framework supports the K80 any more

next: paceline deploy plan.yaml --to skypilot"""


def test_a_plan_reads_from_assumptions_to_the_next_command(plan: PlanFile) -> None:
    assert plan_text(plan, width=100) == _SCREEN


@pytest.mark.parametrize("width", [80, 100])
def test_a_plan_gives_few_reasons_unless_all_are_asked_for(plan: PlanFile, width: int) -> None:
    told = tuple(f"reason {n}, told in so many words that a line is full" for n in range(9))
    much = replace(plan, why=told, turns=told, choices=plan.choices * 4)
    short, full = (plan_text(much, width=width, is_full=is_full) for is_full in (False, True))
    table, reasons = short.split("\n\n")[2:4]
    assert sum(line[:1].isdigit() for line in table.splitlines()) == 6
    assert len(reasons.splitlines()) <= 8
    assert reasons.endswith("--explain")
    for label in ("why", "sensitivity", "excluded"):
        assert f"\n{label}: " in f"\n{reasons}"
    assert all(full.count(one) == 2 for one in told)
    assert "--explain" not in full


def test_the_headline_says_what_to_do_with_what_one_has(plan: PlanFile) -> None:
    own = replace(plan.choices[0], place=replace(plan.choices[0].place, cloud="own"))
    assert headline(replace(plan, choices=(own,))).startswith("Use your own 1×A100 SXM4 40GB for ")
    rates = replace(plan.choices[0], time_s=None, cost_usd=None, chance_time=None)
    assert "USD per million images, fits." in headline(replace(plan, choices=(rates,)))
    assert headline(replace(plan, choices=())) == ""


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_plan_fits_its_width(plan: PlanFile, width: int) -> None:
    lines = plan_text(plan, width=width).splitlines()
    assert max(map(display_width, lines)) <= width


def test_where_the_batch_is_shown_its_accumulation_and_precision_are_too(plan: PlanFile) -> None:
    choices = tuple(
        replace(
            choice, batch_per_device=4 * 384, microbatches=4, num_devices=4, precision=precision,
            strategy="dp4/mb4",
        )
        for choice, precision in zip(plan.choices, ("bf16", "fp16", "fp32"), strict=True)
    )  # fmt: skip
    for width in range(60, 120):
        table = plan_text(replace(plan, choices=choices), width=width).split("\n\n")[2]
        if "batch, how" in table:
            assert "4×384×4 bf16" in table, width
            assert "4×384×4 fp16" in table, width


def test_a_narrow_plan_keeps_offer_price_time_and_cost(plan: PlanFile) -> None:
    header = plan_text(plan, width=80).splitlines()[7]
    assert [word in header for word in ("offer", "USD/h", "time", "cost USD")] == [True] * 4


def test_columns_without_a_figure_are_left_out(plan: PlanFile) -> None:
    rates = tuple(replace(c, time_s=None, cost_usd=None, chance_time=None) for c in plan.choices)
    header = plan_text(replace(plan, choices=rates), width=140).splitlines()[7]
    assert "images/s" in header
    assert "cost USD" not in header
    assert "in time" not in header


def test_energy_is_shown_where_it_is_the_objective(plan: PlanFile) -> None:
    choices = tuple(
        replace(
            c,
            energy_j_per_sample=0.25,
            energy_interval_j_per_sample=Interval(low=0.2, mid=0.25, high=0.3),
        )
        for c in plan.choices
    )
    usual = replace(plan, choices=choices)
    assert "J/image" not in plan_text(usual, width=140)
    asked = plan_text(replace(usual, goal={"objective": "energy"}), width=140)
    assert "J/image" in asked
    assert " 0.250 " in asked


def test_several_devices_show_batches_times_devices(plan: PlanFile) -> None:
    assert how(plan.choices[2]) == "8×512 bf16 compiled"
    accumulated = replace(plan.choices[2], microbatches=4, strategy="dp8/mb4")
    assert how(accumulated, ()) == "8×128×4"
    assert place_name(plan.choices[2].place) == "Lambda 8×H100 SXM5 80GB"


def test_processors_are_named_with_their_cores(plan: PlanFile) -> None:
    stack = PlannedStack(
        framework="torch", framework_version="2.14.0", platform="cpu", platform_version=None,
        python_version="3.12", min_driver=None,
    )  # fmt: skip
    first = plan.choices[0]
    place = replace(first.place, cloud="aws", device="AWS Graviton3", devices_per_node=1.0)
    named = {
        machine_name(replace(first, stack=stack, place=replace(place, num_vcpus_per_node=cores)))
        for cores in (1, 2)
    }
    assert named == {"AWS 1×Graviton3 1 vCPU", "AWS 1×Graviton3 2 vCPU"}
    assert machine_name(first) == place_name(first.place)


def test_a_purchase_request_states_price_day_source_and_risks(plan: PlanFile) -> None:
    text = plan_markdown(plan)
    for needed in ("2026-10-03", "the provider's price page", "## Risks", "## Sensitivity",
                   "## Assumptions", "19.5 (18–21) USD"):  # fmt: skip
        assert needed in text


def test_a_purchase_request_needs_no_knowledge_of_the_program(plan: PlanFile) -> None:
    proposal = plan_markdown(plan).split("## Proposal")[1].split("##")[0]
    assert "images per second" in proposal
    assert "1 device × batch 512, BF16, compiled" in proposal


def test_memory_is_one_figure_in_table_risk_and_picture(plan: PlanFile) -> None:
    memory = Interval(low=18e9, mid=20e9, high=25e9)
    first = replace(plan.choices[0], memory_bytes=memory)
    bound = f"{memory_bound_bytes(memory) / 1e9:.3g} GB"
    assert memory.mid < memory_bound_bytes(memory) < memory.high
    assert bound in plan_markdown(replace(plan, choices=(first,)))
    layers = memory_fill_chart(replace(plan, choices=(first,))).spec["layer"]
    assert isinstance(layers, list)
    assert layers[0]["data"]["values"][0]["bound"] == memory_bound_bytes(memory) / 1e9


def test_a_scaling_picture_marks_whole_devices(plan: PlanFile) -> None:
    points = tuple(
        ScalingPoint(
            num_devices=n, offer="a", samples_per_s=100.0 * n, efficiency_frac=1.0,
            usd_per_million_samples=None, bound="compute",
        )
        for n in (1, 2, 4, 8)
    )  # fmt: skip
    chart = scaling_chart(replace(plan, scaling=points))
    assert chart is not None
    layers = chart.spec["layer"]
    assert isinstance(layers, list)
    assert layers[1]["encoding"]["x"]["axis"]["values"] == [1, 2, 4, 8]


def test_communication_is_stacked_on_the_devices_own_time(plan: PlanFile) -> None:
    spec = split_chart(plan).spec
    encoding, data = spec["encoding"], spec["data"]
    assert isinstance(encoding, dict)
    assert isinstance(data, dict)
    assert encoding["order"]["field"] == "place"
    assert {(row["part"], row["place"]) for row in data["values"]} == {
        ("device", 0), ("communication", 1),
    }  # fmt: skip


def test_the_chance_is_the_last_to_go_on_a_narrow_screen(plan: PlanFile) -> None:
    table = plan_text(plan, width=72).split("\n\n")[2].splitlines()[0]
    assert "in time" in table
    assert "batch, how" not in table


def test_a_spot_proposal_warns_of_withdrawal(plan: PlanFile) -> None:
    first = plan.choices[0]
    spot = replace(first, place=replace(first.place, is_spot=True))
    text = plan_markdown(replace(plan, choices=(spot,)))
    assert "can be withdrawn" in text
    assert "how often is not published" in text


def test_chances_are_never_rounded_up_to_certainty() -> None:
    assert chance(0.999999) == ">99 %"
    assert chance(0.0) == "<1 %"


def test_memory_is_shown_at_its_upper_bound() -> None:
    assert memory_share(Interval(low=35e9, mid=36e9, high=41e9), 40e9) == "40/40 GB"
