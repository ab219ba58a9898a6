"""An optimizer on the host: what it frees, what it costs, and when it is searched."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.parallelism.stated_of_tests import Found, evaluate_blocks, evaluate_stated, searched

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import DoesNotFitError, InvalidInputError, MissingFactError
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.evaluation import StrategyEvaluation, weighed_strategies
from paceline.parallelism.fixed_strategy import evaluated_steps, variant_of
from paceline.parallelism.memory.memory_fit import quantile_bytes
from paceline.parallelism.memory.sharded_memory import FSDP_BLOCKS
from paceline.parallelism.memory.training_state import Part, TrainingState
from paceline.parallelism.offload import (
    Host,
    host_bytes,
    host_s,
    known_host,
    update_bytes_per_s,
)
from paceline.parallelism.search import (
    SearchSpace,
    enumerate_strategies,
    prepare_search,
)
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob, fabric_of
from paceline.prediction.devices import DeviceTable

#: Bytes per parameter of 16-bit weights with FP32 masters under Adam.
SENT, KEPT, REDUCED = 2.0, 12.0, 4.0
HOST = Host(link_bytes_per_s=50e9, memory_bytes=1e12, update_bytes_per_s=30e9)
#: What Adam then reads and writes of main memory: states twice, gradients, new weights.
MOVED = 2 * KEPT + REDUCED + SENT


@cache
def cluster() -> Cluster:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    return Cluster(
        device=find_device(catalog, "H100 SXM5 80GB"), devices_per_node=8,
        device_link=links["dgx-h100-nvls"], node_link=links["dgx-h100-ib"],
        host_link=links["pcie5-x16"], host_memory_bytes=2e12,
    )  # fmt: skip


def stated(text: str, on: Cluster | None = None) -> Found:
    graph = load_workload("gpt2").passes[0].graph
    return evaluate_blocks(
        TracedJob(
            graph=graph,
            configuration=Configuration(training_format="half-weights"),
            cluster=on or cluster(),
            seq=1024,
        ),
        Strategy.parse(text),
        global_batch=64,
    )


@pytest.mark.parametrize("text", ["dp1", "dp8+zero2", "dp2.fsdp4", "pp4.dp2@1f1b/mb8", "dp4.tp2"])
def test_it_frees_memory_and_costs_time(text: str) -> None:
    kept, moved = stated(text), stated(f"{text}+offload")
    assert moved.memory_bytes < kept.memory_bytes
    assert moved.step_s > kept.step_s
    assert moved.exposed_s - kept.exposed_s == pytest.approx(moved.step_s - kept.step_s, rel=0.1)
    assert str(moved.strategy) == f"{text}+offload"


def test_one_rank_frees_the_optimizer_states_and_waits_for_link_and_host() -> None:
    """12 bytes a parameter; the host is slower than the link, and gradients hide in backward."""
    kept, moved = stated("dp1"), stated("dp1+offload")
    parameters = load_workload("gpt2").num_parameters
    freed = kept.memory_bytes - moved.memory_bytes
    assert freed == pytest.approx(12 * parameters, rel=0.15)
    waits = moved.step_s - kept.step_s
    per_parameter = 2 * 12 + 4 + 2
    rate = update_bytes_per_s(cluster().device, cluster().num_vcpus)
    assert waits == pytest.approx(parameters * per_parameter / rate, rel=0.1)


def test_ranks_that_share_a_host_share_its_speed_unless_they_split_the_work() -> None:
    whole, split = stated("dp8+offload"), stated("dp8+zero2+offload")
    moved_bytes = 30 * load_workload("gpt2").num_parameters
    rate = update_bytes_per_s(cluster().device, cluster().num_vcpus)
    assert whole.step_s - split.step_s > 6.5 * moved_bytes / rate


def state_of(parameters: float) -> TrainingState:
    """So many parameters, all of them trained."""
    values = np.zeros(len(Part))
    values[[Part.PARAMETERS, Part.TRAINED]] = parameters
    values[[Part.WEIGHT, Part.GATHERED, Part.RENEWED]] = SENT * parameters
    values[[Part.GRADIENT, Part.REDUCED]] = REDUCED * parameters
    values[Part.OPTIMIZER] = KEPT * parameters
    return TrainingState(values)


@pytest.mark.parametrize("device", ["V100 SXM2 32GB", "A100 SXM4 80GB", "H100 SXM5 80GB", "GH200"])
def test_a_host_of_more_processors_updates_as_much_faster(device: str) -> None:
    inside = find_device(load_catalog(), device)
    few, many = (update_bytes_per_s(inside, threads) for threads in (24, 96))
    assert many == pytest.approx(4 * few)


def test_hosts_update_what_is_published() -> None:
    """10 billion parameters in 2.57 s on a DGX-2 (Ren et al. 2021, table 4, recalled)."""
    dgx2 = find_device(load_catalog(), "V100 SXM3 32GB")
    assert 28 * 10e9 / update_bytes_per_s(dgx2, 96) == pytest.approx(2.57, rel=0.15)


def test_hosts_of_later_devices_are_faster() -> None:
    catalog, names = load_catalog(), ("V100 SXM2 32GB", "H200 SXM", "GH200")
    rates = [update_bytes_per_s(find_device(catalog, name), 64) for name in names]
    assert rates == sorted(rates)


@given(parameters=st.floats(1e6, 1e11), backward=st.floats(0.0, 10.0), sharing=st.integers(1, 16))
def test_a_faster_link_or_host_never_costs_more(parameters, backward, sharing) -> None:
    updated = state_of(parameters)

    def seconds(host: Host) -> float:
        return float(host_s(updated, np.array(backward), sharing, host))

    usual = seconds(HOST)
    assert seconds(replace(HOST, link_bytes_per_s=100e9)) <= usual
    assert seconds(replace(HOST, update_bytes_per_s=60e9)) <= usual
    update_s = MOVED * parameters * sharing / HOST.update_bytes_per_s
    assert usual >= update_s * (1 - 1e-12)
    at_once, update_only, link_only = (
        seconds(replace(HOST, **limits))
        for limits in (
            {"link_bytes_per_s": np.inf, "update_bytes_per_s": np.inf},
            {"link_bytes_per_s": np.inf},
            {"update_bytes_per_s": np.inf},
        )
    )
    assert at_once == 0.0
    assert update_only == pytest.approx(MOVED * parameters * sharing / HOST.update_bytes_per_s)
    down_s = max(parameters * REDUCED / HOST.link_bytes_per_s - backward, 0.0)
    up_s = parameters * SENT / HOST.link_bytes_per_s
    assert link_only == pytest.approx(down_s + up_s)
    assert usual == pytest.approx(down_s + max(update_only, up_s))
    assert host_bytes(updated, sharing) == pytest.approx((KEPT + REDUCED) * parameters * sharing)


def test_devices_keep_weights_and_gradients() -> None:
    whole, left = (stated(text).memory_bytes for text in ("dp2.tp2", "dp2.tp2+offload"))
    parameters = load_workload("gpt2").num_parameters
    assert whole - left == pytest.approx(KEPT * parameters / 2, rel=0.15)


def test_a_host_without_facts_or_room_is_refused() -> None:
    with pytest.raises(MissingFactError, match="main memory of these machines is not known"):
        stated("dp8+offload", replace(cluster(), host_memory_bytes=None))
    with pytest.raises(MissingFactError, match="host link"):
        stated("dp8+offload", replace(cluster(), host_link=None))
    with pytest.raises(DoesNotFitError, match=r"of main memory; it has 4\.00 GB") as caught:
        stated("dp8+offload", replace(cluster(), host_memory_bytes=4e9))
    assert "zero2" in caught.value.hint
    with pytest.raises(InvalidInputError, match="all-reduced"):
        Strategy.parse("dp8+single-process+offload")


def test_llama_of_70_billion_on_eight_devices_and_their_host() -> None:
    """A device has an eighth of weights and gradients, and what FSDP has whole at a moment.

    That is the weights of its root (embedding and head, 2.1 GB each) from first to last and of
    two blocks (1.7 GB each), and in backward the gradients of the block that runs and of the head,
    which the root reduces last, with those of the embedding. These come when no block runs.
    Gradients come while what layers keep goes, 8,192 numbers of each of 8,192 tokens: the two are
    never whole at once. The host has all moments, masters and gradients.
    """
    workload, text = load_workload("llama-3-70b"), "dp8+zero3+recompute-block+offload"
    parameters, kept_bytes = workload.num_parameters, 80 * 8192 * 8192 * SENT
    table = 128256 * 8192
    block = (parameters - 2 * table) / 80
    shard_bytes = parameters * (SENT + REDUCED) / 8
    whole_bytes = SENT * 2 * (table + block) + REDUCED * (table + block)
    state_bytes = shard_bytes + parameters * SENT * 2 / FSDP_BLOCKS

    def on_host(num_bytes: float) -> StrategyEvaluation:
        job = TracedJob(
            graph=workload.passes[0].graph, configuration=Configuration(),
            cluster=replace(cluster(), host_memory_bytes=num_bytes), seq=8192,
        )  # fmt: skip
        return evaluated_steps(job, Strategy.parse(text), microbatches=[1])

    needed_bytes = (KEPT + REDUCED) * parameters
    found = on_host(1.001 * needed_bytes)
    assert found.state_bytes[0] == pytest.approx(state_bytes, rel=1e-9)
    there_bytes = shard_bytes + whole_bytes
    assert 0.97 * there_bytes < found.allocated_bytes[0] < there_bytes + kept_bytes
    with pytest.raises(DoesNotFitError, match="main memory"):
        on_host(0.999 * needed_bytes)


@pytest.mark.parametrize(
    ("name", "head", "block"),
    [("llama-3-8b", 128256 * 4096, 218_112_000), ("gpt2", 50257 * 768, 7_087_872)],
)
def test_the_root_leaves_gradients_whole_as_they_come(name, head, block) -> None:
    """Those of the head beside the block that runs; those of an embedding when none runs.

    The head of GPT-2 is its embedding, whose gradients come with the head.
    """
    workload, strategy = load_workload(name), Strategy.parse("dp8+zero3+recompute-block")
    job = TracedJob(
        graph=workload.passes[0].graph, configuration=Configuration(), cluster=cluster(), seq=1024
    )
    gathered = variant_of(job, strategy, [1]).costs.moments.gathered
    each, root = gathered.gradients * workload.num_parameters
    runs = np.isclose(each, block, rtol=1e-4)
    assert runs.any()
    assert root[runs] == pytest.approx(head + block, rel=1e-3)


@cache
def space(capacity_bytes: float, *, has_host: bool, host_memory_bytes: float = 2e12) -> SearchSpace:
    on = cluster()
    return prepare_search(
        load_workload("gpt2").passes[0].graph, Configuration(),
        DeviceTable.from_devices([on.device]), fabric_of(on, Configuration()), seq=1024,
        capacity_bytes=capacity_bytes, microbatches=(1, 4), max_tensor_degree=1,
        host=known_host(replace(on, host_memory_bytes=host_memory_bytes)) if has_host else None,
    )  # fmt: skip


def best(on: SearchSpace) -> tuple[Found, ...]:
    return searched(on, num_devices=1, global_batch=16)


@cache
def lean_bytes() -> float:
    """Too little for the leanest strategy that keeps its optimizer, enough for one that not."""
    on = space(80e9, has_host=True)
    table = enumerate_strategies(on, num_devices=1, global_batch=16)
    kept, moved = (
        quantile_bytes(memory.process_mid_bytes, memory.process_high_bytes).min()
        for memory in (
            weighed_strategies(table, on.variants, on.fabric, has_optimizer=has).memory
            for has in (True, False)
        )
    )
    return float(kept + moved) / 2


def test_it_is_searched_only_where_nothing_else_fits() -> None:
    roomy, lean = 80e9, lean_bytes()
    assert not any(one.strategy.offloads_optimizer for one in best(space(roomy, has_host=True)))
    with pytest.raises(DoesNotFitError):
        best(space(lean, has_host=False))
    found = best(space(lean, has_host=True))
    assert found
    for one in found:
        assert one.strategy.offloads_optimizer
        assert one.needed_bytes() <= lean
    with pytest.raises(DoesNotFitError):
        best(space(lean, has_host=True, host_memory_bytes=1e9))


def test_what_is_searched_is_what_is_stated() -> None:
    found = best(space(lean_bytes(), has_host=True))[0]
    assert found.strategy.offloads_optimizer
    graph = load_workload("gpt2").passes[0].graph
    alone = evaluate_stated(
        TracedJob(graph=graph, configuration=Configuration(), cluster=cluster(), seq=1024),
        found.strategy,
        global_batch=16,
    )
    assert alone.step_s == pytest.approx(found.step_s, rel=1e-9)
    assert alone.memory_bytes == pytest.approx(found.memory_bytes, rel=1e-9)


def test_every_row_of_the_space_is_a_strategy_without_offload() -> None:
    on = space(80e9, has_host=True)
    table = enumerate_strategies(on, num_devices=1, global_batch=16)
    rows = [table.strategy(row, on.kinds) for row in range(len(table))]
    assert not any(one.offloads_optimizer for one in rows)
