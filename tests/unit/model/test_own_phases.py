"""Workloads of the user's own: several optimizers, phases and repeats, steps, and mistakes."""

import pytest
import torch
from torch import nn

from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.graph.graph import OpKind, Phase
from paceline.model.reading.load import load_workload
from paceline.model.rewrite.optimizer import optimizer_by_variant

BODY, HEAD = 32 * 64 + 64, 64 * 10 + 10


class TwoUpdates:
    """A body and a head, each with an optimizer of its own, and a look without gradients."""

    def __init__(self):
        self.body, self.head = nn.Linear(32, 64), nn.Linear(64, 10)
        self.model = nn.ModuleDict({"body": self.body, "head": self.head})
        self.optimizers = [
            torch.optim.SGD(self.body.parameters(), lr=0.1, momentum=0.9),
            torch.optim.AdamW(self.head.parameters()),
        ]
        self.phases = [("body", 3, self._body), ("head", 1, self._head),
                       ("look", 5, self._look, "host")]  # fmt: skip

    def inputs(self, batch):
        return torch.empty(batch, 32)

    def _loss(self, model, x):
        return model["head"](model["body"](x)).pow(2).mean()

    def _body(self, model, x):
        self._loss(model, x).backward()
        self.optimizers[0].step()

    def _head(self, model, x):
        self._loss(model, x).backward()
        self.optimizers[1].step()

    def _look(self, model, x):
        with torch.no_grad():
            self._loss(model, x)


def updates(graph):
    """(optimizer, parameters) of each update."""
    ops = (graph.ops.kind == OpKind.OPTIMIZER).nonzero()[0]
    return [
        (optimizer_by_variant(int(graph.ops.variant[op])).name, int(graph.ops.dims[op, 0, 0]))
        for op in ops
    ]


def test_each_phase_is_a_pass_with_its_repeats_and_place():
    passes = load_workload(TwoUpdates()).passes
    assert [(one.name, one.repeats, one.runs_on) for one in passes] == [
        ("body", 3, "device"), ("head", 1, "device"), ("look", 5, "host"),
    ]  # fmt: skip


def test_each_update_is_of_its_own_parameters_with_its_own_optimizer():
    body, head, look = (one.graph for one in load_workload(TwoUpdates()).passes)
    assert updates(body) == [("sgd-momentum", BODY)]
    assert updates(head) == [("adamw", HEAD)]
    assert updates(look) == []
    assert not (look.ops.phase == Phase.BACKWARD).any()


class OwnStep:
    """A step written out, on sequences."""

    optimizer = "lion"

    def __init__(self):
        self.model = nn.Linear(8, 8)

    def inputs(self, batch, seq):
        return torch.empty(batch, seq, 8)

    def step(self, model, x):
        model(x).pow(2).mean().backward()


def test_a_step_of_ones_own_is_followed_by_the_optimizer_that_it_names():
    (one,) = load_workload(OwnStep()).passes
    assert one.graph.variables == ("batch", "seq")
    assert updates(one.graph) == [("lion", 8 * 8 + 8)]


@pytest.mark.parametrize("phase", [("x", 1), ("x", "often", print), ("x", 1, 2), "x",
                                   ("x", 1, print, "nowhere")])  # fmt: skip
def test_a_phase_that_is_none_says_how_to_write_one(phase):
    job = TwoUpdates()
    job.phases = [phase]
    with pytest.raises(InvalidInputError, match="is no phase") as caught:
        load_workload(job)
    assert "(name, how often per step" in caught.value.hint


def test_an_optimizer_that_is_not_known_lists_those_that_are():
    job = OwnStep()
    job.optimizer = torch.optim.LBFGS(job.model.parameters())
    job.step = lambda model, x: job.optimizer.step(lambda: model(x).sum().backward())
    with pytest.raises(UnknownNameError, match="lbfgs") as caught:
        load_workload(job)
    assert "adafactor" in caught.value.hint
