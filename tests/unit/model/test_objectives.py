"""Frozen references, scorers and critics beside what is trained: counts, and real steps."""

import warnings

import numpy as np
import pytest
import torch
from gpu.workers.memory_models import Job, cross_entropy, mlp, models, tokens
from gpu.workers.profiled_memory import peak_bytes
from torch import nn

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Owner, Phase, monomials
from paceline.model.lowering import lifetimes, lower
from paceline.model.objectives import models_beside
from paceline.model.reading.load import load_workload

BATCH = 32


def rows(batch):
    return torch.zeros(batch, 256)


def gpt2():
    """Two layers whose vocabulary is many times their width, as those of language models are."""
    return models().transformer(
        layers=2, hidden=128, heads=4, vocab=4000, positions=128, dropout=0.1, tied=1
    )


@pytest.fixture(scope="module")
def graph():
    return load_workload("gpt2").passes[0].graph


def traced(build, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_workload(Job(build(), inputs)).passes[0].graph


def plain(**settings):
    return Configuration(precision="fp32", platform="cpu", optimizer_kernel="plain", **settings)


def peak(graph, configuration, batch=BATCH):
    table = lower(graph, configuration).memory.by_owner.sum(axis=1)
    return float((table @ monomials(batch, 1)[0]).max())


def flop(graph, configuration, *phases):
    costs = lower(graph, configuration).costs
    chosen = np.isin(costs.phase, phases)
    each = costs.flop @ monomials(1, 128)[0] * costs.count
    return float(each[chosen].sum())


def owned(graph, configuration, owner):
    lived = lifetimes(graph, configuration)
    return float(lived.bytes_at(1, 128)[lived.owner == owner].sum())


@pytest.mark.parametrize("objective", ["dpo", "kto", "grpo", "ppo"])
@pytest.mark.parametrize("checkpointing", ["none", "block"])
def test_each_pass_of_a_frozen_model_costs_a_forward_pass(graph, objective, checkpointing):
    """Critics cost all that the model does."""
    how = {"checkpointing": checkpointing}
    forward = flop(graph, Configuration(**how), Phase.FORWARD, Phase.LOSS)
    alone, beside = (flop(graph, Configuration(**how, objective=one), *Phase)
                     for one in ("next-token", objective))  # fmt: skip
    runs = models_beside(objective)
    expected = (1 + runs.critics) * alone + runs.forward_passes * forward
    assert beside == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("objective", "models"), [("dpo", 2), ("kto", 2), ("grpo", 2), ("ppo", 4)])
def test_every_model_has_weights_and_trained_ones_alone_have_states(graph, objective, models):
    for owner in (Owner.PARAMETER, Owner.GRADIENT, Owner.OPTIMIZER_STATE, Owner.MASTER_WEIGHT):
        how = Configuration(training_format="half-weights")
        alone = owned(graph, how, owner)
        beside = owned(
            graph, Configuration(training_format="half-weights", objective=objective), owner
        )
        trained = 1 + models_beside(objective).critics
        assert beside == (models if owner == Owner.PARAMETER else trained) * alone


def test_the_base_of_adapters_is_its_own_reference(graph):
    """It reads without its adapters, which takes the operations of the model without any."""
    whole, adapted = Configuration(), Configuration(lora_rank=8)
    beside = Configuration(lora_rank=8, objective="dpo")
    assert owned(graph, beside, Owner.PARAMETER) == owned(graph, adapted, Owner.PARAMETER)
    added = flop(graph, beside, Phase.FORWARD) - flop(graph, adapted, Phase.FORWARD)
    assert added == pytest.approx(flop(graph, whole, Phase.FORWARD), rel=1e-9)


@pytest.mark.parametrize("inputs", ["shared", "cast", "dropped"])
def test_a_base_runs_as_many_kernels_as_without_adapters(graph, inputs):
    def kernels(**settings):
        costs = lower(graph, Configuration(training_format="pure", **settings)).costs
        return float((costs.count * costs.num_kernels)[costs.phase == Phase.FORWARD].sum())

    how = {"lora_rank": 8, "adapter_inputs": inputs}
    added = kernels(**how, objective="dpo") - kernels(**how)
    assert added == kernels()


def test_a_reference_keeps_nothing_for_backward(graph):
    """At the start of backward its weights alone are there more than without it."""

    def alive(**settings):
        how = Configuration(precision="fp32", **settings)
        lived, lowered = lifetimes(graph, how), lower(graph, how)
        order = lowered.costs.phase[lowered.costs.order]
        start = int(np.argmax(order == Phase.BACKWARD))
        there = (lived.birth <= start) & (lived.death >= start)
        return float(lived.bytes_at(4, 128)[there].sum())

    more = alive(objective="dpo") - alive()
    assert more == pytest.approx(
        owned(graph, Configuration(precision="fp32"), Owner.PARAMETER), rel=1e-6
    )


class WithReference:
    """A model that is trained beside frozen ones, which read the batch once it has."""

    def __init__(self, build, count=1):
        self._build, self._count = build, count

    def __call__(self):
        self.beside = [self._build().requires_grad_(False) for _ in range(self._count)]
        return self._build()

    def loss(self, output, given):
        loss = cross_entropy(output, given)
        with torch.no_grad():
            said = sum(cross_entropy(one(given), given) for one in self.beside)
        return loss - said


@pytest.mark.parametrize(("build", "inputs"), [(gpt2, tokens), (mlp, rows)])
def test_a_real_step_beside_a_reference(build, inputs):
    pair = WithReference(build)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real = peak_bytes(pair, lambda: inputs(BATCH), pair.loss, torch.optim.AdamW)
        del pair.beside
    predicted = peak(traced(build, inputs), plain(objective="dpo"))
    assert predicted == pytest.approx(real, rel=0.02)


class ModelAndCritic(nn.Module):
    """Two models that are trained at once; the critic's loss comes after the model's."""

    def __init__(self, build):
        super().__init__()
        self.model, self.critic = build(), build()

    def forward(self, x):
        return self.model(x), self.critic(x)


def test_a_real_step_of_four_models():
    """Model and critic are trained; reference and reward model read."""
    beside = WithReference(gpt2, 2)

    def build():
        beside()
        return ModelAndCritic(gpt2)

    def loss(output, given):
        return cross_entropy(output[1], given) + beside.loss(output[0], given)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real = peak_bytes(build, lambda: tokens(BATCH), loss, torch.optim.AdamW)
        del beside.beside
    predicted = peak(traced(gpt2, tokens), plain(objective="ppo"))
    assert predicted == pytest.approx(real, rel=0.02)


def test_inference_has_no_models_beside(graph):
    served = load_workload("gpt2", task="infer").passes[0].graph
    alone, beside = (lower(served, Configuration(objective=one)) for one in ("next-token", "dpo"))
    assert np.array_equal(alone.costs.count, beside.costs.count)
