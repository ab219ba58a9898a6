"""What pipeline stages send each other: how much, and what of it is hidden."""

from dataclasses import replace

import numpy as np
import pytest
from links_of_tests import make_link

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Compiler, Configuration
from paceline.model.graph.graph import Graph
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.evaluation import evaluate_strategies
from paceline.parallelism.schedule.blocks import TensorGroup, block_costs
from paceline.parallelism.schedule.table import KINDS, ClusterLinks, StrategyTable, Variant
from paceline.parallelism.split.shape import SplitShape
from paceline.parallelism.training_profile import find_training_profile
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points

SEQ, HIDDEN, WIDTH, NUM_MICROBATCHES = 1024, 768, 2, 64


@pytest.fixture(scope="module")
def gpt2() -> Graph:
    return load_workload("gpt2").passes[0].graph


def variant(graph: Graph, compiler: Compiler = "eager") -> Variant:
    link = LinkTable.from_links([make_link()])
    costs = block_costs(
        graph,
        Configuration(compiler=compiler, training_format="half-weights"),
        DeviceTable.from_devices([find_device(load_catalog(), "A100 SXM4 80GB")]),
        Points(batch=np.ones(1), seq=np.array([float(SEQ)])),
        TensorGroup(shape=SplitShape(), ranks_per_node=8, device_link=link, node_link=link),
    )
    return Variant(
        shape=SplitShape(), checkpointing="none", costs=costs
    )  # fmt: skip


def fabric(bytes_per_s: float, *, overlaps_hops: bool) -> ClusterLinks:
    link = LinkTable.from_links([replace(make_link(), bytes_per_s=bytes_per_s)])
    return ClusterLinks(
        devices_per_node=8, device_link=link, node_link=link,
        profile=replace(find_training_profile(), overlaps_hops=overlaps_hops),
    )  # fmt: skip


def step_s(graph: Graph, kind: str, chunks: int, cluster: ClusterLinks) -> float:
    def one(value: int) -> np.ndarray:
        return np.array([value], dtype=np.int64)

    table = StrategyTable(
        variant=one(0), dp=one(1), pp=one(4), chunks=one(chunks),
        kind=one([*KINDS].index(kind)), microbatches=one(NUM_MICROBATCHES), point=one(0),  # type: ignore[arg-type]
        sharding=one(0), shards=one(0),
    )  # fmt: skip
    return float(evaluate_strategies(table, [variant(graph)], cluster).steps.step_s[0])


@pytest.mark.parametrize("compiler", ["eager", "compiled"])
def test_stages_send_the_hidden_state_once_however_kernels_are_fused(
    gpt2: Graph, compiler: Compiler
) -> None:
    costs = variant(gpt2, compiler).costs
    between_layers = costs.boundary_bytes[0, 3:-3]
    np.testing.assert_allclose(between_layers, SEQ * HIDDEN * WIDTH, rtol=0.01)


def test_interleaved_stages_hide_what_they_send_behind_other_chunks(gpt2: Graph) -> None:
    instant, slow = 1e15, 5e9
    hidden, paid = (
        step_s(gpt2, "interleaved", 3, fabric(slow, overlaps_hops=overlaps))
        for overlaps in (True, False)
    )
    free = step_s(gpt2, "interleaved", 3, fabric(instant, overlaps_hops=False))
    assert hidden == pytest.approx(free, rel=0.01)
    assert paid > 1.02 * hidden


def test_what_takes_longer_than_a_chunk_sets_the_pace(gpt2: Graph) -> None:
    slow, slower = (
        step_s(gpt2, "interleaved", 3, fabric(rate, overlaps_hops=True)) for rate in (2e7, 1e7)
    )
    assert slower == pytest.approx(2.0 * slow, rel=0.05)


def test_plain_1f1b_waits_for_its_messages(gpt2: Graph) -> None:
    one, other = (
        step_s(gpt2, "1f1b", 1, fabric(5e9, overlaps_hops=overlaps)) for overlaps in (True, False)
    )
    assert one == other
