"""Weights in 16 bits with FP32 masters: the bytes that papers count, and the rule for who does."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import OpKind, Owner, Phase
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.model.rewrite.master_weights import LARGE_MODEL_PARAMETERS, kept_format
from warm_workers import WORKERS

HALF = Configuration(training_format="half-weights", optimizer_kernel="fused")


def graph_of(name: str):
    return load_workload(name).passes[0].graph


def updated_bytes(lowered: LoweredPass) -> float:
    is_update = lowered.costs.phase == Phase.OPTIMIZER
    moved = (lowered.costs.read_bytes + lowered.costs.write_bytes)[:, 0] * lowered.costs.count
    return float(moved[is_update].sum())


@pytest.mark.parametrize("model", ["gpt2", "resnet50", "llama-3-8b"])
def test_a_parameter_takes_two_and_four_and_four_and_its_states(model: str) -> None:
    """Rajbhandari et al., SC 2020, section 3.1, with FP32 gradients as Megatron-LM has them."""
    wide = lower(graph_of(model), Configuration(training_format="autocast"))
    half = lower(graph_of(model), HALF)
    count = half.num_parameters
    assert half.num_trainable_parameters == wide.num_trainable_parameters
    assert half.parameter_bytes == 2 * count
    assert half.gradient_bytes == wide.gradient_bytes == 4 * count
    assert half.optimizer_state_bytes == wide.optimizer_state_bytes + 4 * count


@pytest.mark.parametrize("model", ["gpt2", "llama-3-8b"])
def test_narrow_gradients_are_widened_all_at_once_by_the_update(model: str) -> None:
    """Two bytes until then and six while it runs (ColossalAI, low_level_optim.py, `step`)."""
    kept = Configuration(training_format="half-gradients", optimizer_kernel="fused")
    narrow, wide = (lower(graph_of(model), how) for how in (kept, HALF))
    count = narrow.num_parameters
    assert narrow.gradient_bytes == 2 * count
    assert narrow.optimizer_state_bytes == wide.optimizer_state_bytes
    at_update = narrow.costs.phase[narrow.costs.order[narrow.memory.op]] == Phase.OPTIMIZER
    assert narrow.memory.by_owner[at_update, Owner.WORKSPACE, 0].max() == 4 * count
    assert narrow.memory.by_owner[~at_update, Owner.WORKSPACE, 0].max(initial=0) < count


def test_gradients_that_are_joined_are_there_twice_when_they_are_widened() -> None:
    """DeepSpeed's ``flatten(averaged_gradients).to(float32)``, run as it is written."""
    joined = Configuration(training_format="joined-gradients", optimizer_kernel="fused")
    told = lower(graph_of("gpt2"), joined)
    at_update = told.costs.phase[told.costs.order[told.memory.op]] == Phase.OPTIMIZER
    workspace = told.memory.by_owner[at_update, Owner.WORKSPACE, 0].max()
    alive = WORKERS.run_script(Path(__file__).parent / "joined_gradients.py").stdout
    assert float(alive) == 2 + workspace / told.num_parameters == 8


def test_half_of_narrow_gradients_is_not_sent_again() -> None:
    kept = Configuration(precision="fp16", training_format="half-gradients")
    assert lower(graph_of("gpt2"), kept).gradient_bytes == 2 * 124_439_808


def test_an_update_touches_masters_and_leaves_narrow_weights_behind() -> None:
    """Gradient, master and two moments are read, the last three written, and the narrow weight."""
    half = lower(graph_of("gpt2"), HALF)
    assert updated_bytes(half) == pytest.approx((4 * 7 + 2) * half.num_parameters)


def test_nothing_is_cast_and_products_read_narrow_weights() -> None:
    mixed = lower(graph_of("gpt2"), Configuration(training_format="autocast"))
    half = lower(graph_of("gpt2"), HALF)
    assert (mixed.costs.kind == OpKind.CAST).any()
    assert not (half.costs.kind == OpKind.CAST).any()
    assert half.costs.flop.sum() <= mixed.costs.flop.sum()


def test_frozen_weights_have_no_masters() -> None:
    half = lower(graph_of("gpt2"), Configuration(training_format="half-weights", lora_rank=8))
    trained = half.num_trainable_parameters
    assert trained < 0.02 * half.num_parameters
    assert half.optimizer_state_bytes == 12 * trained
    assert half.gradient_bytes == 4 * trained


def test_full_width_has_nothing_to_keep_apart() -> None:
    usual, half = (
        lower(graph_of("gpt2"), Configuration(precision="fp32", training_format=kept))  # type: ignore[arg-type]
        for kept in ("usual", "half-weights")
    )
    assert half.optimizer_state_bytes == usual.optimizer_state_bytes


@pytest.mark.parametrize("model", ["gpt2", "bert-large", "llama-3-8b", "llama-3-70b"])
def test_large_models_are_trained_on_narrow_weights_unless_told_otherwise(model: str) -> None:
    graph = graph_of(model)
    is_parameter = graph.storages.owner == Owner.PARAMETER
    is_large = graph.storages.elements[is_parameter, 0].sum() >= LARGE_MODEL_PARAMETERS
    assert kept_format(graph, Configuration()) == ("half-weights" if is_large else "autocast")
    for kept in ("autocast", "half-weights", "pure"):
        assert kept_format(graph, Configuration(training_format=kept)) == kept  # type: ignore[arg-type]
