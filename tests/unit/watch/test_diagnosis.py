"""What slows a script, from blocks of steps as the observer writes them, and in a real script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.watch.watched import script

import paceline
from paceline.watch.diagnosis.blocks import Crowd, found_in
from paceline.watch.diagnosis.causes import ranked_causes, without_gain
from paceline.watch.diagnosis.diagnosing import diagnosis_of, is_crowded, try_in_script
from paceline.watch.events import RankEvents, read_run
from paceline.watch.folder import new_run
from paceline.watch.observer import doubt, trial_plan
from warm_workers import WORKERS

_FACTS = {"num_cores": 2, "num_threads": 1, "num_workers": 0, "batch": 8, "world_size": 1}


def _block(name: str, step_ms: float, *, stood_ms: float = 0.0, **more: Any) -> dict[str, Any]:
    times = more.pop("times", 1)
    walls = [1e6 * (times * step_ms + stood_ms + 0.01 * (n % 2)) for n in range(8)]
    feed = {"as": "replay"} if name in ("replay", "lines") or times > 1 else {"as": "own"}
    return {
        "event": "block", "name": name, "feed": feed, "steps": walls, "stood": [1e6 * stood_ms] * 8,
        "parts": dict.fromkeys(("wait", "forward", "backward", "update"), 0), "num_saves": 0,
        "times": times, "machine": [1.0, 1.0, 0.9, 0.0], **more,
    }  # fmt: skip


def _found(*blocks: dict[str, Any], facts: dict[str, Any] | None = None, **events: Any):
    rank = RankEvents(path=Path("rank-0-1.jsonl"))
    rank.events = {"trials": [{**_FACTS, **(facts or {})}], "block": list(blocks), **events}
    return found_in([rank])


def test_workers_that_win_what_waiting_costs_are_the_cause():
    waits = {"wait": 8 * 30e6, "forward": 0, "backward": 0, "update": 0}
    once = [
        _block("own", 60.0, parts=waits), _block("replay", 30.0), _block("own", 60.0, parts=waits),
        _block("workers 1", 33.0), _block("workers 2", 32.5),
    ]  # fmt: skip
    found = _found(*once, *once[2:])
    (cause,) = ranked_causes(found)
    assert (cause.kind, cause.remedy, cause.known_by) == ("no-workers", "num_workers=1", "tried")
    assert cause.step_s.mid == pytest.approx(0.033, rel=1e-3)
    assert without_gain(found) == ()


def test_time_in_line_for_a_core_is_no_part_of_a_step():
    crowded = {"machine": [1.0, 1.4, 0.9, 0.0]}  # Others had a core for as long as it stood.
    found = _found(_block("own", 30.0, stood_ms=50.0, **crowded), _block("replay", 30.0))
    assert found.step_s("own") == pytest.approx(found.step_s("replay"))
    assert ranked_causes(found) == ()


def test_a_thread_stands_behind_others_for_no_longer_than_they_run():
    alone = {"machine": [1.0, 1.02, 0.9, 0.0]}  # Its own workers had the core, and others 0.12 s.
    found = _found(_block("own", 30.0, stood_ms=50.0, **alone))
    assert found.step_s("own") == pytest.approx(0.080 - 0.12 / 8, rel=1e-3)


def test_time_in_line_behind_its_own_workers_is_a_part_of_a_step():
    alone = {"machine": [1.0, 2.0, 2.0, 0.0], "cpu_ns": 0.5e9}
    shared = {"machine": [1.0, 2.0, 1.25, 0.0], "cpu_ns": 0.5e9}
    found = _found(
        _block("own", 30.0, stood_ms=20.0, **alone),
        _block("workers 2", 30.0, stood_ms=20.0, **shared),
        facts={"num_workers": 2},
    )
    assert found.step_s("own") == pytest.approx(0.050, rel=1e-3)
    assert found.step_s("workers 2") == pytest.approx(0.040, rel=1e-3)  # Half of it.


def test_where_workers_set_the_pace_it_is_what_they_stood_that_counts():
    parts = {"wait": 8 * 50e6, "forward": 0, "backward": 0, "update": 0}
    block = _block("own", 80.0, stood_ms=20.0, machine=[1.0, 2.0, 1.0, 0.32], parts=parts)
    (own,) = _found(block, facts={"num_workers": 1}).named("own")
    assert own.step_s == pytest.approx(0.060, rel=1e-3)  # The worker stood 320 ms in eight steps.


def test_what_a_step_takes_has_its_share_of_the_beginning_of_an_epoch():
    facts = {"epoch_steps": 100, "num_workers": 1}
    begun = _block("own", 20.0, begins=[[0, 520e6, 0.0]])
    found = _found(begun, _block("own", 20.0), _block("replay", 20.0), facts=facts)
    assert found.step_s("own") == pytest.approx(0.025, rel=1e-3)
    assert found.step_s("replay") == pytest.approx(0.020, rel=1e-3)


def test_a_beginning_among_the_measured_steps_counts_once():
    begun = _block("own", 20.0, begins=[[3, 1020e6, 0.0]])
    begun["steps"][3] = 1020e6
    assert _found(begun, facts={"epoch_steps": 100}).step_s("own") == pytest.approx(0.030, rel=1e-3)


def test_what_changes_numbers_comes_after_what_does_not():
    rounds = [_block("own", 60.0), _block("bf16", 20.0), _block("threads 1", 50.0)] * 3
    kinds = [one.kind for one in ranked_causes(_found(*rounds, facts={"num_threads": 16}))]
    assert kinds == ["threads", "fp32"]


def test_a_gain_within_its_own_doubt_is_none():
    blocks = [_block("own", 60.0), _block("bf16", 50.0), _block("own", 60.0), _block("bf16", 66.0)]
    found = _found(*blocks, _block("own", 60.0), _block("bf16", 57.0))
    assert ranked_causes(found) == ()
    assert without_gain(found) == ("autocast bf16",)


@pytest.mark.parametrize(
    ("calls", "is_before", "kind"),
    [
        (["argmax", "item"], False, "item"),
        (["to", "tensor", "tolist"], True, "sample-copies"),
        (["dumps", "write", "item"], False, "logging"),
        (["save", "state_dict"], False, "saves"),
    ],
)
def test_statements_of_the_loop_are_named_by_what_they_do(calls, is_before, kind):
    line = {
        "file": "train.py", "line": 7, "end": 9, "own_ns": 80e6, "cpu_ns": 80e6, "away_ns": 0,
        "text": "for one in batch:", "calls": calls, "has_loop": True, "is_before": is_before,
    }  # fmt: skip
    found = _found(_block("own", 30.0), _block("lines", 30.0, lines=[line]))
    (cause,) = ranked_causes(found)
    assert cause.kind == kind
    assert "train.py:7–9" in cause.text
    assert cause.step_s.mid == pytest.approx(0.020, rel=0.03)


#: Making a batch: half of it waits for the disk, and not when it is read again.
_COLD = {
    "name": "batch", "has_indices": True, "sample_s": 0.050, "sample_cpu_s": 0.025,
    "again_s": 0.020, "again_cpu_s": 0.020, "collate_s": 0.001, "is_default_collate": False,
    "lines": [],
}  # fmt: skip
_STARVED = {**_FACTS, "num_workers": 1, "prefetch_factor": 2, "persistent": True, "step_s": 0.06,
            "device": "cpu", "epoch_steps": 1000}  # fmt: skip


def test_cold_reads_gain_what_a_loader_of_read_files_gains():
    rounds = [_block("own", 60.0), _block("replay", 20.0), _block("read again", 45.0)] * 2
    found = _found(*rounds, facts=_STARVED, probe=[_COLD])
    cause = next(one for one in ranked_causes(found) if one.kind == "cold-reads")
    assert (cause.known_by, cause.step_s.mid) == ("tried", pytest.approx(0.045, rel=1e-3))


@pytest.mark.parametrize(("again_s", "is_tried"), [(0.020, True), (0.045, False)])
def test_files_are_read_again_where_the_first_reading_took_longer(again_s: float, is_tried: bool):
    facts = {**_STARVED, "num_frozen": 0, "weights": "", "may_bf16": False, "num_saves": 0,
             "finds_unused": False, "is_ddp": False, "is_unfed": False}  # fmt: skip
    blocks = [
        _block("own", 60.0),
        _block("replay", 20.0),
        {**_COLD, "again_s": again_s, "steps": []},
    ]
    chunk = trial_plan.chunk(2, facts, blocks, 0.0, {"limit_s": 60.0}, doubt)
    assert ("read again" in [one["name"] for one in chunk]) == is_tried


def _tried_in(facts: dict[str, Any]) -> list[str]:
    """Names of all that is tried, in its order, where each block takes what it did before."""
    names: list[str] = []
    results: list[dict[str, Any]] = []
    for number in range(1, 20):
        chunk = trial_plan.chunk(number, facts, results, 0.0, {"limit_s": 60.0}, doubt)
        if not chunk:
            return names
        names += [one["name"] for one in chunk]
        results += [{**_block(one["name"], 60.0), **_COLD, "name": one["name"]} for one in chunk]
    raise AssertionError("it tries for ever")


_PLAIN = {
    **_STARVED, "num_frozen": 0, "weights": "", "may_bf16": False, "may_tf32": True,
    "num_saves": 0, "finds_unused": False, "is_ddp": False, "is_unfed": False, "pinned": False,
}  # fmt: skip


def _rounds_of(share: float, spread: float) -> list[str]:
    """Names of all that is tried where two threads take such a share of a step, more or less."""
    names: list[str] = []
    results: list[dict[str, Any]] = []
    for number in range(1, 20):
        chunk = trial_plan.chunk(number, _PLAIN, results, 0.0, {"limit_s": 60.0}, doubt)
        names += [one["name"] for one in chunk]
        for one in chunk:
            sign = 1 if names.count(one["name"]) % 2 else -1
            step_ms = 60.0 * (share if one["name"] == "threads 2" else 1.0) * (1 + sign * spread)
            results.append({**_block(one["name"], step_ms), **_COLD, "name": one["name"]})
    return names


def test_a_trial_is_repeated_while_its_gain_is_in_doubt():
    sure, none = _rounds_of(0.5, 0.01), _rounds_of(1.0, 0.01)
    assert sure.count("threads 2") == none.count("threads 2") == 3
    assert _rounds_of(0.9, 0.06).count("threads 2") > 6
    assert _rounds_of(1.3, 0.01).count("threads 2") == 1  # Clearly slower.


def test_a_gpu_is_profiled_once_after_all_else():
    on_gpu = _tried_in({**_PLAIN, "device": "cuda"})
    assert on_gpu.index("profile") == len(on_gpu) - 1
    assert {"tf32", "pinned", "replay"} < set(on_gpu)
    assert "pinned" not in _tried_in({**_PLAIN, "device": "cuda", "pinned": True})
    assert not {"profile", "tf32", "pinned"} & set(_tried_in(_PLAIN))


def test_without_a_loader_nothing_is_replayed():
    unfed = {**_PLAIN, "is_unfed": True, "num_workers": None, "batch": None, "epoch_steps": None}
    assert set(_tried_in({**unfed, "device": "cuda"})) == {"own", "lines", "tf32", "profile"}
    assert set(_tried_in(unfed)) == {"own", "lines", "threads 2"}


def test_work_on_samples_gains_no_more_than_its_doubt_leaves():
    rounds = [_block("own", 60.0), _block("replay", 20.0), _block("free samples", 40.0)]
    work = {**_COLD, "again_s": 0.050}
    found = _found(*rounds * 2, facts=_STARVED, probe=[work])
    assert "slow-samples" in [one.kind for one in ranked_causes(found)]
    noisy = [*rounds, _block("own", 60.0), _block("free samples", 75.0)]
    assert ranked_causes(_found(*noisy, facts=_STARVED, probe=[work])) == ()


@pytest.mark.parametrize(("wait_ms", "kinds"), [(12.0, ["few-workers"]), (0.5, [])])
def test_more_workers_help_where_the_script_waits_for_them(wait_ms: float, kinds: list[str]):
    own = _block("own", 60.0)
    own["parts"] = {**own["parts"], "wait": 8 * 1e6 * wait_ms}
    found = _found(*[own, _block("replay", 40.0), _block("workers 2", 42.0)] * 2, facts=_STARVED)
    assert [one.kind for one in ranked_causes(found)] == kinds


@pytest.mark.parametrize(("wait_ms", "promised_ms"), [(20.0, 40.0), (0.0, 50.0)])
def test_samples_gain_their_share_of_what_their_workers_cost(wait_ms: float, promised_ms: float):
    """Half of the work: of all of a step that waits for it, of the cores that it takes else."""
    own = _block("own", 60.0)
    own["parts"] = {**own["parts"], "wait": 8 * 1e6 * wait_ms}
    probe = {**_COLD, "sample_s": 0.020, "sample_cpu_s": 0.020, "collate_s": 0.020}
    found = _found(*[own, _block("replay", 40.0)] * 3, facts=_STARVED, probe=[probe])
    cause = next(one for one in ranked_causes(found) if one.kind == "slow-samples")
    assert cause.step_s.mid == pytest.approx(promised_ms / 1e3, rel=1e-3)


def test_a_slow_rank_is_named():
    facts = {"world_size": 2}
    ranks = []
    for number, alone in enumerate((20.0, 35.0)):
        rank = RankEvents(path=Path(f"rank-{number}-1.jsonl"), begin={"rank": number})
        blocks = [_block("own", 40.0), _block("no sync", alone), _block("accumulate 4", 37.0)] * 6
        rank.events = {"trials": [{**_FACTS, **facts}], "block": blocks}
        ranks.append(rank)
    causes = ranked_causes(found_in(ranks))
    assert [one.kind for one in causes] == ["slow-rank", "all-reduce"]
    assert causes[0].text.startswith("rank 1 takes")
    assert causes[0].step_s.mid == pytest.approx(0.025, rel=1e-3)
    assert causes[1].step_s.mid == pytest.approx(0.037, rel=1e-3)
    assert causes[1].known_by == "tried"


def test_a_slow_rank_alone_on_a_crowded_machine_takes_what_it_takes_on_a_calm_one():
    ranks = []
    # By itself the quick rank has ended long before the slow one: its window saw little of others.
    quick = {"machine": [0.01, 0.02, 0.008, 0.0, 0.0], "cpu_ns": 8 * 1e6}
    slow = {"machine": [0.4, 0.8, 0.16, 0.0, 0.0], "cpu_ns": 8 * 20e6, "stood_ms": 30.0}
    for number, (alone_ms, seen) in enumerate(((1.0, quick), (20.0, slow))):
        seen = {**seen, "settings": {"sync": False}}
        rank = RankEvents(path=Path(f"rank-{number}-1.jsonl"))
        blocks = [_block("own", 19.0), _block("no sync", alone_ms, **seen)] * 6
        rank.events = {"trials": [{**_FACTS, "world_size": 2}], "block": blocks}
        ranks.append(rank)
    found = found_in(ranks)
    for one in found.named("no sync"):
        assert one.by_rank_s == pytest.approx((0.001, 0.020), rel=0.03)
    # What is off by chance promises no step below that of the other rank alone.
    assert ranked_causes(found)[0].step_s.mid == pytest.approx(0.001, rel=0.03)


def test_a_rank_that_was_seen_alone_once_is_not_called_slow():
    ranks = []
    for number, alone in enumerate((29.0, 36.0)):
        rank = RankEvents(path=Path(f"rank-{number}-1.jsonl"))
        blocks = [_block("own", ms) for ms in (38.0, 42.0, 40.0)] + [_block("no sync", alone)]
        rank.events = {"trials": [{**_FACTS, "world_size": 2}], "block": blocks}
        ranks.append(rank)
    assert ranked_causes(found_in(ranks)) == ()


def test_a_rank_that_is_slower_in_some_blocks_alone_is_not_called_slow():
    ranks = []
    for number, alone in enumerate(((28.5, 25.4, 26.8), (29.1, 28.5, 33.0))):
        rank = RankEvents(path=Path(f"rank-{number}-1.jsonl"))
        blocks = [one for ms in alone for one in (_block("own", 40.0), _block("no sync", ms))]
        rank.events = {"trials": [{**_FACTS, "world_size": 2}], "block": blocks}
        ranks.append(rank)
    assert "slow-rank" not in [one.kind for one in ranked_causes(found_in(ranks))]


@pytest.mark.parametrize("step_s", [0.001, 0.006, 0.02, 0.1])
def test_a_block_has_more_of_shorter_steps(step_s: float):
    facts = {"step_s": step_s, "num_workers": 0, "prefetch_factor": 2, "epoch_steps": 400}
    one = trial_plan.block("own", facts)
    assert one["num_steps"] == {0.001: 100, 0.006: 83, 0.02: 25, 0.1: 10}[step_s]


def test_accumulated_steps_count_with_the_update_that_they_share():
    walls = [1e6 * one for one in (10.0, 10.0, 10.0, 50.0) * 3]
    tried = _block("accumulate 4", 0.0, settings={"accumulated": 4})
    tried.update(steps=walls, stood=[0.0] * 12)
    found = _found(_block("own", 50.0), tried)
    assert found.step_s("accumulate 4") == pytest.approx(0.020)


def test_a_crowd_is_other_programs_not_the_threads_of_the_script():
    assert is_crowded(Crowd(num_cores=2, others_cores=1.4, stood_frac=0.5))
    assert not is_crowded(Crowd(num_cores=2, others_cores=0.1, stood_frac=0.5))
    assert not is_crowded(Crowd(num_cores=64, others_cores=3.0, stood_frac=0.0))


_SAVING = """
import torch
torch.set_num_threads(1)
x = torch.randn(4000, 64)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=64)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 1))
model.register_buffer("table", torch.zeros(1_000_000))  # A save takes most of a step.
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(1000):
    for (x,) in loader:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.save(model.state_dict(), "last.pt")
        open("log.txt", "a").write("step\\n")
"""


_STAYING = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import observer
sys.modules["_paceline_observer"] = observer
import feeds
loader = torch.utils.data.DataLoader(
    torch.zeros(64, 1), batch_size=4, num_workers=2, persistent_workers=True
)
feed = feeds.Feed(loader)
feed.next()
workers = feed.iterator._workers
feed.iterator._paceline_loader = loader
feed.close()
print([one.exitcode for one in workers])
"""


_BEGUN = """
import json, os, sys, types, torch
sys.path.insert(0, sys.argv[1])
import observer
sys.modules["_paceline_observer"] = observer
import torch_trials
os.environ["PACELINE_TRIALS"] = "{}"
log = types.SimpleNamespace(folder=os.getcwd())
trials = torch_trials.install(log, torch, types.SimpleNamespace(device=None))
loader = torch.utils.data.DataLoader(torch.arange(64), batch_size=4, num_workers=1)
first = iter(loader)
(feed,) = trials.feeds.values()
pids = {one._workers[0].pid for one in (first, feed.iterator)}
print(len(pids), feed.stays, 1 + len(trials.feeds), flush=True)
for one in (first, feed.iterator):
    one._shutdown_workers()
os._exit(0)
"""


_FEW = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import observer
sys.modules["_paceline_observer"] = observer
import feeds
loader = torch.utils.data.DataLoader(torch.arange(64), batch_size=4, shuffle=True)
one = type("Iterator", (), {"_paceline_loader": loader})
feed = feeds.feed_of(torch, {"as": "loader", "is_read_again": True}, one, [])
print(len(feed.loader), len({tuple(feed.next().tolist()) for _ in range(16)}), feed.has_begun)
"""


def _beside_the_observer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> subprocess.CompletedProcess[str]:
    """A script of a folder that is told where the modules of the observer lie."""
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(text)
    return WORKERS.run_script("train.py", Path(paceline.__file__).parent / "watch" / "observer")


def test_a_loader_of_a_few_batches_is_as_long_as_the_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch")
    ended = _beside_the_observer(tmp_path, monkeypatch, _FEW)
    assert ended.stdout.split() == ["16", "3", "True"], ended.stderr


def test_workers_that_read_again_begin_with_those_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch")
    ended = _beside_the_observer(tmp_path, monkeypatch, _BEGUN)
    assert ended.stdout.split() == ["2", "True", "2"], ended.stderr


def test_workers_of_a_trial_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    ended = _beside_the_observer(tmp_path, monkeypatch, _STAYING)
    assert ended.stdout.strip() == "[0, 0]", ended.stderr


def test_a_script_is_tried_as_a_throwaway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "train.py").write_text(_SAVING)
    (tmp_path / "log.txt").write_text("before\n")
    run = new_run((sys.executable, "train.py"), folder=tmp_path / "runs")
    found, failed = try_in_script(run, limit_s=5.0)
    said = diagnosis_of(run, found, failed)
    assert failed == ()
    assert said.is_whole
    assert said.num_saves > 0
    # What that costs is judged by `make diagnose`, on a calm machine.
    assert any("save" in one["calls"] for one in found.lines)
    assert not (tmp_path / "last.pt").exists()
    assert (tmp_path / "log.txt").read_text() == "before\n"
    assert not (run.folder / "scratch").exists()


def test_a_batch_that_a_loop_makes_itself_is_named_by_its_statement():
    line = {
        "file": "train.py", "line": 7, "end": 7, "own_ns": 80e6, "cpu_ns": 80e6, "away_ns": 0,
        "text": "for x in batches():", "calls": [], "has_loop": False, "is_before": True,
    }  # fmt: skip
    blocks = (_block("own", 30.0), _block("lines", 30.0, lines=[line]))
    (cause,) = ranked_causes(_found(*blocks, facts={"is_unfed": True}))
    assert cause.kind == "slow-batches"
    assert cause.step_s.mid == pytest.approx(0.020, rel=0.03)
    assert ranked_causes(_found(*blocks)) == ()


_CALLING = """
import sys
sys.path.insert(0, sys.argv[1])
import observer
sys.modules["_paceline_observer"] = observer
import torch, torch_lines
def nothing():
    pass
def batches():
    for number in range(4):
        for _ in range(1000):
            nothing()
        yield number
def loop():
    lines = torch_lines.Lines(torch)
    for number in batches():
        if number == 1:
            lines.begin(*torch_lines.loop_frame(sys._getframe()))
        if number == 3:
            told = lines.end()
    (key,) = [one for one in lines.calls if lines.calls[one] >= 1000]
    whole_ns, called = lines.time_ns[key], lines.calls[key]
    (one,) = [one for one in told if one["text"].startswith("for number")]
    added_ns = lines.hits[key] * lines.cost_ns[0] + called * lines.cost_ns[1]
    print(called, abs(whole_ns - one["own_ns"] - min(whole_ns, added_ns)) < 1.0)
loop()
"""


def test_what_tracing_adds_to_calls_is_no_time_of_a_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch")
    ended = _beside_the_observer(tmp_path, monkeypatch, _CALLING)
    # The generator goes on twice, and is called back to go on each time.
    assert ended.stdout.split() == ["2002", "True"], ended.stderr


_BY_HAND = """
import torch
torch.set_num_threads(1)
def batches():
    while True:
        total = 0
        for n in range(100_000):  # Takes most of a step.
            total += n
        yield torch.randn(8, 64)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
def train_step(x):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for x in batches():
    train_step(x)
"""


@pytest.mark.usefixtures("warm_scripts")
def test_a_loop_without_a_loader_tells_what_makes_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "train.py").write_text(_BY_HAND)
    run = new_run((sys.executable, "train.py"), folder=tmp_path / "runs")
    found, failed = try_in_script(run, limit_s=5.0)
    said = diagnosis_of(run, found, failed)
    assert (failed, said.is_whole, said.device_s) == ((), True, None)
    assert found.facts["is_unfed"]
    # Beside the times of a calm machine: how long that took here depends on who else computes.
    (line,) = [one for one in found.lines if one["is_before"]]
    calm = (_block("own", 30.0), _block("lines", 30.0, lines=[{**line, "own_ns": 80e6}]))
    (cause,) = ranked_causes(_found(*calm, facts={"is_unfed": True}))
    assert cause.kind == "slow-batches"
    assert "for x in batches():` (train.py:17)" in cause.text


#: A copy, kernels, and an all-reduce of which they hide two fifths.
_ON_GPU = {
    "bounds_ns": [0, 10_000_000], "kinds": "hkn", "starts_ns": [0, 1_000_000, 5_000_000],
    "durations_ns": [1_000_000, 6_000_000, 5_000_000], "streams": [7, 7, 9],
    "calls": {"cudaLaunchKernel": [412, 1], "cudaStreamSynchronize": [2, 1]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("step_ms", "kinds"),
    [(10.0, ["communication"]), (20.0, ["host-bound", "communication"])],
)
def test_what_a_gpu_waits_for_is_named(step_ms: float, kinds: list[str]):
    found = _found(_block("own", step_ms), _block("replay", step_ms), gpu_steps=[_ON_GPU])
    causes = ranked_causes(found)
    assert [one.kind for one in causes] == kinds
    promised_ms = {"communication": step_ms - 3.0, "host-bound": 10.0}
    for one in causes:
        assert 1e3 * one.step_s.mid == pytest.approx(promised_ms[one.kind], rel=0.01)


def test_a_line_that_waits_for_a_gpu_gains_what_that_stands_idle():
    line = {
        "file": "train.py", "line": 7, "end": 7, "own_ns": 128e6, "cpu_ns": 128e6, "away_ns": 0,
        "text": "log(loss.item())", "calls": ["log", "item"], "has_loop": False, "is_before": False,
    }  # fmt: skip
    blocks = (_block("own", 12.5), _block("lines", 16.0, lines=[line]))
    said = {one.kind: one for one in ranked_causes(_found(*blocks, gpu_steps=[_ON_GPU]))}
    assert 1e3 * said["logging"].step_s.mid == pytest.approx(12.5 - 2.5 * 0.98, rel=0.01)


def test_copies_of_pinned_memory_that_nothing_hides_are_named():
    copies = {**_ON_GPU, "kinds": "pkk", "durations_ns": [1_000_000, 6_000_000, 5_000_000]}
    blocks = (_block("own", 10.0), _block("replay", 10.0))
    (cause,) = ranked_causes(_found(*blocks, facts={"pinned": True}, gpu_steps=[copies]))
    assert (cause.kind, 1e3 * cause.step_s.mid) == ("copies", pytest.approx(9.0, rel=0.01))


@pytest.mark.usefixtures("warm_scripts")
@pytest.mark.parametrize("how", ["fed", "unfed"])
def test_three_steps_of_an_imitated_gpu_are_recorded_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
):
    pytest.importorskip("torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run = new_run(script("imitated_gpu.py", how, "0.03"), folder=tmp_path)
    found, failed = try_in_script(run, limit_s=5.0)
    (rank,) = read_run(run.folder).training
    said = diagnosis_of(run, found, failed)
    assert (failed, said.is_whole) == ((), True)
    assert found.facts["step_s"] >= 0.03  # Not what the host takes to ask for it.
    assert rank.last("trial")["name"] == "profile"
    assert len(rank.last("gpu_steps")["bounds_ns"]) == 4
    assert said.gpu is not None
    assert 0.0 < said.gpu.compute_s < said.gpu.step_s
