"""Laws of memory under sharding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Owner
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.memory.sharded_memory import (
    PeakMoments,
    peak_moments,
    saved_bytes,
    saved_process_bytes,
)
from paceline.parallelism.training_profile import find_training_profile
from paceline.prediction.memory.peak import peak_memory_bytes, process_memory
from paceline.prediction.prediction import Points

MODELS = ["resnet50", "gpt2", "llama-3-8b"]
SHARDINGS = ["none", "zero1", "zero2", "zero3"]


def moments(name, **settings):
    model = load_workload(name)
    lowered = lower(model.passes[0].graph, Configuration(**{"precision": "bf16", **settings}))
    batch = np.array([1.0, 4.0, 16.0])
    points = Points(batch=batch, seq=np.full(3, float(model.default_seq)))
    return lowered, peak_moments(lowered, points)


def paper():
    """The ZeRO paper's 7.5 billion parameters: 2 + 2 + 12 bytes each, and nothing else."""
    columns = {"whole": 120e9, "states": 90e9, "update": 0, "gradients": 15e9, "parameters": 15e9}
    return PeakMoments(**{name: np.array([[float(v)]]) for name, v in columns.items()})


@pytest.mark.parametrize(
    ("sharding", "expected_gb"), [("none", 120.0), ("zero1", 31.4), ("zero2", 16.6)]
)
def test_the_figures_of_the_zero_paper(sharding, expected_gb) -> None:
    """Figure 1 of Rajbhandari et al. 2020: 7.5 B parameters on 64 devices."""
    found = 120e9 - saved_bytes(paper(), 64, sharding)
    assert float(found[0]) / 1e9 == pytest.approx(expected_gb, abs=0.05)


def test_zero3_adds_only_the_gathered_blocks_to_the_paper() -> None:
    found = 120e9 - saved_bytes(paper(), 64, "zero3")
    assert float(found[0]) / 1e9 == pytest.approx(1.9 + 15 / 16, abs=0.05)


def test_a_model_that_is_there_whole_before_it_is_split_is_the_least_peak() -> None:
    """15 GB of weights, of which ranks then keep less than three; no rank splits none."""
    whole = replace(find_training_profile(), starts_whole=True)
    for sharding, expected_gb in (("zero3", 15.0), ("zero2", 16.6)):
        found = 120e9 - saved_bytes(paper(), 64, sharding, profile=whole)
        assert float(found[0]) / 1e9 == pytest.approx(expected_gb, abs=0.05)


def test_shares_on_the_host_leave_the_gathered_blocks_alone() -> None:
    """The paper's 15 GB of weights: two of 32 blocks, however many ranks; and no gradients."""
    for num_ranks in (8, 64):
        found = 120e9 - saved_bytes(replace(paper(), shares_on_host=True), num_ranks, "zero3")
        states = 90e9 / num_ranks
        assert float(found[0]) == pytest.approx(states + 15e9 / 16)


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_offloaded_weights_are_what_ranks_split_and_nothing_else(sharding) -> None:
    """`offload=weights` of a rank that keeps all is `offload=optimizer`."""
    of = {}
    for what in ("optimizer", "weights"):
        _, found = moments("gpt2", offload=what)
        of[what] = found.whole.max(axis=0) - saved_bytes(found, 8, sharding)
    assert (of["weights"] <= of["optimizer"]).all()
    if sharding != "zero2":
        assert ((of["weights"] < of["optimizer"]) == (sharding == "zero3")).all()


def test_gradients_kept_until_the_last_microbatch_are_whole_but_in_the_update() -> None:
    """FSDP under `no_sync`: a rank of 8 holds all gradients of Llama 3 8B beside its shards."""
    lowered, found = moments("llama-3-8b", training_format="pure", checkpointing="block")
    reduced, held = (
        saved_bytes(found, 8, "zero3", accumulates=True, keeps_gradients=keeps)
        for keeps in (False, True)
    )
    live = found.whole.max(axis=0) - held
    assert (live >= lowered.gradient_bytes + lowered.optimizer_state_bytes / 8).all()
    assert (reduced - held <= lowered.gradient_bytes * 7 / 8).all()
    assert (saved_bytes(found, 8, "zero3", keeps_gradients=True) >= reduced).all()


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("name", MODELS)
def test_a_rank_is_bounded_as_a_device_that_keeps_as_little(name: str, sharding: str) -> None:
    """What the allocator adds to live bytes is a share of those of the rank, not of the model."""
    lowered, _ = moments(name)
    points = Points(batch=np.array([1.0, 4.0, 16.0]), seq=np.full(3, 1024.0))
    found = peak_moments(lowered, points)
    mid, high = peak_memory_bytes(lowered.memory, points, platform="cuda")[1:]
    added, live = process_memory("cuda"), found.whole.max(axis=0)
    kept_frac = 1.0 - saved_bytes(found, 64, sharding) / live
    bound = high - saved_process_bytes(found, 64, sharding)[1]
    rest = high - (1.0 + added.fragmentation_high_frac) * live
    assert bound == pytest.approx(rest + (1.0 + added.fragmentation_high_frac) * live * kept_frac)
    middle = mid - saved_process_bytes(found, 64, sharding)[0]
    assert (middle > live * kept_frac).all()
    assert (middle < bound).all()


def test_gradients_that_are_not_there_at_the_peak_are_not_saved() -> None:
    """The end of forward is the peak: gradients are made later, and to share them frees nothing."""
    lowered, found = moments("gpt2")
    assert lowered.gradient_bytes > 0
    assert found.gradients[found.whole[:, -1].argmax(), -1] == 0
    assert (saved_bytes(found, 64, "zero2") == saved_bytes(found, 64, "zero1")).all()


def test_frozen_parameters_have_no_gradients_to_share() -> None:
    lowered, found = moments("llama-3-8b", lora_rank=8, frozen=(), training_format="pure")
    assert found.gradients.max() <= lowered.gradient_bytes < 0.01 * lowered.parameter_bytes
    shared = saved_bytes(found, 64, "zero2") - saved_bytes(found, 64, "zero1")
    assert (shared <= lowered.gradient_bytes).all()


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
    weights, gradients = found.whole_shares(wraps_each=False)
    whole = weights.max() * found.parameters.max() + gradients.max() * found.all_gradients
    assert (rest <= activations + whole * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_gathered_in_the_update_and_the_root_stays_until_then(name):
    _, found = moments(name)
    each, root = (found.whole_shares(wraps_each=way)[0].ravel() for way in (True, False))
    assert found.is_update.any()
    assert (each[found.is_update] == 0).all()
    assert (root[found.is_update] == 0).all()
    assert (root[~found.is_update] > 0).all()
    assert 0 <= each.min() <= max(each.max(), root.max()) <= 1
    apart, usual = (
        saved_bytes(found, 64, "zero3", profile=find_training_profile(who))
        for who in ("loop", "torch")
    )
    assert (apart >= usual).all()


@pytest.mark.parametrize("accumulates", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_plain_ddp_holds_one_set_of_gradients_more(name, accumulates):
    lowered, found = moments(name)
    plain, views, megatron = (
        saved_bytes(found, 8, "none", accumulates=accumulates, profile=find_training_profile(who))
        for who in ("torch", "loop", "megatron")
    )
    without = saved_bytes(found, 8, "none", accumulates=accumulates)
    assert without - plain == pytest.approx(lowered.gradient_bytes)
    # Megatron's one set lies in buffers from the start of the step, and not as it is made.
    assert (megatron == without).all() if accumulates else (megatron <= without).all()
    assert (megatron >= plain).all()
    assert (views == plain).all() if accumulates else (plain <= views).all()
    assert (saved_bytes(found, 1, "none", profile=find_training_profile()) == 0).all()
    assert (
        saved_bytes(found, 8, "zero2", profile=find_training_profile())
        == saved_bytes(found, 8, "zero2")
    ).all()


def test_state_of_a_large_model_is_shared_in_full():
    lowered, found = moments("llama-3-8b", checkpointing="full")
    state = lowered.parameter_bytes + lowered.optimizer_state_bytes
    assert saved_bytes(found, 64, "zero3")[0] > 0.9 * state


def test_moments_add_up_to_the_owners():
    lowered, found = moments("gpt2")
    gradients = lowered.memory.by_owner[:, Owner.GRADIENT, 0]
    assert found.gradients[:, 0] == pytest.approx(gradients)


@pytest.mark.parametrize("name", ["resnet50", "gpt2", "unet", "t5-base"])
def test_gradients_of_earlier_microbatches_are_kept_as_a_pass_that_adds_to_them_keeps_them(
    name: str,
) -> None:
    lowered, found = moments(name)
    exact, _ = moments(name, accumulates=True)
    seq = float(load_workload(name).default_seq)
    points = Points(batch=np.array([1.0, 4.0, 16.0]), seq=np.full(3, seq))
    alone = peak_memory_bytes(lowered.memory, points, platform="cuda")
    wanted = peak_memory_bytes(exact.memory, points, platform="cuda")
    mid = alone[1] - saved_process_bytes(found, 1, "none", accumulates=True)[0]
    high = alone[2] - saved_process_bytes(found, 1, "none", accumulates=True)[1]
    assert mid == pytest.approx(wanted[1], rel=0.01)
    assert high == pytest.approx(wanted[2], rel=0.01)


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("name", MODELS)
def test_accumulating_never_needs_less(name: str, sharding: str) -> None:
    _, found = moments(name)
    for num_ranks in (1, 8, 64):
        one, many = (
            saved_bytes(found, num_ranks, sharding, accumulates=accumulates)
            for accumulates in (False, True)
        )
        assert (many <= one).all()


@pytest.mark.parametrize("checkpointing", ["none", "block"])
def test_stage_3_of_deepspeed_keeps_gradients_and_a_billion_weights(checkpointing):
    """Beside what FSDP holds: a rank's gradients from the start, and 2 GB of 16-bit weights."""
    _, found = moments("llama-3-8b", training_format="half-weights", checkpointing=checkpointing)
    whose = ("torch", "megatron", "deepspeed")
    fsdp, filled, stage_3 = (
        saved_bytes(found, 8, "zero3", profile=find_training_profile(who)) for who in whose
    )
    assert (fsdp > filled).all()
    # FSDP's root, words and head of 1.05 billion weights, is gathered all along, as many weights as
    # stage 3 lets stay, and its FP32 gradients are whole.
    root_gradient_bytes = 2 * 128_256 * 4096 * 4
    assert (abs(stage_3 - filled - root_gradient_bytes) <= 0.2e9).all()
    again = (
        saved_bytes(found, 8, "zero3", accumulates=True, profile=find_training_profile(who))
        for who in whose
    )
    fsdp, _, stage_3 = again
    assert (fsdp - stage_3 <= 2e9).all(), "a microbatch before left gradients anyway"


def test_a_model_of_less_than_a_billion_weights_holds_no_more_than_all() -> None:
    _, found = moments("gpt2")
    live = found.whole.max(axis=0) - saved_bytes(
        found, 8, "zero3", profile=find_training_profile("deepspeed")
    )
    whole = found.whole.max(axis=0) - saved_bytes(found, 8, "none")
    assert (live < whole + found.all_gradients).all()
