"""What makes the host wait for the device is an op of the graph."""

import numpy as np
import pytest
import torch
from torch import nn

from paceline.errors import WorkerError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload


class Job:
    """A step with something between its forward and its backward pass."""

    def __init__(self, between):
        self.model = nn.Linear(8, 8)
        self._between = between

    def inputs(self, batch):
        return torch.zeros(batch, 8)

    def step(self, model, x):
        y = model(x)
        self._between(y)
        y.square().mean().backward()


def host_waits(between):
    """(graph, rows of waits in execution order)."""
    graph = load_workload(Job(between)).passes[0].graph
    return graph, np.flatnonzero(graph.ops.kind == OpKind.HOST_WAIT)


@pytest.mark.parametrize(
    "between",
    [
        lambda y: y.mean().item(),
        lambda y: f"loss {float(y.detach().mean()):.3f}",
        lambda y: y.detach().cpu().numpy(),
        lambda y: y.tolist(),
        lambda y: torch.tensor([1.0] * 8, device=y.device),
        lambda y: y.new_tensor([1.0] * 8),
        lambda y: torch.ones(8, device="cpu").to(y.device),
        lambda y: y.detach().index_put_((y > 0,), y.detach()[0]),
    ],
    ids=["item", "float", "numpy", "tolist", "tensor", "new tensor", "to device", "mask"],
)
def test_what_makes_the_host_wait_is_an_op(between):
    plain, none = host_waits(lambda _: None)
    graph, waits = host_waits(between)
    assert (len(none), len(waits)) == (0, 1)
    assert len(graph.ops.kind) > len(plain.ops.kind)
    costs = lower(graph, Configuration()).costs
    assert (costs.kind[costs.order] == OpKind.HOST_WAIT).sum() == 1


@pytest.mark.parametrize(
    "between",
    [
        lambda y: torch.ones(8, device="cpu").to(y.device, non_blocking=True),
        lambda y: y.masked_fill(y > 0, 0.0),
        lambda y: y.detach().clone().__setitem__(y > 0, 0.0),
        lambda y: torch.tensor(y.detach()[0]),
        lambda _: torch.tensor([1.0, 2.0]),
        lambda y: torch.tensor([], device=y.device),
    ],
    ids=["not blocking", "fill", "assigned", "of a tensor", "nowhere said", "nothing"],
)
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor")
def test_what_does_not_wait_is_none(between):
    assert not host_waits(between)[1].size


def test_a_list_is_counted_by_its_numbers_and_a_copy_is_not():
    listed, (row,) = host_waits(lambda y: torch.tensor([[1] * 24] * 2, device=y.device))
    copied, (other,) = host_waits(lambda y: torch.ones(2, 24, device="cpu").to(y.device))
    assert listed.ops.dims[row, :2, 0].prod() == copied.ops.dims[other, :2, 0].prod() == 48
    assert (listed.ops.variant[row], copied.ops.variant[other]) == (1, 0)


@pytest.mark.parametrize(
    "between", [lambda y: (y > 0).nonzero(), lambda y: y.detach()[y.detach() > 0]]
)
def test_a_mask_is_taken_to_hit_everywhere_and_that_is_said(between):
    _, waits = host_waits(between)
    assert len(waits) == 1
    title = load_workload(Job(between)).title
    assert "(assumed: every element of a mask is a hit)" in title
    assert "assumed" not in load_workload(Job(lambda _: None)).title


def test_a_number_that_decides_something_is_not_made_up():
    with pytest.raises(WorkerError, match="int") as caught:
        load_workload(Job(lambda y: int(y.argmax())))
    assert "values that a trace has not" in caught.value.hint
