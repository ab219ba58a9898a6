"""Losses of a GPU: read when they are computed, never while a graph is captured, twice a second."""

from __future__ import annotations

import importlib.util
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.watch.watched import observed

import paceline

pytest.importorskip("torch")
_OBSERVER = Path(paceline.__file__).parent / "watch" / "observer"


def _module(name: str) -> Any:
    full = "_paceline_" + name
    spec = importlib.util.spec_from_file_location(full, _OBSERVER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[full] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


class _Loss:
    is_cpu, is_cuda, device = False, True, "cuda:0"

    def __init__(self, value: float) -> None:
        self.value = value

    def numel(self) -> int:
        return 1

    def detach(self) -> _Loss:
        return self

    def item(self) -> float:
        return self.value


class _Event:
    is_done = False

    def record(self, _stream: object) -> None:
        pass

    def query(self) -> bool:
        return _Event.is_done


class _Stream:
    def __init__(self, _device: object) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def marks():
    _module("observer")
    steps = _module("torch_steps")
    cuda = SimpleNamespace(
        capturing=False, Event=_Event, Stream=_Stream, stream=lambda one: one,
        current_stream=lambda _device: None,
    )  # fmt: skip
    cuda.is_current_stream_capturing = lambda: cuda.capturing
    log = SimpleNamespace(marks=deque(), is_started=True, is_closing=False)
    made, done = steps.rows.Rows(), []
    torch = SimpleNamespace(
        cuda=cuda, Tensor=_Loss, compiler=SimpleNamespace(), get_num_threads=lambda: 8
    )
    found = steps.Marks(log, torch)
    optimizer = object()
    found.optimizers[id(optimizer)] = 0
    _Event.is_done = False

    def step(value: float) -> list[Any]:
        found.backward_begins([_Loss(value)])
        found.before_update(optimizer, (), {})
        found.after_update(optimizer, (), {})
        made.settle(log.marks, done.append)
        return list(done[-1][8])

    return SimpleNamespace(step=step, cuda=cuda, marks=found)


def test_a_loss_is_read_once_it_is_computed(marks: Any):
    assert marks.step(1.0) == []
    _Event.is_done = True
    assert marks.step(2.0) == [1.0]


def test_losses_are_read_twice_a_second(marks: Any):
    _Event.is_done = True
    assert marks.step(1.0) == [1.0]
    assert marks.step(2.0) == []
    marks.marks.next_loss_ns = 0
    assert marks.step(3.0) == [3.0]


def test_nothing_is_asked_of_a_gpu_while_a_graph_is_captured(marks: Any):
    _Event.is_done = True
    marks.cuda.capturing = True
    assert marks.step(1.0) == []
    assert marks.marks.pending is None
    marks.cuda.capturing = False
    assert marks.step(2.0) == [2.0]
    marks.marks.next_loss_ns, _Event.is_done = 0, False
    marks.step(3.0)
    marks.cuda.capturing, _Event.is_done = True, True
    assert marks.step(4.0) == []
    marks.cuda.capturing = False
    assert marks.step(5.0) == [3.0]


def test_a_gpu_tells_its_name_and_how_its_peak_grows(marks: Any):
    held = [10_000_000_000, 12_000_000_000]
    marks.cuda.get_device_properties = lambda _device: SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", total_memory=85_029_158_912
    )
    marks.cuda.max_memory_allocated = lambda _device: held[0]
    marks.cuda.max_memory_reserved = lambda _device: held[1]
    marks.marks.device = SimpleNamespace(type="cuda")
    facts = marks.marks._device_facts()
    assert facts["name"] == "NVIDIA H100 80GB HBM3"
    assert (facts["kind"], facts["memory_bytes"]) == ("cuda", 85_029_158_912)

    def peaks() -> list[int]:
        marks.marks.num_looks = 0  # It looks at one in four writings.
        return [one["reserved_bytes"] for one in marks.marks.memory() if one["event"] == "memory"]

    assert peaks() == [12_000_000_000]
    held[1] += 1_000_000
    assert peaks() == []
    held[1] = 20_000_000_000
    assert peaks() == [20_000_000_000]


_ON_A_GPU = """
import torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.randn(6400, 64), batch_size=8)
for x in loader:
    loss = model(x.cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.gpu
def test_a_loop_on_a_gpu_is_watched(tmp_path: Path):
    if not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("no GPU")
    ended, events = observed(tmp_path, sys.executable, "-c", _ON_A_GPU)
    (rank,) = events.training
    assert ended.status == 0
    assert len(rank.steps) == 800
    assert rank.last("device")["kind"] == "cuda"
    assert rank.last("device")["memory_bytes"] > 0
    assert rank.last("memory")["reserved_bytes"] > 0
    assert any(row.losses for row in rank.steps)
