from __future__ import annotations

from pathlib import Path

import pytest
from damage import with_text_inside
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.catalog.load import load_catalog
from paceline.errors import DoesNotFitError, PacelineError, UnknownNameError
from paceline.model.graph.workload import Workload
from paceline.model.reading.load import load_workload
from paceline.planning.decisions.pool_file import PoolFile, StatedJob, plan_pool, read_pool

CATALOG = load_catalog()
FILE = Path(__file__).parents[3] / "examples/scenarios/pool.yaml"


def load(job: StatedJob) -> Workload:
    return load_workload(job.model, task=job.task)


def test_the_example_is_scheduled_no_worse_than_either_policy() -> None:
    answer = plan_pool(read_pool(FILE, CATALOG), CATALOG, load)
    assert {p.job for p in answer.best.placements} == {job.name for job in answer.jobs}
    for policy in (answer.gang, answer.share):
        assert answer.best.makespan_s <= policy.makespan_s


def test_a_second_device_makes_a_job_faster_and_not_more_than_twice() -> None:
    stated = PoolFile(pool={"a100": 2}, jobs={"one": StatedJob(model="resnet50")})
    one, two = plan_pool(stated, CATALOG, load).jobs[0].time_s["A100 SXM4 80GB"]
    assert one / 2 * 0.99 < two < one


@pytest.mark.parametrize("model", ["opt-1.3b", "qwen2.5-1.5b"])
def test_a_job_of_adapters_is_one_in_a_pool(model: str) -> None:
    """All weights of these train on no device of 16 GB; adapters beside them do."""
    whole = StatedJob(model=model, seq=512, work={"tokens": "1M"})
    adapters = StatedJob(model=model, seq=512, work={"tokens": "1M"}, rewrite="lora_rank=16")
    answer = plan_pool(PoolFile(pool={"t4": 1}, jobs={"one": adapters}), CATALOG, load)
    assert answer.best.makespan_s > 0
    with pytest.raises(DoesNotFitError):
        plan_pool(PoolFile(pool={"t4": 1}, jobs={"one": whole}), CATALOG, load)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "pool: {}\njobs: {}",
        "pool: {a100: 0}\njobs: {x: {model: resnet50}}",
        "pool: {a100: 99}\njobs: {x: {model: resnet50}}",
        "pool: {a100: 1}\njobs: {}",
        "pool: {a100: 1}\njobs: {x: {model: resnet50}}\nobjective: beauty",
        "pool: {a100: 1}\njobs: {x: {surprise: 1}}",
        "pool: {a100: 1}\njobs: {x: {model: resnet50, trials: 0}}",
        "pool: {a100: 1}\njobs: {x: {model: resnet50, trials: 1000}}",
    ],
)
def test_bad_files_are_one_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PacelineError):
        read_pool(path, CATALOG)


def test_an_unknown_device_is_told_with_its_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text("jobs: {x: {model: resnet50}}\npool:\n  a100: 1\n  rtx 9999: 2\n", "utf-8")
    with pytest.raises(UnknownNameError, match=r"pool\.yaml, line 4: .*rtx 9999"):
        read_pool(path, CATALOG)


@pytest.mark.parametrize("trials", [1, 3, 4])
def test_trials_are_so_many_equal_jobs(trials: int) -> None:
    job = StatedJob(model="mnist-cnn", trials=trials)
    answer = plan_pool(PoolFile(pool={"a100": 2}, jobs={"x": job}), CATALOG, load)
    assert len(answer.best.placements) == trials
    assert len({placed.job for placed in answer.best.placements}) == trials
    assert [one.num_trials for one in answer.trials] == ([trials] if trials > 1 else [])
    for one in answer.trials:
        assert answer.best.makespan_s <= one.plan.makespan_s * (1 + 1e-9)


def test_more_trials_never_finish_sooner() -> None:
    def makespan_s(trials: int) -> float:
        job = StatedJob(model="mnist-cnn", trials=trials)
        stated = PoolFile(pool={"a100": 2}, jobs={"x": job})
        return plan_pool(stated, CATALOG, load).best.makespan_s

    found = [makespan_s(trials) for trials in (1, 2, 3, 5)]
    assert found == sorted(found)


def test_unknown_devices_and_work_are_errors() -> None:
    jobs = {"x": StatedJob(model="resnet50")}
    with pytest.raises(UnknownNameError):
        plan_pool(PoolFile(pool={"abacus": 1}, jobs=jobs), CATALOG, load)
    odd = {"x": StatedJob(model="resnet50", work={"lightyears": 3})}
    with pytest.raises(UnknownNameError):
        plan_pool(PoolFile(pool={"a100": 1}, jobs=odd), CATALOG, load)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(position=st.integers(0, 400), text=st.text(max_size=6))
def test_a_damaged_file_never_ends_in_a_traceback(tmp_path: Path, position: int, text: str) -> None:
    path = with_text_inside(FILE, position, text, tmp_path)
    try:
        pool = read_pool(path, CATALOG).pool
    except PacelineError:
        return
    assert pool
