"""Laws of memory under sharding."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.plan.rank_memory import peak_moments, saved_bytes
from paceline.predict import Points
from paceline.trace import Configuration, load_workload, lower

MODELS = ["resnet50", "gpt2", "llama-3-8b"]
SHARDINGS = ["none", "zero1", "zero2", "zero3"]


def moments(name, precision="bf16", checkpointing="none"):
    model = load_workload(name)
    lowered = lower(
        model.passes[0].graph, Configuration(precision=precision, checkpointing=checkpointing)
    )
    batch = np.array([1.0, 4.0, 16.0])
    points = Points(batch=batch, seq=np.full(3, float(model.default_seq)))
    return lowered, peak_moments(lowered, points)


@pytest.mark.parametrize("name", MODELS)
def test_one_rank_saves_nothing_and_no_sharding_saves_nothing(name):
    _, found = moments(name)
    for sharding in SHARDINGS:
        assert (saved_bytes(found, 1, sharding) == 0).all()
    assert (saved_bytes(found, 64, "none") == 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_saving_grows_with_ranks_and_with_what_is_shared(name):
    _, found = moments(name)
    for sharding in SHARDINGS:
        series = [saved_bytes(found, n, sharding) for n in (1, 2, 8, 64, 4096)]
        assert (np.diff(series, axis=0) >= 0).all()
    by_sharding = [saved_bytes(found, 64, sharding) for sharding in SHARDINGS]
    assert (np.diff(by_sharding, axis=0) >= 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_activations_stay_whole(name):
    _, found = moments(name, precision="fp32")
    rest = found.whole.max(axis=0) - saved_bytes(found, 10**6, "zero3")
    shared = found.states + found.update + found.gradients + found.parameters
    activations = (found.whole - shared).max(axis=0)
    assert (rest >= activations).all()
    assert (rest <= activations + 0.07 * found.parameters.max()).all()


def test_state_of_a_large_model_is_shared_in_full():
    lowered, found = moments("llama-3-8b", checkpointing="full")
    state = lowered.parameter_bytes + lowered.optimizer_state_bytes
    assert saved_bytes(found, 64, "zero3")[0] > 0.9 * state
