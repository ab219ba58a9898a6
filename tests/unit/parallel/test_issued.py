"""Predicted collectives against those that PyTorch issues on real CPU processes (gloo)."""

from __future__ import annotations

import collections
import json
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import paceline.trace
from paceline.catalog import find_device, load_catalog
from paceline.parallel.blocks import TensorGroup, block_costs
from paceline.parallel.issued import data_parallel_calls, sharded_calls, tensor_parallel_calls
from paceline.parallel.links import LinkTable
from paceline.parallel.tensor_parallel import split_graph
from paceline.predict import DeviceTable, Points
from paceline.trace import Configuration, Graph, load_workload, lower

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

WORKER = Path(__file__).parent / "gloo_worker.py"
MODELS = Path(paceline.trace.__file__).parent / "workers" / "torch_models.py"
ENTRY = "transformer:layers=4,hidden=128,heads=4,vocab=512,positions=64,ffn=512"
BATCH, SEQ, FP32_BYTES, HEAD_BYTES = 4, 32, 4.0, 512 * 128 * 4
FP32 = Configuration(precision="fp32", optimizer_kernel="plain")


@cache
def graph() -> Graph:
    return load_workload(ENTRY, optimizer="adam").passes[0].graph


@cache
def run_ranks(mode: str, world: int = 2) -> tuple[dict, ...]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, str(WORKER), mode]
    ranks = [
        subprocess.Popen([*command, str(r), str(world), port, str(MODELS)], stdout=subprocess.PIPE)
        for r in range(world)
    ]
    try:
        return tuple(json.loads(rank.communicate(timeout=300)[0]) for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()


@pytest.mark.parametrize("mode", ["ddp", "fsdp", "tp", "pp"])
def test_the_loss_is_that_of_one_process(mode) -> None:
    ranks = run_ranks(mode)
    assert ranks[0]["loss"] == pytest.approx(ranks[0]["expected"], rel=1e-5)


def test_ddp_issues_the_predicted_buckets() -> None:
    predicted = data_parallel_calls(lower(graph(), FP32), bucket_bytes=2**20)
    issued = [size for _, size in run_ranks("ddp")[0]["calls"]]
    assert issued == [call.message_bytes for call in predicted]


def test_fsdp_issues_the_predicted_gathers_and_scatters() -> None:
    predicted = sharded_calls(graph(), element_bytes=FP32_BYTES)
    issued = collections.Counter(tuple(call) for call in run_ranks("fsdp")[0]["calls"])
    assert issued == collections.Counter((c.name, c.message_bytes) for c in predicted)


def test_tensor_parallel_issues_the_predicted_reductions() -> None:
    calls = tensor_parallel_calls(
        split_graph(graph(), 2), batch=BATCH, seq=SEQ, element_bytes=FP32_BYTES
    )
    predicted = [(c.name, c.message_bytes) for c in calls if c.block.startswith("layers.")]
    assert [tuple(call) for call in run_ranks("tp")[0]["calls"]] == predicted


def test_pipeline_stages_send_the_predicted_messages() -> None:
    device = DeviceTable.from_devices([find_device(load_catalog(), "H100 SXM5 80GB")])
    none = LinkTable.from_links([None])
    group = TensorGroup(
        degree=1, ranks_per_node=1, device_link=none, node_link=none, sequence_parallel=False
    )
    points = Points(batch=np.array([1.0]), seq=np.array([float(SEQ)]))
    costs = block_costs(graph(), FP32, device, points, group)
    message = costs.boundary_bytes[0][costs.names.index("layers.1")]
    for rank in run_ranks("pp"):
        assert [size for _, size in rank["calls"]] == [message] * BATCH


@pytest.mark.parametrize("world", [2])
def test_each_rank_keeps_the_predicted_share(world) -> None:
    whole = lower(graph(), FP32)
    for rank in run_ranks("fsdp"):
        kept = rank["kept"]
        assert kept["parameters"] == pytest.approx(whole.parameter_bytes / world, rel=0.02)
        assert kept["gradients"] == pytest.approx(whole.gradient_bytes / world, rel=0.02)
        assert kept["states"] == pytest.approx(whole.optimizer_state_bytes / world, rel=0.02)
    part = lower(split_graph(graph(), world).graph, FP32)
    whole_head = HEAD_BYTES * (1 - 1 / world)  # the test's plan leaves the head on every rank
    for rank in run_ranks("tp"):
        expected = part.parameter_bytes + whole_head
        assert rank["kept"]["parameters"] == pytest.approx(expected, rel=0.02)
        assert rank["kept"]["states"] == pytest.approx(2 * expected, rel=0.02)
