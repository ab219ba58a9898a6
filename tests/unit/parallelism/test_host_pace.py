"""Blocks and the host: one device by blocks takes what `predict` says; waits hold up all ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.parallelism.links_of_tests import make_link
from tests.unit.parallelism.stated_of_tests import evaluate_blocks as evaluate_stated

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.block_names import block_names, blocks_of_ops
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph, OpKind, Phase
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass

WAIT_S = builtin_calibration().constant("host_waits", "wait_s")

SWITCH = make_link(bytes_per_s=450e9)
H100 = find_device(load_catalog(), "H100 SXM5 80GB")


def cluster() -> Cluster:
    """With room for anything."""
    device = replace(H100, memory_bytes=10**13, usable_memory_bytes=None)
    return Cluster(device=device, devices_per_node=8, device_link=SWITCH, node_link=None)


def graph_of(model: str) -> tuple[Graph, int]:
    workload = load_workload(model)
    return workload.passes[0].graph, workload.default_seq


def by_blocks(graph: Graph, seq: int, how: Configuration, *, batch: int, strategy="dp1") -> float:
    found = evaluate_stated(
        TracedJob(
            graph=graph,
            configuration=how,
            cluster=cluster(),
            seq=seq,
        ),
        Strategy.parse(strategy),
        global_batch=batch,
    )
    return found.step_s


def alone(graph: Graph, seq: int, how: Configuration, *, batch: int) -> float:
    points = Points(batch=np.array([float(batch)]), seq=np.array([float(seq)]))
    return float(
        predict_pass(lower(graph, how), DeviceTable.from_devices([H100]), points).mid_s[0, 0]
    )


@pytest.mark.parametrize("compiler", ["eager", "compiled"])
@pytest.mark.parametrize(
    ("model", "batch"),
    [("resnet50", 64), ("resnet50", 2), ("vit_b_16", 64), ("bert-base", 32), ("gpt2", 8),
     ("llama-3-8b", 1), ("unet", 8), ("dlrm", 2048), ("t5-base", 16), ("gnmt", 64),
     ("swin_t", 64)],
)  # fmt: skip
def test_one_device_by_blocks_takes_what_predict_says(model, batch, compiler) -> None:
    """Whether host or device sets the pace, or each for a part of the step."""
    (graph, seq), how = graph_of(model), Configuration(compiler=compiler)
    expected = alone(graph, seq, how, batch=batch)
    assert by_blocks(graph, seq, how, batch=batch) == pytest.approx(expected, rel=0.03)


def waiting(graph: Graph) -> Graph:
    """The same with a host that waits after the last normalisation of each block."""
    names = block_names(graph)
    block = blocks_of_ops(graph.modules, graph.ops.module.astype(np.int64), names)
    is_norm = (graph.ops.phase == Phase.FORWARD) & (graph.ops.kind == OpKind.NORM)
    last = {int(block[op]): int(op) for op in np.flatnonzero(is_norm)}
    kind = graph.ops.kind.copy()
    kind[list(last.values())] = OpKind.HOST_WAIT
    return replace(graph, ops=replace(graph.ops, kind=kind))


@pytest.mark.parametrize("batch", [1, 8])
def test_waits_in_blocks_hold_up_one_device_as_predict_says(batch) -> None:
    graph, seq = graph_of("gpt2")
    held, how = waiting(graph), Configuration()
    num_waits = int((held.ops.kind == OpKind.HOST_WAIT).sum())
    assert num_waits > 10
    expected = alone(held, seq, how, batch=batch)
    found = by_blocks(held, seq, how, batch=batch)
    assert found == pytest.approx(expected, rel=0.03)
    assert found > by_blocks(graph, seq, how, batch=batch) + 0.5 * num_waits * WAIT_S


@pytest.mark.parametrize(
    "strategy", ["dp8+zero3", "tp2", "pp2@1f1b/mb4", "dp2.tp2", "pp4@zbh1/mb8"]
)
def test_a_step_that_waits_for_the_host_waits_under_every_strategy(strategy) -> None:
    """Of each microbatch on the busiest rank, and hence of all ranks that wait for it."""
    graph, seq = graph_of("gpt2")
    held, how, one = waiting(graph), Configuration(compiler="compiled"), Strategy.parse(strategy)
    batch = 8 * one.num_batches * one.schedule.num_microbatches
    plain, late = (by_blocks(g, seq, how, batch=batch, strategy=strategy) for g in (graph, held))
    num_waits = int((held.ops.kind == OpKind.HOST_WAIT).sum()) // one.size("pp")
    least = one.schedule.num_microbatches * num_waits * WAIT_S
    assert late - plain > 0.8 * least
