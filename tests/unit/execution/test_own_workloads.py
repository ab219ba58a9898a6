"""Workloads of a user's own are measured as they are traced: their batch, loss, step and phases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paceline.execution.worker import WORKERS

MODULE = """
import torch
from torch import nn

class Base:
    def __init__(self):
        self.model, self.calls = nn.Linear(4, 2), []

    def inputs(self, batch):
        return torch.ones(batch, 4), torch.zeros(batch, 2)

class WithLoss(Base):
    def loss(self, output, inputs):
        self.calls.append((output.shape, len(inputs)))
        return (output - inputs[1]).square().mean()

class Scores(nn.Linear):
    def forward(self, x):
        return super().forward(x).square().mean()

class LossInside(Base):
    def __init__(self):
        self.model = Scores(4, 2)

    def inputs(self, batch):
        return torch.ones(batch, 4)

class Returns(Base):
    def step(self, model, inputs):
        self.calls.append("step")
        return (model(inputs[0]) - inputs[1]).square().mean()

class Backward(Returns):
    def step(self, model, inputs):
        super().step(model, inputs).backward()

class Own(Returns):
    def __init__(self):
        super().__init__()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)

    def step(self, model, inputs):
        loss = super().step(model, inputs)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

class Named(WithLoss):
    optimizer = "adamw"

class Unknown(WithLoss):
    optimizer = "lion"

class Plain(WithLoss):
    optimizer = "sgd"

class Given(WithLoss):
    def __init__(self):
        super().__init__()
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=0.5)

class Phased(Base):
    def __init__(self):
        super().__init__()
        self.phases = [("twice", 2, self.once), ("roll-out", 1, self.quiet, "host")]

    def once(self, model, inputs):
        self.calls.append("once")
        model(inputs[0]).sum().backward()

    def quiet(self, model, inputs):
        self.calls.append("quiet")

def example():
    return Base().model, (torch.ones(1, 4),)
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The engine as its own process would see it, and a module of the user's own."""
    (tmp_path / "ownworkloads.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(WORKERS.parents[1] / "frontends" / "torch"))
    monkeypatch.syspath_prepend(str(WORKERS))
    before = set(sys.modules)
    yield import_module("torch_engine")
    for name in set(sys.modules) - before:
        if name in ("torch_engine", "engine", "torch_tracing.structures", "ownworkloads"):
            del sys.modules[name]


def subject(engine: ModuleType, name: str, mode: str = "step") -> Any:
    import torch

    request = {
        "entry": f"ownworkloads:{name}", "batch": 3, "seq": 16, "mode": mode, "precision": "fp32",
        "compiler": "eager", "optimizer": "sgd", "device": "cpu",
    }  # fmt: skip
    return engine.build(torch, request, engine.Ranks(torch, request))


def gradients(made: Any) -> list[bool]:
    return [parameter.grad is not None for parameter in made.model.parameters()]


def test_a_loss_of_ones_own_is_taken_of_ones_own_batch(engine: ModuleType) -> None:
    made = subject(engine, "WithLoss")
    made.step_function("step")()
    assert made.workload.calls == [((3, 2), 2)]
    assert all(gradients(made))


def test_a_model_that_returns_its_loss_is_measured_on_it(engine: ModuleType) -> None:
    made = subject(engine, "LossInside")
    made.step_function("forward-backward")()
    weight = made.model.weight
    assert weight.grad.allclose((weight.sum(1) + made.model.bias)[:, None].expand(2, 4))


@pytest.mark.parametrize("name", ["Returns", "Backward"])
def test_a_step_has_one_backward_pass_whoever_runs_it(engine: ModuleType, name: str) -> None:
    made = subject(engine, name)
    made.step_function("forward-backward")()
    assert made.workload.calls == ["step"]
    assert all(gradients(made))


def test_a_step_with_its_own_optimizer_is_left_to_itself(engine: ModuleType) -> None:
    made = subject(engine, "Own")
    before = made.model.weight.detach().clone()
    made.step_function("step")()
    assert not made.model.weight.equal(before)
    with pytest.raises(engine.RequestError, match="its own optimizer"):
        made.step_function("forward-backward")()


@pytest.mark.parametrize(
    ("name", "ran"),
    [
        ("WithLoss", "sgd"), ("Named", "adamw"), ("Plain", "sgd-plain"), ("Given", "rmsprop"),
        ("Own", "sgd-plain"),
    ],
)  # fmt: skip
def test_the_optimizer_that_a_workload_states_is_the_one_that_steps(
    engine: ModuleType, name: str, ran: str
) -> None:
    made = subject(engine, name)
    assert engine.optimizer_name(made.optimizer) == ran
    made.step_function("step")()
    assert (len(made.optimizer.state) > 0) == (ran != "sgd-plain"), "its state is there or is none"


def test_an_optimizer_that_no_step_calls_changes_nothing(engine: ModuleType) -> None:
    made = subject(engine, "Given")
    before = made.model.weight.detach().clone()
    made.step_function("step")()
    assert made.model.weight.equal(before)


def test_an_optimizer_that_pytorch_has_not_is_refused(engine: ModuleType) -> None:
    with pytest.raises(engine.RequestError, match="`lion`"):
        subject(engine, "Unknown")


def test_phases_run_as_often_as_they_say(engine: ModuleType) -> None:
    made = subject(engine, "Phased")
    made.step_function("step")()
    assert made.workload.calls == ["once", "once", "quiet"]


def test_a_forward_pass_takes_of_the_batch_what_the_model_wants(engine: ModuleType) -> None:
    made = subject(engine, "Returns", mode="forward")
    assert made.step_function("forward")().shape == (3, 2)


def test_a_model_with_an_example_batch_is_measured_on_as_many_as_are_asked_for(
    engine: ModuleType,
) -> None:
    made = subject(engine, "example", mode="forward")
    assert made.inputs[0].shape == (3, 4)
    assert made.model.training
