"""Losses of a GPU: read when they are computed, never while a graph is captured, twice a second."""

from __future__ import annotations

import importlib.util
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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
    log = SimpleNamespace(marks=deque(), is_started=True)
    made, done = steps.rows.Rows(), []
    torch = SimpleNamespace(cuda=cuda, Tensor=_Loss, compiler=SimpleNamespace())
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
