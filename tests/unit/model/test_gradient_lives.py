"""How long gradients live, and the buffers that they pass through: by hand and against PyTorch."""

from __future__ import annotations

import warnings

import pytest
import torch
from gpu.workers.memory_models import Job, cross_entropy, gpt2, tokens
from gpu.workers.profiled_memory import peak_bytes

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Owner, Phase, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload

BATCH = 4


class UpdatedInBackward:
    """An update of each parameter in a hook, as torchtune's ``optimizer_in_bwd`` has it."""

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self.update)

    def update(self, parameter: torch.nn.Parameter) -> None:
        with torch.no_grad():
            parameter.add_(parameter.grad, alpha=-1e-3)
        parameter.grad = None

    def step(self) -> None:
        """Backward has updated already."""

    def zero_grad(self) -> None:
        """Backward has let gradients go already."""


def graph_of(build):
    job = Job(build(), tokens)
    job.optimizer = "sgd"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_workload(job).passes[0].graph


def moments_of(graph, batch, **settings):
    """Live bytes by owner of each moment that can be the peak, and the phase of its op."""
    lowered = lower(graph, Configuration(optimizer_kernel="plain", **settings))
    phase = lowered.costs.phase[lowered.costs.order[lowered.memory.op]]
    return lowered.memory.by_owner @ monomials(batch, 1)[0], phase


def test_gradients_that_are_used_in_backward_are_never_all_there() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real = peak_bytes(gpt2, lambda: tokens(BATCH), cross_entropy, UpdatedInBackward)
    graph, plain = graph_of(gpt2), {"precision": "fp32", "platform": "cpu"}
    by_owner, _ = moments_of(graph, BATCH, update="in-backward", **plain)
    assert by_owner.sum(axis=1).max() == pytest.approx(real, rel=0.02)
    after, _ = moments_of(graph, BATCH, **plain)
    assert by_owner[:, Owner.GRADIENT].max() < 0.5 * after[:, Owner.GRADIENT].max()


def test_an_update_moves_the_same_bytes_wherever_it_runs() -> None:
    graph = graph_of(gpt2)
    after, within = (
        lower(graph, Configuration(optimizer_kernel="plain", update=update)).costs
        for update in ("after", "in-backward")
    )
    for costs in (after, within):
        assert (costs.phase == Phase.OPTIMIZER).any()
    moved, expected = (
        (costs.count * costs.read_bytes[:, 0])[costs.phase == Phase.OPTIMIZER].sum()
        for costs in (within, after)
    )
    assert moved == pytest.approx(expected, rel=1e-12)


def test_microbatches_do_not_keep_what_each_of_them_uses() -> None:
    graph = graph_of(gpt2)
    once, again = (
        moments_of(graph, BATCH, update="in-backward", accumulates=accumulates)[0]
        for accumulates in (False, True)
    )
    assert (once == again).all()


@pytest.mark.parametrize(("precision", "element_bytes"), [("bf16", 2), ("fp32", 4)])
def test_a_buffer_is_there_while_backward_runs(precision: str, element_bytes: int) -> None:
    """DeepSpeed 0.15.4, stage_1_and_2.py, ``backward``: one empty tensor of the bucket's size."""
    graph, size = graph_of(gpt2), 10**6
    plain, buffered = (
        moments_of(graph, BATCH, precision=precision, gradient_buffers=buffers)
        for buffers in (0, size)
    )
    during, before = (
        max(by_owner.sum(axis=1)[phase == Phase.BACKWARD]) for by_owner, phase in (buffered, plain)
    )
    assert during - before == pytest.approx(size * element_bytes)


def test_an_update_has_no_buffer() -> None:
    lowered = lower(graph_of(gpt2), Configuration(gradient_buffers=10**12))
    phase = lowered.costs.phase[lowered.costs.order[lowered.memory.op]]
    at_update = lowered.memory.by_owner[phase == Phase.OPTIMIZER] @ monomials(1, 1)[0]
    assert at_update.sum(axis=1).max(initial=0.0) < 10**12
