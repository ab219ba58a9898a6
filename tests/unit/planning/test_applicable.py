"""What a goal states must be able to hold or fail: the rest is refused by name."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from paceline.catalog.load import load_catalog
from paceline.errors import InvalidInputError, NoOfferError, PacelineError
from paceline.model.graph.workload import Task
from paceline.model.reading.load import load_workload
from paceline.planning.forecast.question import resolve_question
from paceline.planning.goal.options import parse_goal, parse_work
from paceline.planning.goal.scenarios import load_scenario
from paceline.planning.planner import make_plan

TODAY = date(2026, 11, 20)
EXAMPLES = Path(__file__).parents[3] / "examples"


def resolve(model: str, task: Task, goal: dict[str, str], work: dict[str, str]) -> None:
    question = resolve_question(
        load_workload(model, task=task), parse_goal(goal), parse_work(work), today=TODAY
    )
    assert question.goal


@pytest.mark.parametrize(
    ("model", "task", "goal", "work", "said"),
    [
        ("resnet50", "train", {"latency": "5ms"}, {}, "--latency"),
        ("gpt2", "train", {"ttft": "5ms"}, {}, "--ttft"),
        ("resnet50", "infer", {"ttft": "5ms"}, {}, "--ttft"),
        ("resnet50", "infer", {"global-batch": "8"}, {}, "--global-batch"),
        ("gpt2", "infer", {"deadline": "5h"}, {"rps": "3"}, "a service has no end"),
        ("gpt2", "infer", {}, {"rps": "3", "samples": "5M"}, "--rps"),
        ("gpt2", "infer", {}, {"rps": "3", "tokens": "5M"}, "--rps"),
        ("resnet50", "infer", {}, {"concurrency": "4"}, "--concurrency"),
        ("gpt2", "train", {}, {"prompt": "64"}, "--prompt-tokens"),
        ("resnet50", "train", {}, {"output": "64"}, "--output-tokens"),
    ],
)
def test_an_option_that_says_nothing_is_refused(
    model: str, task: Task, goal: dict[str, str], work: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said) as raised:
        resolve(model, task, goal, work)
    assert raised.value.hint
    resolve(model, task, {}, {})


@pytest.mark.parametrize(
    ("model", "task", "goal", "work"),
    [
        ("gpt2", "infer", {"ttft": "1s", "latency": "50ms"}, {"rps": "3", "prompt": "64"}),
        ("gpt2", "infer", {"deadline": "5h"}, {"samples": "5M", "concurrency": "4"}),
        ("resnet50", "infer", {"latency": "5ms"}, {"rps": "3"}),
        ("resnet50", "train", {"deadline": "5h", "global-batch": "256"}, {"epochs": "2"}),
    ],
)
def test_options_that_say_something_pass(
    model: str, task: Task, goal: dict[str, str], work: dict[str, str]
) -> None:
    resolve(model, task, goal, work)


def test_a_batch_that_never_makes_the_global_batch_is_not_a_lack_of_memory() -> None:
    goal = parse_goal({"pin": "batch=3", "global-batch": "4", "device": "a100"})
    with pytest.raises(NoOfferError, match="--global-batch 4, --pin batch=3"):
        make_plan(load_workload("mnist-cnn"), goal, parse_work({}), load_catalog(), today=TODAY)


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("scenarios/lifecycle.yaml", "lifecycle"),
        ("scenarios/pool.yaml", "pool"),
        ("scenarios/machines/laptop.yaml", "--facts"),
    ],
)
def test_a_file_of_another_kind_is_sent_to_its_verb(name: str, verb: str) -> None:
    with pytest.raises(PacelineError) as raised:
        load_scenario((EXAMPLES / name).read_text(encoding="utf-8"))
    assert verb in raised.value.hint
