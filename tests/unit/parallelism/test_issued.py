"""Predicted collectives against those that PyTorch issues on real CPU processes (gloo)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from gloo_runs import (
    BATCH,
    CONTEXT_SEQ,
    FP32,
    FP32_BYTES,
    SEQ,
    context_graph,
    expert_graph,
    graph,
    run_ranks,
)
from tests.unit.parallelism.issued import (
    data_over_tensor_calls,
    data_parallel_calls,
    hybrid_sharded_calls,
    pipeline_calls,
    sharded_calls,
    tensor_parallel_calls,
)

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.graph import Owner, Phase, monomials
from paceline.model.lowering import lower
from paceline.parallelism.collectives.links import COLLECTIVES, LinkTable
from paceline.parallelism.schedule.blocks import BlockCosts, TensorGroup, block_costs
from paceline.parallelism.split import SplitShape, split
from paceline.parallelism.strategy.strategy import Schedule
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

#: Mode of the worker, and ranks.
JOBS = (
    ("ddp", 2), ("fsdp", 2), ("hsdp", 4), ("tp", 2), ("pp", 2), ("interleaved", 2), ("zbh1", 2),
    ("ddp_tp", 4), ("pp_tp", 4), ("experts", 2), ("experts", 4), ("pp", 4), ("zbh1", 4),
    ("context", 2), ("context", 4),
)  # fmt: skip
ONE_F_ONE_B = Schedule(kind="1f1b", num_microbatches=BATCH)
ZERO_BUBBLE = Schedule(kind="zbh1", num_microbatches=BATCH)
INTERLEAVED = Schedule(kind="interleaved", num_microbatches=BATCH, num_chunks=2)
BUCKET_BYTES = 2**20


def blocks(tensor_degree: int = 1) -> BlockCosts:
    device = DeviceTable.from_devices([find_device(load_catalog(), "H100 SXM5 80GB")])
    none = LinkTable.from_links([None])
    group = TensorGroup(
        shape=SplitShape(tensor=tensor_degree), ranks_per_node=tensor_degree, device_link=none,
        node_link=none,
    )  # fmt: skip
    points = Points(batch=np.array([1.0]), seq=np.array([float(SEQ)]))
    return block_costs(graph(), FP32, device, points, group)


def tensor_calls(batch: float) -> list[tuple[str, float, str]]:
    calls = tensor_parallel_calls(
        split(graph(), SplitShape(tensor=2)), batch=batch, seq=SEQ, element_bytes=FP32_BYTES
    )
    return [(c.name, c.message_bytes, c.block) for c in calls]


@pytest.mark.parametrize(("mode", "world"), JOBS)
def test_the_loss_is_that_of_one_process(mode, world) -> None:
    ranks = run_ranks(mode, world)
    assert ranks[0]["loss"] == pytest.approx(ranks[0]["expected"], rel=1e-5)


def test_ddp_issues_the_predicted_buckets() -> None:
    predicted = data_parallel_calls(lower(graph(), FP32), bucket_bytes=BUCKET_BYTES)
    issued = [size for _, size in run_ranks("ddp", 2)[0]["calls"]]
    assert issued == [call.message_bytes for call in predicted]


def test_fsdp_issues_the_predicted_gathers_and_scatters() -> None:
    predicted = sharded_calls(graph(), element_bytes=FP32_BYTES)
    issued = Counter(tuple(call) for call in run_ranks("fsdp", 2)[0]["calls"])
    assert issued == Counter((c.name, c.message_bytes) for c in predicted)


def test_hybrid_sharding_issues_the_scatters_of_shards_and_the_sums_of_replicas() -> None:
    predicted = hybrid_sharded_calls(graph(), element_bytes=FP32_BYTES, num_shards=2)
    for rank in run_ranks("hsdp", 4):
        issued = Counter(tuple(call) for call in rank["calls"])
        assert issued == Counter((c.name, c.message_bytes) for c in predicted)


def test_tensor_parallel_issues_the_predicted_reductions() -> None:
    predicted = [(name, size) for name, size, _ in tensor_calls(BATCH)]
    for rank in run_ranks("tp", 2):
        assert [tuple(call) for call in rank["calls"]] == predicted


@pytest.mark.parametrize("world", [2, 4])
def test_expert_ranks_swap_the_predicted_tokens(world) -> None:
    calls = split(expert_graph(), SplitShape(experts=world)).calls
    sizes = calls.elements @ monomials(BATCH, SEQ)[0] * FP32_BYTES
    predicted = [(COLLECTIVES[name], size) for name, size in zip(calls.name, sizes, strict=True)]
    for rank in run_ranks("experts", world):
        swapped = [tuple(call) for call in rank["calls"] if call[0] == "all_to_all"]
        assert swapped == predicted


@pytest.mark.parametrize("world", [2, 4])
def test_expert_ranks_reduce_what_all_of_them_hold(world) -> None:
    part = split(expert_graph(), SplitShape(experts=world))
    lowered = lower(part.graph, FP32)
    owned = part.graph.storages.owner == Owner.PARAMETER
    experts = part.graph.storages.elements[owned & part.is_expert, 0].sum() * FP32_BYTES
    for rank in run_ranks("experts", world):
        reduced = sum(size for name, size in rank["calls"] if name == "all_reduce")
        assert reduced == lowered.parameter_bytes - experts


@pytest.mark.parametrize("world", [2, 4])
def test_context_ranks_pass_the_predicted_keys_round(world) -> None:
    """Every layer's keys in forward; in backward, last layer first, their gradients as well."""
    part = split(context_graph(), SplitShape(ring=world))
    sizes = part.calls.elements @ monomials(BATCH, CONTEXT_SEQ)[0] * FP32_BYTES
    is_forward = part.graph.ops.phase[part.calls.op] == Phase.FORWARD
    rounds = world - 1
    keys, later = (np.repeat(sizes[chosen], rounds) for chosen in (is_forward, ~is_forward))
    for rank in run_ranks("context", world):
        sent = [size for name, size in rank["calls"] if name == "send_recv"]
        assert sent[: len(keys)] == keys.tolist()
        by_layer = np.reshape(sent[len(keys) :], (-1, 2 * rounds)).sum(axis=1)
        assert by_layer.tolist() == later.reshape(-1, rounds).sum(axis=1).tolist()


@pytest.mark.parametrize("world", [2, 4])
def test_context_ranks_reduce_all_parameters(world) -> None:
    lowered = lower(split(context_graph(), SplitShape(ring=world)).graph, FP32)
    for rank in run_ranks("context", world):
        reduced = sum(size for name, size in rank["calls"] if name == "all_reduce")
        assert reduced == lowered.gradient_bytes


def test_data_over_tensor_parallel_issues_both() -> None:
    whole, part = lower(graph(), FP32), lower(split(graph(), SplitShape(tensor=2)).graph, FP32)
    buckets = data_over_tensor_calls(whole, part, bucket_bytes=BUCKET_BYTES)
    predicted = Counter((name, size) for name, size, _ in tensor_calls(BATCH))
    predicted.update((c.name, c.message_bytes) for c in buckets)
    for rank in run_ranks("ddp_tp", 4):
        assert Counter(tuple(call) for call in rank["calls"]) == predicted


@pytest.mark.parametrize(
    ("mode", "world", "schedule"),
    [("pp", 2, ONE_F_ONE_B), ("pp", 4, ONE_F_ONE_B), ("interleaved", 2, INTERLEAVED),
     ("zbh1", 2, ZERO_BUBBLE), ("zbh1", 4, ZERO_BUBBLE)],
)  # fmt: skip
def test_pipeline_ranks_send_the_predicted_messages_in_order(mode, world, schedule) -> None:
    for number, rank in enumerate(run_ranks(mode, world)):
        predicted = pipeline_calls(blocks(), schedule, num_ranks=world, rank=number)
        sent = [(c.name, c.message_bytes, c.block) for c in predicted]
        assert [tuple(call) for call in rank["calls"]] == sent


def test_tensor_parallel_stages_send_and_reduce_as_predicted() -> None:
    costs = blocks(2)
    first = {"embedding", "position", "layers.0", "layers.1"}
    for number, rank in enumerate(run_ranks("pp_tp", 4)):
        stage = number // 2
        mine = [(n, s) for n, s, block in tensor_calls(1) if (block in first) == (stage == 0)]
        sends = pipeline_calls(costs, ONE_F_ONE_B, num_ranks=2, rank=stage)
        predicted = Counter(BATCH * mine)
        predicted.update((c.name, c.message_bytes) for c in sends)
        assert Counter(tuple(call[:2]) for call in rank["calls"]) == predicted
