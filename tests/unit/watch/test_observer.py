"""Unmodified scripts with and without the observer: same bytes, same status, steps exact."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.watch.watched import observed, plain, script

from paceline.model.graph.graph import Owner, Phase
from paceline.watch.captured import read_capture, workload_of
from paceline.watch.where import line_of_exit

pytest.importorskip("torch")

_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
#: Script, packages it needs, steps of each rank, and what is read out of it.
_CASES: dict[str, tuple[tuple[str, ...], int, dict[str, Any]]] = {
    "plain.py": ((), 50, {"batch": 16, "microbatches": 1, "optimizer": "AdamW"}),
    "accumulating.py": (
        (), 10, {"batch": 10, "microbatches": 4, "optimizer": "SGD", "autocast": "bfloat16"},
    ),
    "two_optimizers.py": ((), 40, {"batch": 12, "optimizer": "Adam", "num_models": 2}),
    "compiled.py": ((), 20, {"batch": 16, "optimizer": "AdamW", "compiler": "compiled"}),
    "failing.py": ((), 5, {"model": "Linear", "batch": 2, "optimizer": "SGD"}),
    "lightning_trainer.py": (("lightning",), 40, {"batch": 16, "optimizer": "AdamW"}),
    "lightning_fabric.py": (
        ("lightning",), 20, {"batch": 16, "optimizer": "AdamW", "autocast": "bfloat16"},
    ),
    "accelerated.py": (
        ("accelerate",), 10, {"batch": 16, "microbatches": 2, "autocast": "bfloat16"},
    ),
    "transformers_trainer.py": (
        ("accelerate", "transformers"), 6,
        {"model": "GPT2LMHeadModel", "batch": 4, "seq": 24, "microbatches": 2},
    ),
    "stateful_loader.py": (("torchdata",), 10, {"batch": 16, "optimizer": "RMSprop"}),
}  # fmt: skip
_QUICK = ("plain.py", "accumulating.py", "failing.py")
_NUMBER = re.compile(rb"'train_[a-z_]+': '[^']*'")


def _cases():
    for name, (packages, num_steps, facts) in _CASES.items():
        missing = [one for one in packages if importlib.util.find_spec(one) is None]
        marks = [] if name in _QUICK else [pytest.mark.slow]
        marks += [pytest.mark.skip(reason=f"needs {missing[0]}")] if missing else []
        yield pytest.param(name, num_steps, facts, id=name, marks=marks)


@pytest.mark.parametrize(("name", "num_steps", "facts"), list(_cases()))
def test_a_script_is_watched_unchanged(
    tmp_path: Path, name: str, num_steps: int, facts: dict[str, Any]
):
    alone = plain(*script(name))
    seen, events = observed(tmp_path, *script(name))
    assert seen.status == alone.status
    assert _NUMBER.sub(b"", seen.out) == _NUMBER.sub(b"", alone.out)
    assert seen.err == alone.err
    assert not events.failures()
    (rank,) = events.training
    assert len(rank.steps) == num_steps
    assert rank.has_ended
    _check_losses(name, alone.out, rank.steps)
    _check_capture(tmp_path, facts)


def _check_losses(name: str, out: bytes, rows: list[Any]):
    """Where a script prints every loss, those are what was written."""
    if name in ("failing.py", "two_optimizers.py", "transformers_trainer.py", "accelerated.py"):
        return
    printed = [float(line) for line in out.split() if re.fullmatch(rb"[0-9.e-]+", line)]
    written = [loss for row in rows for loss in row.losses]
    assert len(printed) >= len(written) > 0
    assert all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(printed, written, strict=False))


def _check_capture(folder: Path, wanted: dict[str, Any]):
    found = json.loads((folder / "capture.json").read_text())
    assert found["error"] is None
    _check_update(folder, found["report"])
    facts = found["facts"]
    seen = {
        **facts,
        "optimizer": facts["optimizer"][0]["name"],
        "autocast": facts["precision"]["autocast"],
    }
    assert {key: seen[key] for key in wanted} == wanted


def _check_update(folder: Path, report: dict[str, Any]):
    """What was traced ends with an update of every parameter, and the model's ops are its own."""
    job, _ = read_capture(folder)
    assert job is not None
    graph = workload_of(job, report, name=job.model).passes[0].graph
    storages = graph.storages
    gradients = storages.elements[storages.owner == Owner.GRADIENT, 0]
    assert gradients.sum() == job.num_parameters
    assert {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER} <= set(graph.ops.phase.tolist())


@pytest.mark.slow
def test_each_of_two_ranks_writes_its_own_file(tmp_path: Path):
    command = (*_TORCHRUN, *script("two_ranks.py")[1:])
    alone = plain(*command)
    seen, events = observed(tmp_path, *command)
    assert seen.status == alone.status == 0
    assert sorted(seen.out.splitlines()) == sorted(alone.out.splitlines())
    assert [(one.rank, one.world_size, len(one.steps)) for one in events.training] == [
        (0, 2, 20),
        (1, 2, 20),
    ]
    facts = json.loads((tmp_path / "capture.json").read_text())["facts"]
    assert facts["wrappers"] == ["DistributedDataParallel"]


def test_a_process_that_ends_at_once_was_there(tmp_path: Path):
    _, events = observed(tmp_path, *script("gone_at_once.py"))
    assert [(one.rank, one.begin["world_size"]) for one in events.ranks] == [(0, 1)]


@pytest.mark.parametrize("call", ["os._exit", "sys.exit"])
def test_the_line_that_ends_a_process_is_written_down(tmp_path: Path, call: str):
    path = tmp_path / "leaves.py"
    path.write_text(_LEAVING.replace("CALL", call))
    seen, events = observed(tmp_path, sys.executable, str(path))
    assert (seen.status, seen.out, seen.err) == (3, b"a line\n", b"")
    (rank,) = events.training
    assert len(rank.steps) == 2
    assert line_of_exit(rank) == f"leaves.py:11, main, {call}"


_LEAVING = """import os, sys, torch
def main():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(9):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        if step == 1:
            print("a line")
            sys.stdout.flush()
            CALL(3)
main()
"""


def test_a_shell_script_is_watched_through(tmp_path: Path):
    """In processes of their own, one with and one without a loop."""
    words, short = (" ".join(script(name, "4")) for name in ("plain.py", "gone_at_once.py"))
    alone = plain(*script("plain.py", "4"))
    seen, events = observed(tmp_path, "sh", "-c", f"echo begin; {words}; {short}; exit 7")
    assert (seen.status, seen.out, seen.err) == (7, b"begin\n" + alone.out, b"")
    assert sorted(len(one.steps) for one in events.ranks) == [0, 4]


def test_another_sitecustomize_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text("print('the other')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from paceline.watch.command import observed_environment
    from paceline.watch.folder import Run

    run = Run(id="x", folder=tmp_path, command=(), started_at="")
    import os
    import subprocess

    base = {**os.environ, "PYTHONPATH": str(tmp_path / "other")}
    code = "import sys; print([p for p in sys.path if 'observer' in p], 'torch' in sys.modules)"
    seen = subprocess.run(
        [sys.executable, "-c", code], env=observed_environment(run, base), capture_output=True,
        check=True,
    )  # fmt: skip
    assert seen.stdout.split(b"\n")[:2] == [b"the other", b"[] False"]
