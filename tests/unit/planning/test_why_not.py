"""Asking after one of the user's own machines, and limits on streams and on the age of prices."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from paceline.catalog.entities import Catalog, Machine
from paceline.catalog.load import load_catalog
from paceline.errors import NoOfferError, UnknownNameError
from paceline.model.graph.workload import Task
from paceline.model.reading.load import load_workload
from paceline.planning.forecast.question import resolve_question
from paceline.planning.goal.goal import Work
from paceline.planning.goal.options import parse_goal, parse_work
from paceline.planning.places.places import PlaceSearch, find_places
from paceline.planning.planner import make_plan, why_not
from paceline.planning.search.all_candidates import run_search

CATALOG = load_catalog()
TODAY = date(2026, 11, 20)
WORK = Work(num_samples=200_000, num_epochs=30)


def machine(name: str, device: str) -> Machine:
    return Machine(
        name=name, device_name=device, num_devices=1, num_cores=16, host_memory_bytes=64e9,
        interconnect=None, network_bytes_per_s=1.25e9,
    )  # fmt: skip


LAB = replace(
    CATALOG,
    machines=(machine("Lab", "GeForce RTX 3090"), machine("old lab", "GeForce RTX 2080 Ti")),
)


def asked(name: str, catalog: Catalog = LAB, **options: str) -> tuple[str, ...]:
    goal = parse_goal({"max_devices": "8", "cloud": "own,lambda", **options})
    return why_not(load_workload("resnet50"), goal, WORK, catalog, name, today=TODAY)


def test_an_own_machine_has_a_name() -> None:
    [sentence] = asked("Lab", deadline="30min")
    assert asked("lab", deadline="30min") == (sentence,)
    assert "Own 1×GeForce RTX 3090" in sentence
    assert "misses the deadline" in sentence


def test_two_own_machines_together_have_both_names() -> None:
    together = asked("old lab + lab", deadline="30min")
    assert together == asked("Lab + old lab", deadline="30min")
    assert any("RTX 3090" in one and "RTX 2080 Ti" in one for one in together)
    assert not any("no precision suits both" in one for one in together)


def test_a_device_that_stands_here_is_asked_after_too() -> None:
    goal = parse_goal({"cloud": "own"})
    [sentence] = why_not(load_workload("mnist-cnn"), goal, Work(), LAB, "RTX 2080 Ti", today=TODAY)
    assert "Own 1×GeForce RTX 2080 Ti" in sentence


def test_a_cloud_is_asked_after_too() -> None:
    sentences = asked("AWS", cloud="lambda,aws", device="t4,v100")
    assert sentences[0].startswith("AWS ")
    assert all("lambda/" not in one for one in sentences)


def test_a_name_that_nothing_has_lists_the_own_machines() -> None:
    with pytest.raises(UnknownNameError, match="own machine") as raised:
        asked("laboratory")
    assert "`Lab`" in raised.value.hint
    with pytest.raises(UnknownNameError, match="in the catalogue"):
        asked("laboratory", CATALOG)


def test_a_plan_says_what_own_machines_are_taken_to_cost() -> None:
    def said(catalog: Catalog, clouds: str) -> str:
        goal = parse_goal({"cloud": clouds})
        return " ".join(
            make_plan(load_workload("mnist-cnn"), goal, Work(), catalog, today=TODAY).assumptions
        )

    assert "electricity" in said(LAB, "own,lambda")
    assert "electricity" not in said(CATALOG, "own,lambda")
    assert "rented machine" not in said(LAB, "own")
    assert "on-demand" not in said(LAB, "own")


@pytest.mark.parametrize(("task", "work"), [("infer", {"rps": "5000"}), ("train", {})])
def test_nobody_owns_more_machines_than_there_are(task: Task, work: dict[str, str]) -> None:
    question = resolve_question(
        load_workload("resnet50", task=task),
        parse_goal({"cloud": "own,aws", "device": "a100,3090,2080 ti", "objective": "time"}),
        parse_work(work),
        today=TODAY,
    )
    search = run_search(question, LAB)
    is_owned = search.places.is_owned[search.candidates.place]
    assert is_owned.any()
    assert (search.candidates.num_nodes[is_owned] == 1).all()
    assert (search.candidates.num_nodes[~is_owned] > 1).any()


def test_a_stream_has_a_budget_by_the_hour() -> None:
    def best_usd_per_hour(budget: float) -> float:
        limits = {"budget": str(budget), "latency": "100ms"}
        goal = parse_goal({**limits, "cloud": "aws", "device": "t4,a10g"})
        served = load_workload("resnet50", task="infer")
        work = parse_work({"rps": "20"})
        plan = make_plan(served, goal, work, CATALOG, today=TODAY)
        return plan.choices[0].place.usd_per_hour

    assert best_usd_per_hour(2.0) <= 2.0
    assert best_usd_per_hour(0.6) <= 0.6
    with pytest.raises(NoOfferError, match="--budget excludes") as raised:
        best_usd_per_hour(0.001)
    typed = raised.value.hint.split("--budget ")[1].split()[0]
    assert 0.001 < (parse_goal({"budget": typed}).budget_usd or 0.0) < 0.6


def ages_days(search: PlaceSearch, state: str, remark: str = "") -> list[int]:
    """Of the dated prices in a state whose remark has these words."""
    return [
        (TODAY - place.priced_on).days
        for place in search.places
        if place.priced_on and place.price_state == state and remark in place.price_remark
    ]


@pytest.mark.parametrize("days", [200, 365, 3650])
def test_prices_are_ranked_up_to_the_stated_age(days: int) -> None:
    search = find_places(CATALOG, parse_goal({"max_price_age_days": str(days)}), today=TODAY)
    assert not search.ranks_stale_prices
    assert max(ages_days(search, "fresh")) <= days
    assert all(age > days for age in ages_days(search, "stale price", "months old"))


def test_where_every_price_is_older_than_stated_all_are_ranked_and_it_is_said() -> None:
    search = find_places(CATALOG, parse_goal({"max_price_age_days": "30"}), today=TODAY)
    assert search.ranks_stale_prices
    assert min(ages_days(search, "fresh")) > 30
    assert not ages_days(search, "stale price")


def test_all_own_machines_are_asked_after_at_once() -> None:
    told = asked("own", deadline="30min")
    assert any("RTX 3090" in one for one in told)
    assert any("RTX 2080 Ti" in one for one in told)


def test_a_plan_names_own_machines_below_the_line_first_and_says_what_they_lack() -> None:
    goal = parse_goal({"cloud": "own,lambda", "max_devices": "8"})
    found = make_plan(
        load_workload("gpt2-xl"), goal, parse_work({"tokens": "1M"}), LAB, today=TODAY
    )
    lines = [one for one in found.rejected if one.name.startswith("your own")]
    assert found.rejected[: len(lines)] == tuple(lines)
    assert {"Lab", "old lab"} <= {one.name.removeprefix("your own ") for one in lines}
    assert all("GB of" in one.reason for one in lines if "+" not in one.name)


def test_a_machine_that_takes_too_little_is_never_said_to_fit_with_less_margin() -> None:
    goal = parse_goal({"cloud": "own,lambda", "device": "rtx 3090,h100"})
    told = why_not(
        load_workload("llama-3-8b"), goal, parse_work({"tokens": "1M"}), LAB, "lab", today=TODAY
    )
    assert "needs" in told[0]
    assert "less margin" not in told[0]


def test_what_is_not_among_the_accepted_clouds_is_excluded_by_that_alone() -> None:
    found = find_places(LAB, parse_goal({"cloud": "own"}), today=TODAY)
    assert {one.kind for one in found.rejections} == {"filtered"}


def test_of_two_machines_alike_the_other_is_said_to_cost_the_same() -> None:
    twins = replace(
        CATALOG, machines=tuple(machine(name, "GeForce RTX 3090") for name in ("one", "two"))
    )
    goal = parse_goal({"cloud": "own", "max-devices": "1"})
    found = make_plan(load_workload("mnist-cnn"), goal, Work(), twins, today=TODAY)
    said = {f"{name} costs the same" for name in ("one", "two")} & set(found.turns)
    assert len(said) == 1


def test_a_group_says_its_reason_once() -> None:
    goal = parse_goal({"deadline": "20min", "max_devices": "8"})
    found = make_plan(load_workload("resnet50"), goal, WORK, CATALOG, today=TODAY)
    [late] = [one for one in found.rejected if one.kind == "misses the deadline"]
    assert "deadline" in late.name
    assert "deadline" not in late.reason


def test_a_search_that_ends_at_its_largest_batch_says_so() -> None:
    def said(**more: str) -> str:
        goal = parse_goal({"device": "a100", "max_devices": "1", **more})
        known = load_workload("mnist-cnn")
        workload = replace(known, max_global_batch=None, reference_job=None)
        return " ".join(make_plan(workload, goal, Work(), CATALOG, today=TODAY).assumptions)

    assert "up to 2,048 per device are tried" in said()
    assert "are tried" not in said(pin="batch=64")
