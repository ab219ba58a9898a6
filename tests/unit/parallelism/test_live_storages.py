"""Predicted live storages against those of real PyTorch ranks on CPU processes, within 2 %."""

from __future__ import annotations

import numpy as np
import pytest
from gloo_runs import BATCH, CONTEXT_SEQ, FP32, SEQ, context_graph, expert_graph, graph, run_ranks
from tests.unit.parallelism.live_storages import (
    pipeline_live_bytes,
    replicated_live_bytes,
    sharded_live_bytes,
)

from paceline.model.graph.graph import Graph, monomials
from paceline.model.lowering import lower
from paceline.parallelism.memory.sharded_memory import peak_moments, saved_bytes
from paceline.parallelism.split import SplitShape, split
from paceline.parallelism.strategy.strategy import Schedule
from paceline.prediction.prediction import Points

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

CLOSE = 0.02
ONE_F_ONE_B = Schedule(kind="1f1b", num_microbatches=BATCH)
ZERO_BUBBLE = Schedule(kind="zbh1", num_microbatches=BATCH)
INTERLEAVED = Schedule(kind="interleaved", num_microbatches=BATCH, num_chunks=2)


def part() -> Graph:
    return split(graph(), SplitShape(tensor=2)).graph


def peaks(mode: str, world: int) -> list[float]:
    return [rank["kept"]["peak"] for rank in run_ranks(mode, world)]


def test_replicas_hold_buckets_beside_gradients() -> None:
    predicted = replicated_live_bytes(lower(graph(), FP32), batch=BATCH, seq=SEQ)
    assert peaks("ddp", 2) == pytest.approx([predicted] * 2, rel=CLOSE)


def test_sharded_ranks_hold_the_prefetch_window() -> None:
    predicted = sharded_live_bytes(graph(), FP32, num_ranks=2, batch=BATCH, seq=SEQ)
    assert peaks("fsdp", 2) == pytest.approx([predicted] * 2, rel=CLOSE)


def test_gradients_that_wait_for_the_last_microbatch_are_whole() -> None:
    """FSDP2 without gradient sync in the first of two: each rank holds what others reduce.

    Ranks that reduce at once hold those of the head and the last norm whole at their peak.
    """
    lowered = lower(graph(), FP32)
    moments = peak_moments(lowered, Points(batch=np.array([BATCH]), seq=np.array([SEQ])))
    reduced, held = (
        float(saved_bytes(moments, 2, "zero3", accumulates=True, keeps_gradients=keeps)[0])
        for keeps in (False, True)
    )
    more = np.array(peaks("fsdp_held_rounds", 2)) - peaks("fsdp_rounds", 2)
    head_bytes = (512 + 2) * 128 * 4
    assert more == pytest.approx([lowered.gradient_bytes / 2 - head_bytes] * 2, rel=CLOSE)
    assert reduced - held <= lowered.gradient_bytes / 2


def test_hybrid_sharded_ranks_hold_the_window_of_their_shards() -> None:
    predicted = sharded_live_bytes(graph(), FP32, num_ranks=2, batch=BATCH, seq=SEQ)
    assert peaks("hsdp", 4) == pytest.approx([predicted] * 4, rel=CLOSE)


def test_tensor_ranks_hold_their_part() -> None:
    live = lower(part(), FP32).memory.by_owner.sum(axis=1) @ monomials(BATCH, SEQ)[0]
    assert peaks("tp", 2) == pytest.approx([live.max()] * 2, rel=CLOSE)


@pytest.mark.parametrize("world", [2, 4])
def test_expert_ranks_hold_their_part_and_the_tokens_of_all(world) -> None:
    lowered = lower(split(expert_graph(), SplitShape(experts=world)).graph, FP32)
    live = lowered.memory.by_owner.sum(axis=1) @ monomials(BATCH, SEQ)[0]
    assert peaks("experts", world) == pytest.approx([live.max()] * world, rel=CLOSE)
    for rank in run_ranks("experts", world):
        assert rank["kept"]["parameters"] == lowered.parameter_bytes
        assert rank["kept"]["gradients"] == lowered.gradient_bytes
        assert rank["kept"]["states"] == lowered.optimizer_state_bytes


@pytest.mark.parametrize("world", [2, 4])
def test_context_ranks_hold_their_part_of_each_sequence(world) -> None:
    lowered = lower(split(context_graph(), SplitShape(ring=world)).graph, FP32)
    live = lowered.memory.by_owner.sum(axis=1) @ monomials(BATCH, CONTEXT_SEQ)[0]
    assert peaks("context", world) == pytest.approx([live.max()] * world, rel=CLOSE)
    whole = lower(context_graph(), FP32).memory.by_owner.sum(axis=1)
    assert live.max() < 0.7 * (whole @ monomials(BATCH, CONTEXT_SEQ)[0]).max()


def test_replicas_of_tensor_ranks() -> None:
    predicted = replicated_live_bytes(lower(part(), FP32), batch=BATCH, seq=SEQ)
    assert peaks("ddp_tp", 4) == pytest.approx([predicted] * 4, rel=CLOSE)


@pytest.mark.parametrize(
    ("mode", "world", "schedule"),
    [("pp", 2, ONE_F_ONE_B), ("pp", 4, ONE_F_ONE_B), ("interleaved", 2, INTERLEAVED),
     ("zbh1", 2, ZERO_BUBBLE), ("zbh1", 4, ZERO_BUBBLE)],
)  # fmt: skip
def test_each_pipeline_rank(mode, world, schedule) -> None:
    """As many microbatches as ranks: the first holds all only while it has no gradients yet."""
    predicted = pipeline_live_bytes(
        graph(), FP32, schedule, num_ranks=world, microbatch=1, seq=SEQ
    )  # fmt: skip
    assert peaks(mode, world) == pytest.approx(predicted.tolist(), rel=CLOSE)


def test_stages_of_tensor_ranks() -> None:
    predicted = pipeline_live_bytes(part(), FP32, ONE_F_ONE_B, num_ranks=2, microbatch=1, seq=SEQ)
    assert peaks("pp_tp", 4) == pytest.approx(np.repeat(predicted, 2).tolist(), rel=CLOSE)


@pytest.mark.parametrize(
    ("mode", "world", "share"), [("ddp", 2, 1), ("fsdp", 2, 2), ("hsdp", 4, 2)]
)  # fmt: skip
def test_what_stays_from_step_to_step(mode, world, share) -> None:
    whole = lower(graph(), FP32)
    for rank in run_ranks(mode, world):
        kept = rank["kept"]
        assert kept["parameters"] == pytest.approx(whole.parameter_bytes / share, rel=CLOSE)
        assert kept["gradients"] == pytest.approx(whole.gradient_bytes / share, rel=CLOSE)
        assert kept["states"] == pytest.approx(whole.optimizer_state_bytes / share, rel=CLOSE)


def test_tensor_ranks_keep_the_parameters_of_their_part() -> None:
    whole = lower(part(), FP32)
    for rank in run_ranks("tp", 2):
        assert rank["kept"]["parameters"] == pytest.approx(whole.parameter_bytes, rel=1e-9)


def test_a_lone_rank_needs_no_window_that_it_could_save() -> None:
    """More ranks never need more, and the window is what is left in the limit."""
    few, many = (
        sharded_live_bytes(graph(), FP32, num_ranks=n, batch=BATCH, seq=SEQ) for n in (2, 1024)
    )
    kept = lower(graph(), FP32)
    shared = kept.parameter_bytes + kept.optimizer_state_bytes
    assert few - many > 0.49 * shared
