"""A rank replayed: between its live tensors and what tier one lets it have."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lifetimes
from paceline.model.reading.load import load_workload
from paceline.parallelism.replayed import can_replay, can_replay_last_stage, replayed_rank
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.memory.allocator import replay
from paceline.prediction.memory.peak import process_memory

HOW = Configuration()


def peak_bytes(model: str, text: str, batch: float = 2.0, *, is_flat: bool = False) -> float:
    job = load_workload(model)
    return replayed_rank(
        job.passes[0].graph, HOW, Strategy.parse(text), batch=batch, seq=job.default_seq,
        flat_states=is_flat,
    ).peak_bytes  # fmt: skip


@pytest.mark.parametrize("model", ["resnet50", "gpt2"])
def test_one_rank_is_one_device(model: str) -> None:
    job, added = load_workload(model), process_memory("cuda")
    alone = replay(lifetimes(job.passes[0].graph, HOW), batch=2.0, seq=job.default_seq)
    around_bytes = added.workspace_bytes + added.context_mid_bytes
    for text in ("dp1", "dp8"):
        assert peak_bytes(model, text) == alone.reserved_bytes + around_bytes


@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b"])
def test_what_ranks_split_they_do_not_hold(model: str) -> None:
    """Two FP32 moments of each parameter are always there, and seven of eight elsewhere."""
    whole, zero1, zero3 = (
        peak_bytes(model, f"dp8{how}", is_flat=True) for how in ("", "+zero1", "+zero3")
    )
    moments_bytes = 8 * load_workload(model).num_parameters
    assert whole - zero1 > 0.9 * 7 / 8 * moments_bytes
    assert zero3 < zero1
    assert peak_bytes(model, "tp4", is_flat=True) < whole
    assert peak_bytes(model, "dp8/mb4", is_flat=True) >= whole


@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b"])
def test_states_in_what_backward_freed_leave_the_order_of_strategies(model: str) -> None:
    whole, zero1, zero3 = (peak_bytes(model, f"dp8{how}") for how in ("", "+zero1", "+zero3"))
    assert zero3 < zero1 < whole
    assert peak_bytes(model, "tp4") < whole
    assert peak_bytes(model, "dp8/mb4") >= whole


def test_a_rank_runs_through_where_there_is_its_peak_and_not_where_there_is_half() -> None:
    job, strategy = load_workload("gpt2"), Strategy.parse("dp8+zero1")
    there = peak_bytes("gpt2", "dp8+zero1")
    for capacity_bytes, expected in ((math.inf, True), (there, True), (there / 2, False)):
        found = replayed_rank(
            job.passes[0].graph, HOW, strategy, batch=2.0, seq=job.default_seq,
            capacity_bytes=capacity_bytes,
        )  # fmt: skip
        assert found.fits == expected


def test_stages_and_hosts_are_not_replayed() -> None:
    for text, expected in (("dp8", True), ("dp2.tp4", True), ("pp2.dp4", False)):
        assert can_replay(HOW, Strategy.parse(text)) == expected
    assert not can_replay(HOW, Strategy.parse("dp8+zero1+offload"))
    on_host = replace(HOW, offload="optimizer")
    assert not can_replay(on_host, Strategy.parse("dp8+zero3"))
    assert not can_replay(Configuration(platform="cpu"), Strategy.parse("dp8"))


@pytest.mark.parametrize("text", ["ep4+zero1", "dp2.ep2+zero1", "dp4.ep1+zero1"])
def test_experts_are_shared_by_replicas_alone(text: str) -> None:
    """Two moments and a master of each weight; an expert group has each expert once already."""
    job, how = (
        load_workload("mixtral-8x7b"),
        replace(HOW, training_format="half-weights", optimizer_kernel="fused"),
    )
    found = replayed_rank(
        job.passes[0].graph, how, Strategy.parse(text), batch=1.0, seq=64.0, flat_states=True
    )
    count, experts = job.num_parameters, 32 * 8 * 3 * 4096 * 14336
    ranks = Strategy.parse(text).size("ep")
    weights = 6 * (count - experts + experts / ranks)
    live_bytes = found.held_bytes - found.beside_bytes
    assert live_bytes == pytest.approx(weights + 12 * count / 4, rel=0.1)


def test_the_last_stage_is_followed_where_it_has_one_microbatch_in_flight() -> None:
    for text, expected in (
        ("pp2@1f1b/mb8", True), ("pp2.dp2@1f1b/mb8+zero1", True), ("pp2@gpipe/mb1", True),
        ("pp2@gpipe/mb8", False), ("pp2@interleaved2/mb8", False), ("dp2", False),
    ):  # fmt: skip
        assert can_replay_last_stage(HOW, Strategy.parse(text)) == expected


@pytest.mark.parametrize("model", ["gpt2", "llama-3.2-1b"])
def test_stages_share_layers_and_the_last_has_the_head(model: str) -> None:
    """A stage more is some layers less, and what the logits take stays."""
    peaks = [peak_bytes(model, text) for text in ("dp1", "pp2@1f1b/mb1", "pp4@1f1b/mb1")]
    assert peaks[2] < peaks[1] < peaks[0]
    assert peaks[0] - peaks[1] > 1.4 * (peaks[1] - peaks[2])
    table = load_workload(model).passes[0].graph.storages.elements[:, 0].max()
    assert peaks[2] > 12 * table


def test_more_microbatches_leave_the_last_stage_its_gradients_alone() -> None:
    one, many = (peak_bytes("gpt2", f"pp2@1f1b/mb{count}") for count in (1, 8))
    assert one <= many == peak_bytes("gpt2", "pp2@1f1b/mb16")
