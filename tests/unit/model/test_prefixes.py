"""Prefixes that a network makes: what is trained, and what is kept of everything else."""

from __future__ import annotations

import pytest

from paceline.errors import PacelineError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Owner, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload


def lowered(model: str, tokens: int = 16):
    how = Configuration(lora_rank=tokens, lora_kind="prefix", optimizer_kernel="fused")
    return lower(load_workload(model).passes[0].graph, how)


@pytest.mark.parametrize(("tokens", "trained"), [(16, 14_777_088), (32, 14_789_376)])
def test_a_projected_prefix_has_the_parameters_of_peft(tokens: int, trained: int) -> None:
    """PEFT 0.21.2 prints these of GPT-2 (``PrefixTuningConfig`` with ``prefix_projection``)."""
    assert lowered("gpt2", tokens).num_trainable_parameters == trained


def test_keys_and_values_that_queries_share_are_made_once() -> None:
    """Llama 3.2 1B: 16 layers of 8 heads of 64, twice; a width of 2,048."""
    keys = 16 * 2 * 8 * 64
    assert lowered("llama-3.2-1b").num_trainable_parameters == 16 * 2048 + 2049 * (2048 + keys)


def test_gradients_and_states_are_of_the_prefix_alone() -> None:
    """With FP32 masters, as beside any adapters."""
    told, trained = lowered("gpt2"), 14_777_088
    assert told.gradient_bytes == 4 * trained
    assert told.optimizer_state_bytes == 12 * trained


def test_layers_are_passed_backward_whose_weights_are_frozen() -> None:
    """Each layer is given keys, so that its backward pass runs to the first one."""
    graph = load_workload("gpt2").passes[0].graph
    whole, kept = lower(graph, Configuration(training_format="half-weights")), lowered("gpt2")
    activations = [
        float((one.memory.by_owner[:, Owner.ACTIVATION] @ monomials(1, 512)[0]).max())
        for one in (whole, kept)
    ]
    assert 0.5 * activations[0] < activations[1] < activations[0]


def test_a_model_without_attention_takes_no_prefix() -> None:
    with pytest.raises(PacelineError, match="attention"):
        lowered("resnet50")
