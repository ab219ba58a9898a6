"""A workload of the user's own that is written wrongly: what is said, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from paceline.errors import InvalidInputError, UnknownNameError, WorkerError
from paceline.model.graph.graph import Phase
from paceline.model.names.front_ends import FRONT_ENDS
from paceline.model.reading.load import load_workload
from paceline.model.reading.worker import reported_error


class _Job:
    def __init__(self) -> None:
        self.model = nn.Linear(8, 2)

    def inputs(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.rand(batch, 8), torch.rand(batch, 2)


class _Unpacked(_Job):
    def step(self, model: nn.Module, features: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return (model(features) - wanted).square().mean()


class _Broken(_Job):
    def step(self, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        raise TypeError("a mistake inside")


class _Returns(_Job):
    def step(self, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        loss: torch.Tensor = (model(inputs[0]) - inputs[1]).square().mean()
        return loss


class _Backward(_Returns):
    def step(self, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        loss = super().step(model, inputs)
        loss.backward()
        return loss


class _Silent(_Job):
    def step(self, model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        model(inputs[0])


class _Pictures(_Job):
    kind = "images"


class _TwoNumbers(_Job):
    def loss(self, output: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return (output - inputs[1]).square().mean()


def test_a_step_with_other_arguments_is_told_which_it_gets() -> None:
    with pytest.raises(WorkerError, match="missing 1 required") as raised:
        load_workload(_Unpacked())
    assert "`step(model, inputs)`" in raised.value.hint
    assert raised.value.details.count('  File "') == 1


def test_a_mistake_inside_a_step_is_shown_from_the_step_on() -> None:
    with pytest.raises(WorkerError, match="a mistake inside") as raised:
        load_workload(_Broken())
    frames = [line for line in raised.value.details.splitlines() if line.startswith("  File")]
    assert len(frames) == 1
    assert "in step" in frames[0]
    assert "your model's own" in raised.value.hint


def test_a_step_that_returns_its_loss_is_that_step_with_its_backward_pass() -> None:
    returned, ran = (load_workload(job).passes[0].graph for job in (_Returns(), _Backward()))
    assert Phase.BACKWARD in returned.ops.phase
    assert returned.ops.phase.tolist() == ran.ops.phase.tolist()


def test_a_step_without_a_backward_pass_is_no_training_step() -> None:
    with pytest.raises(InvalidInputError, match="no backward pass") as raised:
        load_workload(_Silent())
    assert "return the loss" in raised.value.hint


def test_a_kind_that_is_none_lists_those_that_are() -> None:
    with pytest.raises(UnknownNameError, match="`images`") as raised:
        load_workload(_Pictures())
    assert "did you mean `image`?" in raised.value.hint
    assert "language" in raised.value.hint


def test_inputs_without_a_length_are_not_called_tokens() -> None:
    assert load_workload(_TwoNumbers()).input_description == ""


def test_a_traceback_that_is_none_is_shown_as_it_is(tmp_path: Path) -> None:
    event = {"kind": "raised", "message": "ValueError: x", "details": "no frames here"}
    error = reported_error(event, "job", str(tmp_path))
    assert isinstance(error, WorkerError)
    assert error.details == "no frames here"


def test_what_leads_to_the_users_code_is_left_out_of_its_traceback():
    worker, imports = FRONT_ENDS / "torch" / "torch_worker.py", "/usr/lib/importlib/__init__.py"
    files = (worker, imports, "<frozen importlib._bootstrap>", "/home/me/train.py")
    frames = [f'  File "{file}", line 1, in f\n    call()' for file in files]
    lines = ["Traceback (most recent call last):", *frames, "ValueError: no"]
    event = {"kind": "raised", "message": "ValueError: no", "details": "\n".join(lines)}
    details = reported_error(event, "train:build", "python").details
    assert "train.py" in details
    assert "importlib" not in details
    assert "torch_worker" not in details
