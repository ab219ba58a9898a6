"""Each guard speaks on its fault and says what to do; healthy runs are silent."""

from __future__ import annotations

import math
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.app.api.running import run
from paceline.execution.machine.nvml import GpuSample
from paceline.execution.machine.sensors import Reading
from paceline.planfile import Interval
from paceline.watch.captured import CapturedJob
from paceline.watch.events import RankEvents, StepRow
from paceline.watch.expected import Expectation
from paceline.watch.guards import Limits, Look, Notice, notices
from paceline.watch.watcher import is_busy

_MS = 1_000_000
_SITE = "/usr/lib/python3.11/site-packages/"
_JOB = CapturedJob(
    model="Net", num_parameters=1, batch=8, seq=None, optimizer="sgd", optimizer_class="SGD",
    precision="fp32", precision_note="float32", rewrite="", compiler="eager", microbatches=1,
    world_size=1, wrappers=(), num_workers=2, why_untraced="",
)  # fmt: skip
_STEP_10_MS = Expectation(source="a test", step_s=Interval(low=0.008, mid=0.010, high=0.012))


def _rank(
    number: int = 0, *, steps: int = 400, step_ms: float = 10.0, wait_ms: float = 0.0,
    losses: tuple[float, ...] = (1.0,),
) -> RankEvents:  # fmt: skip
    found = RankEvents(path=Path(f"rank-{number}"), begin={"rank": number, "world_size": 2})
    found.steps = [
        StepRow(
            optimizer=0, ended_ns=int((n + 1) * step_ms * _MS), wait_ns=int(wait_ms * _MS),
            forward_ns=2 * _MS, backward_ns=4 * _MS, update_ns=_MS, num_batches=1,
            num_backwards=1, losses=losses,
        )
        for n in range(steps)
    ]  # fmt: skip
    return found


def _look(*ranks: RankEvents, silent_s: float = 0.0, **facts: Any) -> list[Notice]:
    known: dict[str, Any] = {
        "elapsed_s": 10.0, "job": None, "expectation": None, "limits": Limits(), **facts,
    }  # fmt: skip
    return list(notices(Look(ranks=ranks, silent_s=[silent_s] * len(ranks), **known)))


def _standing(rank: RankEvents, *frames: list[Any], quiet_s: float = 61.0) -> RankEvents:
    moved_ns = rank.steps[-1].ended_ns if rank.steps else 0
    at = moved_ns + int(quiet_s * 1e9)
    rank.events["stack"] = [{"event": "stack", "t": at, "quiet_s": quiet_s, "frames": list(frames)}]
    return rank


_LOADER = [f"{_SITE}torch/utils/data/dataloader.py", 9, "_next_data"]
_BACKWARD = [f"{_SITE}torch/autograd/graph.py", 9, "_engine_run_backward"]
_BARRIER = [f"{_SITE}torch/distributed/distributed_c10d.py", 9, "barrier"]
_SAVE = [f"{_SITE}torch/serialization.py", 9, "save"]
_LOCK = ["/usr/lib/python3.11/threading.py", 9, "wait"]
_SCRIPT = ["/home/me/train.py", 7, "<module>"]


@pytest.mark.parametrize("expectation", [None, _STEP_10_MS])
def test_healthy_runs_are_silent(expectation: Expectation | None):
    for step_ms in (8.0, 10.0, 11.9):
        rank = _rank(step_ms=step_ms, wait_ms=0.2)
        assert _look(rank, _rank(1, step_ms=step_ms), expectation=expectation) == []


def test_steps_that_take_longer_than_the_interval_are_told():
    (notice,) = _look(_rank(step_ms=15.0), expectation=_STEP_10_MS)
    assert notice.kind == "slow"
    assert "50% slower" in notice.text
    assert _look(_rank(step_ms=15.0, steps=15), expectation=_STEP_10_MS) == []


def _late(rank: RankEvents, host: str, *, forward_ms: float = 2.0, wait_ms: float = 0.0):
    """A rank on a machine, later in its backward pass than the others."""
    rank.begin = {**rank.begin, "host": host}
    longer = {"forward_ns": int(forward_ms * _MS), "wait_ns": int(wait_ms * _MS)}
    rank.steps = [row._replace(**longer) for row in rank.steps]
    return rank


@pytest.mark.parametrize("hosts", [("a", "a"), ("a", "b")])
def test_the_rank_that_others_wait_for_is_named_with_its_machine(hosts: tuple[str, str]):
    ranks = [_late(_rank(n, step_ms=15.0), hosts[n], forward_ms=2.0 + 6.0 * n) for n in (0, 1)]
    (notice,) = _look(*ranks, expectation=_STEP_10_MS)
    where = " on b" if hosts[0] != hosts[1] else ""
    assert f"rank 1{where} comes to its backward pass after 8.00 ms" in notice.evidence
    assert "the others after 2.00 ms" in notice.evidence
    even = [_late(_rank(n, step_ms=15.0), hosts[n]) for n in (0, 1)]
    assert "comes to its" not in _look(*even, expectation=_STEP_10_MS)[0].evidence


@pytest.mark.parametrize("starving", [0, 1])
def test_one_rank_that_waits_for_input_is_told_where_the_others_wait_for_it(starving: int):
    waits = [13.0 if n == starving else 0.1 for n in (0, 1)]
    (notice,) = _look(*(_rank(n, step_ms=20.0, wait_ms=waits[n]) for n in (0, 1)))
    assert notice.kind == "starved"
    assert f"of rank {starving}" in notice.evidence


def test_a_device_that_waits_for_input_is_told_once_and_with_its_share():
    (notice,) = _look(_rank(step_ms=20.0, wait_ms=13.0), expectation=_STEP_10_MS)
    assert notice.kind == "starved"
    assert "65% of a step" in notice.text
    job = _look(_rank(step_ms=20.0, wait_ms=13.0), job=_JOB)[0]
    # With 2 workers a batch comes every 20 ms: 40 ms of work, for a device that takes 7.
    assert "num_workers=2; about 6 would keep up" in job.remedy
    assert "less work per sample" in job.remedy


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_losses_that_are_no_numbers_are_told_with_the_last_that_was(lost: float):
    rank = _rank()
    rank.steps[100:] = [row._replace(losses=(lost,)) for row in rank.steps[100:150]]
    (notice,) = _look(rank)
    assert notice.kind == "diverging"
    assert "since step 101" in notice.text
    one_lost = _rank()
    one_lost.steps[50] = one_lost.steps[50]._replace(losses=(lost,))
    assert _look(one_lost) == []


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ((_LOADER, _SCRIPT), "rank 1 is waiting for a batch (train.py:7)"),
        ((_SAVE, _SCRIPT), "rank 1 is saving or loading (train.py:7)"),
        ((_LOCK, _SCRIPT), "rank 1 is waiting for a lock (train.py:7)"),
        ((_SCRIPT,), "rank 1 is in its own code (train.py:7)"),
    ],
)
def test_the_rank_that_hangs_is_named_with_its_line(frames: tuple[list[Any], ...], words: str):
    other = _standing(_rank(0), _BACKWARD, _SCRIPT)
    (notice,) = _look(other, _standing(_rank(1), *frames))
    assert notice.kind == "stalled"
    assert words in notice.text
    assert "the others wait for it in backward" in notice.text


def test_ranks_in_one_collective_are_all_named():
    ranks = [_standing(_rank(n), _BARRIER, _SCRIPT) for n in (0, 1)]
    (notice,) = _look(*ranks)
    assert "rank 0" in notice.text
    assert "rank 1" in notice.text


def test_a_rank_that_has_ended_while_another_waits_is_named():
    gone = _rank(1, steps=300)
    gone.events["end"] = [{"event": "end"}]
    (notice,) = _look(_standing(_rank(0), _BARRIER), gone)
    assert "rank 1 has ended after step 300" in notice.text


def test_ranks_that_are_gone_stall_nobody():
    failed, gone = _rank(0), _rank(1, steps=2)
    failed.events["failure"] = [{"event": "failure", "message": "reset by peer"}]
    failed.events["end"] = [{"event": "end"}]
    (notice,) = _look(failed, gone, silent_s=61.0, gone=[True, True])
    assert notice.kind == "lost"


def test_a_rank_that_holds_the_interpreter_says_nothing_and_is_told():
    (notice,) = _look(_rank(), silent_s=61.0)
    assert "holds the interpreter" in notice.text


def test_a_stack_of_before_the_last_step_is_no_stall():
    rank = _standing(_rank(), _LOADER)
    rank.steps += [rank.steps[-1]._replace(ended_ns=rank.steps[-1].ended_ns + int(90e9))]
    assert _look(rank) == []


def test_a_long_step_is_no_stall():
    rank = _standing(_rank(steps=30, step_ms=60_000.0), _BACKWARD, quiet_s=120.0)
    assert _look(rank) == []


def test_a_deadline_and_a_budget_are_told_from_the_rate():
    price = Expectation(source="a plan", usd_per_hour=36.0, num_steps=100_000)
    limits = Limits(deadline_s=500.0, budget_usd=5.0)
    found = {one.kind: one for one in _look(_rank(), expectation=price, limits=limits)}
    # 99,600 steps of 10 ms are left after 10 s: 1,006 s, at a cent a second.
    assert found.keys() == {"deadline", "budget"}
    assert "10.1 USD" in found["budget"].text
    fine = Limits(deadline_s=2000.0, budget_usd=50.0)
    assert _look(_rank(), expectation=price, limits=fine) == []


def test_what_cannot_fit_is_told_before_it_does_not():
    memory = Interval(low=28e9, mid=31e9, high=34e9)
    expected = Expectation(source="a test", memory_bytes=memory, capacity_bytes=25e9)
    (notice,) = _look(expectation=expected)
    assert notice.kind == "fit"
    assert "31.0 GB" in notice.text
    roomy = Expectation(source="a test", memory_bytes=memory, capacity_bytes=48e9)
    assert _look(expectation=roomy) == []


def test_out_of_memory_is_told_by_owners():
    rank = _rank()
    rank.events["failure"] = [
        {"is_out_of_memory": True, "phase": "backward", "message": "tried 1 GiB\nmore"}
    ]
    rank.events["memory"] = [{"reserved_bytes": 24_000_000_000}]
    expected = Expectation(
        source="a test", memory_bytes=Interval(low=1e9, mid=26e9, high=30e9),
        parameter_bytes=1e9, optimizer_state_bytes=2e9,
    )  # fmt: skip
    (notice,) = _look(rank, expectation=expected)
    assert notice.kind == "memory"
    assert "backward of step 401" in notice.text
    assert "activations and the rest 23.0 GB" in notice.evidence


def test_a_slow_run_on_a_crowded_machine_is_said_to_be_so():
    rank = _rank(step_ms=15.0)
    rank.events["cores"] = [
        {"ran_ns": 0, "stood_ns": 0},
        {"ran_ns": 600, "stood_ns": 400},
    ]
    (notice,) = _look(rank, expectation=_STEP_10_MS)
    assert "40% of its time in line for a core" in notice.remedy


def test_a_job_that_uses_neither_core_nor_gpu_is_idle():
    def reading(at_s: float, cpu_s: float, *shares: float) -> Reading:
        gpus = tuple(GpuSample(utilization_frac=share) for share in shares)
        return Reading(
            at_s=at_s, gpus=gpus, cpu_s=cpu_s, resident_bytes=0.0, cpu_energy_j=None, is_shared=None
        )

    assert not is_busy(reading(0.0, 5.0), reading(10.0, 5.1))
    assert is_busy(reading(0.0, 5.0), reading(10.0, 9.0))
    assert not is_busy(reading(0.0, 5.0, 0.0), reading(10.0, 9.0, 0.0))
    assert is_busy(reading(0.0, 5.0, 0.0), reading(10.0, 5.0, 0.6))


def test_an_idle_job_is_ended_and_says_so(tmp_path: Path):
    said: list[str] = []
    words = (sys.executable, "-c", "import time; time.sleep(60)")
    summary = run(words, runs=tmp_path, stop_idle="2s", on_notice=said.append)
    assert summary.status == -signal.SIGTERM
    assert any(line.startswith("step 1: idle for") for line in said)
    assert len([line for line in said if "idle for" in line]) == 1


def test_a_busy_job_is_left_alone(tmp_path: Path):
    words = (sys.executable, "-c", "import time; t=time.time()\nwhile time.time()-t < 3: pass")
    assert run(words, runs=tmp_path, stop_idle="2s").status == 0


def test_a_rank_that_is_gone_without_a_word_is_named_where_another_failed_for_it():
    failed, gone = _rank(0, steps=6), _rank(1, steps=5)
    failed.events["failure"] = [{"phase": "backward", "message": "Connection closed by peer"}]
    (notice,) = (one for one in _look(failed, gone, gone=[True, True]) if one.kind == "lost")
    assert "rank 1 is gone since step 6" in notice.text
    assert "rank 0 failed in backward" in notice.text
    gone.events["end"] = [{"event": "end"}]
    assert not [one for one in _look(failed, gone, gone=[True, True]) if one.kind == "lost"]


def _leaves(rank: RankEvents, *, before_s: float = 0.0) -> None:
    """It calls `os._exit` in its line 67, after its last step or before that."""
    ended_ns = rank.steps[-1].ended_ns
    frames = [["/home/me/train.py", 67, "<module>"]]
    rank.events["exit"] = [{"call": "os._exit", "frames": frames, "t": ended_ns - 1e9 * before_s}]


def test_the_line_that_ended_a_rank_is_named_where_another_failed_for_it():
    failed, gone = _rank(0, steps=6), _rank(1, steps=5)
    failed.events["failure"] = [{"phase": "backward", "message": "Connection closed by peer"}]
    _leaves(gone)
    (notice,) = (one for one in _look(failed, gone, gone=[True, True]) if one.kind == "lost")
    assert "rank 1 ended itself after step 5 (train.py:67, os._exit); rank 0" in notice.text
    _leaves(gone, before_s=5.0)  # It was caught: steps came after it.
    (notice,) = (one for one in _look(failed, gone, gone=[True, True]) if one.kind == "lost")
    assert "without a word" in notice.text


@pytest.mark.parametrize(("steps", "is_named"), [(5, True), (9, False)])
def test_a_rank_that_ended_in_a_later_step_is_not_what_another_failed_for(
    steps: int, is_named: bool
):
    failed, gone = _rank(0, steps=6), _rank(1, steps=steps)
    failed.events["failure"] = [{"phase": "backward", "message": "Connection closed by peer"}]
    _leaves(gone)
    gone.events["end"] = [{"event": "end"}]
    kinds = [one.kind for one in _look(failed, gone, gone=[True, True])]
    assert ("lost" in kinds) == is_named


def test_a_signal_from_outside_is_told_once(tmp_path: Path):
    said: list[str] = []
    code = "import os, signal, time; signal.signal(15, signal.SIG_IGN); "
    code += "os.kill(os.getppid(), 15); time.sleep(1.2)"
    assert run((sys.executable, "-c", code), runs=tmp_path, on_notice=said.append).status == 0
    assert len([line for line in said if "SIGTERM came from outside" in line]) == 1
