"""Workers in a process of their own: users' models, and everything that can go wrong there."""

import sys
import textwrap

import pytest
import torch
from tests.sampled import zoo_names
from torch import nn

from paceline.errors import InvalidInputError, UnknownNameError, WorkerError
from paceline.model.reading.load import load_workload
from paceline.model.reading.worker import find_python, run_worker

MODULE = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 10)
        self.rates = torch.linspace(0, 0.1, 4).tolist()

    def forward(self, x):
        return self.head(self.conv(x).mean((2, 3)))

class TwoInputs(Net):
    def forward(self, x, y):
        return super().forward(x)

def build():
    print("talking on standard output is allowed")
    return Net()

def raises():
    raise ValueError("my own mistake")

def number():
    return 3

def two_inputs():
    return TwoInputs()

def dies():
    os._exit(7)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "usermodule.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_function_of_the_users_own_that_reads_small_tensors_back(folder):
    workload = load_workload("usermodule:build")
    assert workload.num_parameters == 3 * 8 * 9 + 8 + 8 * 10 + 10
    assert [p.name for p in workload.passes] == ["step"]


def test_an_error_of_the_users_own_is_shown_with_its_python(folder):
    with pytest.raises(WorkerError, match="my own mistake") as caught:
        load_workload("usermodule:raises")
    assert sys.executable in str(caught.value)
    assert "in raises" in caught.value.details


def test_a_worker_that_dies_is_reported(folder):
    with pytest.raises(WorkerError, match="status 7"):
        load_workload("usermodule:dies")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("usermodule:number", "gives int, not a model"),
        ("usermodule:absent", "has no function `absent`"),
        ("nosuchmodule:build", "no module named `nosuchmodule`"),
    ],
)
def test_what_the_user_can_fix_is_said(folder, entry, message):
    with pytest.raises(InvalidInputError, match=message):
        load_workload(entry)


def test_a_forward_that_wants_other_inputs_shows_its_own_complaint(folder):
    with pytest.raises(WorkerError, match="missing 1 required positional argument"):
        load_workload("usermodule:two_inputs")


@pytest.mark.parametrize("talk", ["garbage", '{"event": "done"}', "[1, 2]", ""])
def test_a_python_that_speaks_garbage_is_reported(tmp_path, talk):
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\nread request\necho '{talk}'\n")
    fake.chmod(0o755)
    with pytest.raises(WorkerError, match=r"without a result|no readable result"):
        run_worker({"entry": "resnet50", "task": "train"}, python=str(fake))


def test_a_python_that_is_not_there_is_named():
    with pytest.raises(InvalidInputError, match="/nowhere/python"):
        find_python("/nowhere/python")


def test_unknown_names_have_neighbours():
    with pytest.raises(UnknownNameError) as caught:
        load_workload("resnet51")
    assert "resnet50" in caught.value.hint


@pytest.mark.parametrize("settings", [{"seq": 0}, {"image_size": -1}])
def test_sizes_must_be_above_zero(settings):
    with pytest.raises(InvalidInputError, match="not above zero"):
        load_workload("resnet50", **settings)


def test_an_optimizer_must_be_known():
    with pytest.raises(UnknownNameError, match="adamm"):
        load_workload("torchvision:resnet18", optimizer="adamm")


def test_a_model_object_is_traced_and_left_alone():
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    before = [p.clone() for p in model.parameters()]
    workload = load_workload(model)
    assert workload.num_parameters == sum(p.numel() for p in before)
    pairs = zip(model.parameters(), before, strict=True)
    assert all(p.device.type == "cpu" and torch.equal(p, b) for p, b in pairs)


def test_tied_weights_are_counted_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(100, 16), nn.Linear(16, 100, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(self.embedding(tokens))

    assert load_workload(Tied()).num_parameters == 1600


def test_something_that_is_no_model_is_refused():
    with pytest.raises(InvalidInputError, match="`int`"):
        load_workload(3)


def test_the_zoo_names_what_it_ships():
    assert {"resnet50", "gpt2", "llama-3-70b"} <= set(zoo_names())
