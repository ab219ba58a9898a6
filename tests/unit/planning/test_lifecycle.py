"""A place each to develop, to train and to serve: sums, moves, and when one place is better."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemas import published_schema

from paceline.catalog.load import load_catalog
from paceline.errors import (
    DoesNotFitError,
    InvalidInputError,
    MissingFactError,
    NoOfferError,
    PacelineError,
    UnknownNameError,
)
from paceline.model.reading.load import load_workload
from paceline.planning.lifecycle.answer import Lifecycle, answer_lifecycle
from paceline.planning.lifecycle.file import (
    LifecycleFile,
    StatedDataset,
    StatedDevelopment,
    StatedService,
    StatedTraining,
    read_lifecycle,
    stated_dataset,
    stated_phases,
)
from paceline.planning.lifecycle.lifecycle import Ways, search_ways
from paceline.planning.places.relocation import Dataset, Stops, bring_usd, cheapest_way, weights_usd

EXAMPLES = Path(__file__).parents[3] / "examples" / "scenarios"
TODAY = date(2026, 11, 20)
CLOUDS = ["aws", "lambda", "runpod"]
DEVELOP = StatedDevelopment(
    hours_per_day=4, days=30, work={"samples": "5k"}, goal={"deadline": "5min"}
)
TRAIN = StatedTraining(work={"samples": "200k", "epochs": 30}, goal={"deadline": "24h"})
SERVE = StatedService(months=3, work={"rps": 20}, goal={"latency": "1s"})
LIFE = LifecycleFile(
    model="resnet50", goal={"cloud": [*CLOUDS, "own"]}, develop=DEVELOP, train=TRAIN, serve=SERVE
)
load = cache(lambda task: load_workload("resnet50", task=task))


def ways_of(life: LifecycleFile, *facts: Path) -> Ways:
    phases = stated_phases(life, load)
    return search_ways(phases, stated_dataset(life), load_catalog(facts), today=TODAY)


def answered(life: LifecycleFile, *facts: Path) -> Lifecycle:
    return answer_lifecycle(ways_of(life, *facts), stated_dataset(life), title="")


@pytest.fixture(scope="module")
def workstation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("facts") / "lab.yaml"
    path.write_text(
        "machines: [{name: lab, device: rtx 3090, num_devices: 1, num_cores: 16,"
        " host_memory_bytes: 6.4e+10}]"
    )
    return path


@pytest.fixture(scope="module")
def rented() -> Lifecycle:
    return answered(LIFE)


def test_the_sum_is_that_of_its_parts(rented: Lifecycle) -> None:
    assert rented.one_place is not None
    for life in (rented.split, rented.one_place):
        assert [one.phase for one in life.phases] == ["develop", "train", "serve"]
        for end in ("low", "mid", "high"):
            parts = [getattr(one.machines_usd, end) + one.moving_usd for one in life.phases]
            assert getattr(life.total_usd, end) == pytest.approx(sum(parts))
        assert life.total_usd.low <= life.total_usd.mid <= life.total_usd.high


def test_several_places_are_never_dearer_than_one(rented: Lifecycle) -> None:
    assert rented.one_place is not None
    assert rented.split.total_usd.mid <= rented.one_place.total_usd.mid * (1 + 1e-12)
    assert len({one.choice.place.offer for one in rented.one_place.phases}) == 1
    assert "one place for all" in rented.why[0]


def test_a_stay_costs_its_hours_and_a_job_what_its_plan_says(rented: Lifecycle) -> None:
    develop, train, serve = rented.split.phases
    hours = 30 * (4 + 1 / 6)
    assert develop.held_s == pytest.approx(hours * 3600, rel=0.01)
    assert develop.machines_usd.mid == pytest.approx(
        develop.held_s / 3600 * develop.choice.place.usd_per_hour
    )
    assert train.machines_usd == train.choice.cost_usd
    assert serve.held_s == pytest.approx(3 * 730.5 * 3600, rel=0.001)
    assert serve.busy_frac is not None
    assert 0 < serve.busy_frac <= 1


def test_a_run_keeps_its_deadline_without_the_setting_up(rented: Lifecycle) -> None:
    develop = rented.split.phases[0]
    assert develop.choice.time_s is not None
    assert develop.choice.time_s.mid <= 300


def test_the_own_machine_develops_where_its_electricity_costs_less(workstation: Path) -> None:
    found = answered(LIFE, workstation)
    first = found.split.phases[0]
    assert first.choice.place.offer == "lab"
    assert first.reason.startswith("your own lab is enough")
    assert any("electricity" in one for one in found.assumptions)
    rented = answered(replace(LIFE, goal={"cloud": [*CLOUDS]}), workstation)
    assert first.machines_usd.mid < rented.split.phases[0].machines_usd.mid


def test_an_own_machine_that_is_not_taken_says_why(workstation: Path) -> None:
    train = replace(TRAIN, goal={"deadline": "30min"})
    found = answered(replace(LIFE, train=train), workstation)
    assert "your own lab: misses the deadline" in found.split.phases[1].reason


def test_data_that_is_slow_to_bring_keeps_training_where_it_lies(workstation: Path) -> None:
    life = LifecycleFile(
        model="resnet50",
        goal={"cloud": ["own", "runpod"]},
        develop=DEVELOP,
        train=replace(TRAIN, goal={"deadline": "9d"}),
    )
    slow = replace(life, dataset=StatedDataset(size="10TB", at="own", per_second="1MB"))
    found = answered(slow, workstation)
    assert {one.choice.place.offer for one in found.split.phases} == {"lab"}
    assert sum(one.moving_usd for one in found.split.phases) == 0
    assert found.split == found.one_place
    assert "one place for all is the better answer" in found.why[0]


def test_data_that_lies_in_a_cloud_costs_its_traffic_once() -> None:
    data = StatedDataset(size="1TB", at="aws", per_second="1GB")
    life = replace(LIFE, goal={"cloud": ["runpod"]}, dataset=data)
    found = answered(life)
    first, second, third = (one.moving_usd for one in found.split.phases)
    waiting = 1000 / 3600 * found.split.phases[0].choice.place.usd_per_hour
    assert first == pytest.approx(90 + waiting)
    assert (second, third) == (0, 0)


def test_each_phase_that_nothing_can_do_is_named() -> None:
    hasty = replace(TRAIN, goal={"deadline": "1s"})
    with pytest.raises(NoOfferError, match=r"^train: no offer keeps the goal"):
        ways_of(replace(LIFE, develop=None, train=hasty))
    small = replace(SERVE, goal={"latency": "1us"})
    with pytest.raises((NoOfferError, DoesNotFitError), match=r"^serve: "):
        ways_of(replace(LIFE, develop=None, train=None, serve=small))


def test_no_place_for_all_is_said() -> None:
    life = replace(
        LIFE,
        develop=None,
        train=replace(TRAIN, goal={"cloud": "lambda"}),
        serve=replace(SERVE, goal={"cloud": "aws"}),
    )
    found = answered(life)
    assert found.one_place is None
    assert "no one place keeps the goals of all phases" in found.why[0]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_the_cheapest_way_is_the_best_of_all_ways(seed: int, num_phases: int) -> None:
    dice = np.random.default_rng(seed)
    counts = dice.integers(1, 5, num_phases).tolist()
    usd = [dice.uniform(0, 10, n) for n in counts]
    moves = [dice.uniform(0, 10, pair) for pair in itertools.pairwise(counts)]

    def total(way: tuple[int, ...]) -> float:
        stops = sum(float(one[at]) for one, at in zip(usd, way, strict=True))
        steps = zip(moves, itertools.pairwise(way), strict=True)
        return stops + sum(float(move[a, b]) for move, (a, b) in steps)

    best = min(itertools.product(*map(range, counts)), key=total)
    assert total(cheapest_way(usd, moves)) == pytest.approx(total(best))


def test_moves_within_a_cloud_are_free_and_traffic_out_is_not() -> None:
    def stops(*clouds: str) -> Stops:
        n = len(clouds)
        return Stops(
            names=tuple(map(str, range(n))), clouds=clouds, usd=np.zeros(n),
            usd_per_hour=np.full(n, 3.6), rows=tuple(range(n)),
        )  # fmt: skip

    data = Dataset(size_bytes=1e9, at="aws", bytes_per_s=1e6)
    assert bring_usd(stops("aws", "gcp"), data).tolist() == pytest.approx([0, 0.09 + 1.0])
    weights = weights_usd(stops("aws", "own"), stops("aws", "own"), np.array([1e10, 1e10]))
    assert weights.tolist() == [[0, pytest.approx(0.9)], [0, 0]]


def test_unknown_clouds_and_unknown_prices_of_traffic_are_errors() -> None:
    def with_data_at(cloud: str) -> LifecycleFile:
        return replace(LIFE, dataset=StatedDataset(size="1GB", at=cloud, per_second="1MB"))

    with pytest.raises(UnknownNameError):
        ways_of(with_data_at("atlantis"))
    with pytest.raises(MissingFactError, match="traffic out"):
        ways_of(with_data_at("vast"))
    priced = StatedDataset(size="1GB", at="vast", per_second="1MB", usd_per_gb_out=0.02)
    assert answered(replace(LIFE, dataset=priced)).split.phases[0].moving_usd >= 0.02


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "model: resnet50",
        "model: resnet50\ntrain: {surprise: 1}",
        "model: resnet50\nserve: {work: {rps: 2}}",
        "model: resnet50\nserve: {months: 0, work: {rps: 2}}",
        "model: resnet50\nserve: {months: 2, work: {samples: 2}}",
        "model: resnet50\ndevelop: {hours_per_day: 25, days: 1, work: {samples: 1}, goal: {}}",
        "model: resnet50\ndevelop: {hours_per_day: 2, days: 1, work: {}, goal: {deadline: 1min}}",
        "model: resnet50\ndevelop: {hours_per_day: 2, days: 1, work: {samples: 1k}, goal: {}}",
        "model: resnet50\ntrain: {}\ndataset: {size: 1GB, at: own, per_second: 0MB}",
        "model: resnet50\ntrain: {}\ndataset: {size: much, at: own, per_second: 1MB}",
        "model: resnet50\ntrain: {goal: {objective: time}}",
    ],
)
def test_bad_files_are_one_message_with_a_hint(tmp_path: Path, text: str) -> None:
    path = tmp_path / "life.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PacelineError) as raised:
        ways_of(read_lifecycle(path))
    assert raised.value.hint


def test_the_published_schema_is_that_of_the_file() -> None:
    path = Path(__file__).parents[3] / "docs" / "schema" / "lifecycle.schema.json"
    assert json.loads(path.read_text(encoding="utf-8")) == published_schema(
        LifecycleFile, "paceline-lifecycle-1"
    )


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(position=st.integers(0, 700), text=st.text(max_size=6))
def test_a_damaged_file_never_ends_in_a_traceback(tmp_path: Path, position: int, text: str) -> None:
    whole = (EXAMPLES / "lifecycle.yaml").read_text(encoding="utf-8")
    path = tmp_path / "life.yaml"
    damaged = whole[:position] + text + whole[position:]
    path.write_bytes(damaged.encode("utf-8", "surrogatepass"))
    refusal = refused(path)
    assert refusal is None or refusal.hint


def refused(path: Path) -> PacelineError | None:
    """What refuses a lifecycle file; None where all of it can be read."""
    try:
        stated = read_lifecycle(path)
        assert stated_phases(replace(stated, model="resnet50"), load)
        assert stated_dataset(stated) is None or stated.dataset
    except PacelineError as error:
        return error
    return None


def test_a_phase_s_own_goal_goes_before_the_common_one() -> None:
    life = replace(LIFE, train=replace(TRAIN, goal={"cloud": "lambda"}))
    develop, train, _ = stated_phases(life, load)
    assert train.goal.clouds == ("lambda",)
    assert develop.goal.clouds == (*CLOUDS, "own")
    with pytest.raises(InvalidInputError):
        Dataset(size_bytes=1.0, at="own", bytes_per_s=1.0, usd_per_byte_out=-1.0)
