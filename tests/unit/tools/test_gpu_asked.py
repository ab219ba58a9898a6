"""Jobs as people write them: what is asked of a GPU is what is asked of paceline."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from gpu.asked import page, read_jobs

from paceline.app.main import main

JOBS = read_jobs()


def test_titles_are_unlike_and_each_job_is_known_to_its_worker() -> None:
    pytest.importorskip("torch")
    from gpu.workers.asked_worker import KINDS

    assert len({job["title"] for job in JOBS}) == len(JOBS)
    assert {job["worker"]["kind"] for job in JOBS} <= set(KINDS)


def test_batch_and_length_are_those_of_the_command() -> None:
    for job in JOBS:
        if "model" in job:
            words = shlex.split(job["words"])
            told = dict(zip(words[::2], words[1::2], strict=True))
            assert int(told["--batch"]) == job["worker"]["batch"], job["title"]
            length = told.get("--seq") or told.get("--prompt-tokens")
            assert length is None or int(length) == _length(job["worker"]), job["title"]


def _length(worker: dict[str, Any]) -> int:
    """Tokens of a sample that a worker reads; of one that hears, those that it writes."""
    if worker.get("reads") == "pictured":
        return int(worker["patches"] + worker["text"])
    return int(worker["seq"] if "seq" in worker else worker["target"])


def test_a_measured_job_stands_beside_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    job = next(one for one in JOBS if one.get("model") == "resnet50")
    words = [*shlex.split(job["words"]), "--device", "H200", "--devices", "1", "--json"]
    assert main(["predict", "resnet50", *words]) == 0
    step_s = json.loads(capsys.readouterr().out)["cells"][0]["step_s"]
    seen = {"title": job["title"], "gpu": "NVIDIA H200", "median_s": step_s["mid"]}
    line = page([{**seen, "reserved_bytes": 1e9}], JOBS).splitlines()[-1]
    assert "| 1.00 | yes |" in line


def test_the_committed_records_are_of_known_jobs() -> None:
    kept = Path(__file__).parents[3] / "benchmarks" / "gpu_asked.jsonl"
    titles = {json.loads(line)["title"] for line in kept.read_text(encoding="utf-8").splitlines()}
    assert titles <= {job["title"] for job in JOBS}


def test_what_was_answered_before_a_job_ran_was_answered_before_it_ran() -> None:
    folder = Path(__file__).parents[3] / "benchmarks"
    ran_at = {
        (one["title"], one["gpu"]): one["recorded_at"]
        for one in map(json.loads, (folder / "gpu_asked.jsonl").read_text("utf-8").splitlines())
    }
    for line in (folder / "gpu_asked_before.jsonl").read_text("utf-8").splitlines():
        told = json.loads(line)
        when = ran_at.get((told["title"], told["gpu"]))
        assert when is None or told["asked_at"] < when, told["title"]
