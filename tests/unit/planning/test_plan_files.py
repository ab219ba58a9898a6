"""Plan files: the same bits back, and nothing hostile in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schemas import published_schema

from paceline.errors import InvalidInputError
from paceline.planfile import Interval, PlanFile, PlannedChoice, PlannedPlace, PlannedWorkload
from paceline.planning.goal.files import dump_plan, load_plan, read_plan, write_plan

#: What is written is what was given: a quarter of the examples shows as much.
EXAMPLES = settings(max_examples=settings.default.max_examples // 4)
NUMBERS = st.floats(min_value=1e-300, max_value=1e300)
SCHEMA = Path(__file__).parents[3] / "docs" / "schema" / "plan.schema.json"


def example_place() -> PlannedPlace:
    return PlannedPlace(
        offer="acme/x1", cloud="acme", instance_type="x1", region="eu", is_spot=False,
        usd_per_hour=1.29, priced_on="2026-10-01", source="price list", device="X1", num_nodes=1,
        devices_per_node=1.0, num_vcpus_per_node=8, host_memory_bytes_per_node=64e9,
        interconnect="none", network_bytes_per_s=None, interruption_frac_per_month=(0.05, 0.1),
    )  # fmt: skip


def example_choice(step: Interval) -> PlannedChoice:
    return PlannedChoice(
        place=example_place(), strategy="dp1", batch_per_device=8, microbatches=1, global_batch=8,
        precision="bf16", compiler="eager", checkpointing="none", channels_last=True, stack=None,
        step_s=step, samples_per_s=step, time_s=None, cost_usd=None, usd_per_million_samples=step,
        energy_j_per_sample=None, power_w=None, memory_bytes=step, memory_capacity_bytes=80e9,
        parallel_efficiency_frac=1.0, latency_s=None, ttft_s=None, chance_time=None,
        chance_cost=None, chance_memory=0.99, bound="compute", reason="it is: the \"best\"\n№ 1",
    )  # fmt: skip


def example_plan(step: Interval) -> PlanFile:
    return PlanFile(
        schema_version=1, paceline_version="0.1.0", catalog_version="2026-11",
        calibration="builtin", created_on="2026-11-20", assumptions=("one: two", "- three"),
        workload=PlannedWorkload(
            model="m", title="M", task="train", sample_unit="images", seq=1, num_parameters=7,
            num_samples=1e16, num_epochs=None, optimizer=None,
        ),
        goal={"deadline": "24 h"}, choices=(example_choice(step),),
    )  # fmt: skip


PLAN = example_plan(Interval(low=1.0, mid=2.0, high=3.0))


@EXAMPLES
@given(NUMBERS, NUMBERS, NUMBERS)
def test_numbers_come_back_to_the_bit(low, mid, high):
    plan = example_plan(Interval(low=low, mid=mid, high=high))
    assert load_plan(dump_plan(plan)) == plan


@EXAMPLES
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])))
def test_text_comes_back(text):
    plan = replace(PLAN, knee=text, turns=(text,))
    assert load_plan(dump_plan(plan)) == plan


def test_a_written_file_is_read(tmp_path):
    write_plan(PLAN, tmp_path / "plan.yaml")
    assert read_plan(tmp_path / "plan.yaml") == PLAN


HOSTILE = {
    "empty": "",
    "list": "- 1",
    "alias": "a: &x [1]\nb: *x",
    "bomb": "a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: [*b,*b,*b,*b]",
    "object": "!!python/object/apply:os.system ['true']",
    "deep": "[" * 5000,
    "key twice": "schema_version: 1\nschema_version: 1",
    "control": "a: \x00",
    "long number": "schema_version: " + "9" * 6000,
    "list as key": "? [a]\n: 1",
    "set": "!!set {a}",
    "binary": "!!binary aGFsbG8=",
    "version": "schema_version: 2",
    "unknown key": dump_plan(PLAN) + "surprise: 1\n",
    "wrong type": dump_plan(PLAN).replace("num_parameters: 7", "num_parameters: seven"),
    "nan": dump_plan(PLAN).replace("mid: 2.0", "mid: .nan"),
    "infinity": dump_plan(PLAN).replace("mid: 2.0", "mid: .inf"),
    "text for a number": dump_plan(PLAN).replace("mid: 2.0", "mid: '2.0'"),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_are_refused_with_a_hint(text):
    with pytest.raises(InvalidInputError) as caught:
        load_plan(text)
    assert caught.value.hint
    assert len(str(caught.value)) < 400


@given(st.text(max_size=300))
def test_any_text_is_refused_politely(text):
    with pytest.raises(InvalidInputError):
        load_plan(text)


def refusal(text):
    try:
        load_plan(text)
    except InvalidInputError as error:
        return error
    return None


@EXAMPLES
@given(st.integers(min_value=0, max_value=2000), st.text(min_size=1, max_size=8))
def test_a_damaged_plan_is_read_or_refused(position, text):
    whole = dump_plan(PLAN)
    damaged = whole[:position] + text + whole[position + len(text) :]
    error = refusal(damaged)
    assert error is None or error.hint


def test_a_file_that_is_too_large_or_missing_is_refused(tmp_path):
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * 5_000_000)
    for path in (large, tmp_path / "none.yaml", tmp_path):
        with pytest.raises(InvalidInputError):
            read_plan(path)


def test_the_published_schema_is_the_program_s():
    assert json.loads(SCHEMA.read_text(encoding="utf-8")) == published_schema(
        PlanFile, "paceline-plan-1"
    )


def test_the_schema_names_every_field_of_a_plan():
    value = json.loads(json.dumps(published_schema(PlanFile, "paceline-plan-1")))
    assert set(value["properties"]) == set(PlanFile.__dataclass_fields__)
