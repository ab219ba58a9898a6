"""Predicted, measured, billed; and what a watcher says of a run while it goes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.errors import InvalidInputError
from paceline.planfile import Interval
from paceline.watch.captured import CapturedJob
from paceline.watch.events import read_run
from paceline.watch.expected import Expectation
from paceline.watch.folder import Run, new_run, write_end, write_run
from paceline.watch.verdict import summarise
from paceline.watch.watcher import Watcher, read_expectation, read_notices, summary_of

_EXPECTED = Expectation(
    source="a plan",
    step_s=Interval(low=0.008, mid=0.010, high=0.012),
    usd_per_hour=3600.0,
    cost_usd=Interval(low=9.0, mid=10.0, high=12.0),
)


def _run(folder: Path, *, step_ms: int = 10, steps: int = 100, losses: str = "[1.0]") -> Run:
    run = new_run(["python", "train.py"], folder=folder)
    write_run(run)
    write_end(run)
    device = {"event": "device", "kind": "cuda", "name": "A100"}
    lines = [f'["step",0,{n * step_ms * 10**6},0,1,1,1,1,1,{losses}]' for n in range(steps)]
    text = "\n".join([json.dumps(device), *lines]) + "\n"
    (run.folder / "rank-0-1.jsonl").write_text(text)
    return run


@pytest.mark.parametrize(("step_ms", "is_outside"), [(10, False), (15, True), (5, True)])
def test_a_step_outside_its_interval_is_a_difference(
    tmp_path: Path, step_ms: int, is_outside: bool
):
    run = _run(tmp_path, step_ms=step_ms)
    summary = summarise(run, read_run(run.folder), expectation=_EXPECTED)
    (step,) = [one for one in summary.ledger if one.name == "step"]
    assert step.measured == pytest.approx(step_ms / 1e3)
    assert step.is_outside is is_outside
    assert any("than predicted" in one for one in summary.differences) is is_outside


def _refuse(*_: Any) -> Expectation:
    raise InvalidInputError("nobody knows", hint="none")


def test_a_watcher_says_each_thing_once_and_the_folder_has_it_all(tmp_path: Path):
    said: list[str] = []
    run = _run(tmp_path, step_ms=40, losses='["nan"]')
    watcher = Watcher(run, expect=_refuse, say=said.append, expectation=_EXPECTED)
    watcher.look()
    first = list(said)
    watcher.look()
    assert said == first
    kinds = [one.kind for one in read_notices(run.folder)]
    assert sorted(kinds) == ["diverging", "slow"]
    assert read_expectation(run.folder) == _EXPECTED
    assert len(summary_of(run).notices) == 2


def test_a_watcher_is_quiet_while_right(tmp_path: Path):
    said: list[str] = []
    run = _run(tmp_path)
    Watcher(run, expect=_refuse, say=said.append, expectation=_EXPECTED).look()
    assert said == []


def test_an_invoice_stands_beside_what_was_predicted_and_measured(tmp_path: Path):
    run = _run(tmp_path)
    Watcher(run, expect=_refuse, say=lambda _: None, expectation=_EXPECTED).look()
    paceline.runs_show(run.id, billed="11.5usd", runs=tmp_path)
    shown = paceline.runs_show(run.id, runs=tmp_path)
    (cost,) = [one for one in shown.ledger if one.name == "cost"]
    assert (cost.predicted, cost.billed) == (_EXPECTED.cost_usd, 11.5)


@pytest.mark.parametrize("text", ["", "null", "{", "[1]", '{"step_s": 3, "nothing": 1}'])
def test_a_torn_expectation_is_none(tmp_path: Path, text: str):
    (tmp_path / "expectation.json").write_text(text)
    found = read_expectation(tmp_path)
    assert found is None or found.source == ""


def test_a_script_that_does_not_run_as_planned_is_told():
    said = {"batch": "4 × 2", "precision": "bf16", "ranks": "2", "device": "T4"}
    planned = Expectation(source="a plan", planned=said)
    job = CapturedJob(
        model="Net", num_parameters=1, batch=4, seq=None, optimizer="sgd", optimizer_class="SGD",
        precision="fp32", precision_note="float32", rewrite="", compiler="eager", microbatches=2,
        world_size=1, wrappers=(), num_workers=0, why_untraced="",
    )  # fmt: skip
    different = "precision fp32 (planned bf16), ranks 1 (planned 2)"
    assert planned.unplanned(job, "T4") == different
    assert planned.unplanned(job, "L4") == f"{different}, device L4 (planned T4)"
    assert Expectation(source="none").unplanned(job, "T4") == ""
