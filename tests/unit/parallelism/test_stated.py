from __future__ import annotations

from dataclasses import replace

import pytest
from tests.tolerance import ASKED_TOGETHER
from tests.unit.parallelism.stated_of_tests import Found, evaluate_blocks, evaluate_stated, searched

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import DoesNotFitError, InvalidInputError, MissingFactError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.collectives.communicators import communicator_bytes
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.collectives.times import RankGroup, send_recv_s
from paceline.parallelism.fixed_strategy import at_count
from paceline.parallelism.search import prepare_search
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob, fabric_of
from paceline.planning.decisions.curve import ScalingCurve
from paceline.planning.decisions.device_counts import BatchRule, scaling_curve
from paceline.prediction.devices import DeviceTable
from paceline.simulation.job import Job


def cluster(device: str = "H100 SXM5 80GB") -> Cluster:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    return Cluster(
        device=find_device(catalog, device),
        devices_per_node=8,
        device_link=links["dgx-h100-nvls"],
        node_link=links["dgx-h100-ib"],
    )


@pytest.fixture(scope="module")
def gpt2() -> Graph:
    return load_workload("gpt2").passes[0].graph


@pytest.mark.kernels
def test_a_stated_strategy_costs_what_the_search_says(gpt2) -> None:
    space = prepare_search(
        gpt2,
        Configuration(training_format="half-weights"),
        DeviceTable.from_devices([cluster().device]),
        fabric_of(cluster(), Configuration()),
        seq=1024,
        capacity_bytes=cluster().capacity_bytes,
        microbatches=(1, 4),
    )
    for found in searched(space, num_devices=16, global_batch=64, num_best=40):
        stated = evaluate_blocks(
            TracedJob(
                graph=gpt2,
                configuration=Configuration(training_format="half-weights"),
                cluster=cluster(),
                seq=1024,
            ),
            found.strategy,
            global_batch=64,
        )
        assert stated.step_s == pytest.approx(found.step_s, rel=ASKED_TOGETHER)
        assert stated.memory_bytes == pytest.approx(found.memory_bytes, rel=ASKED_TOGETHER)
        assert stated.microbatch == found.microbatch


@pytest.mark.parametrize(
    "missing",
    [
        {"memory_bytes": None, "usable_memory_bytes": None},
        {"memory_bytes_per_s": None},
    ],
)
def test_a_device_with_a_fact_missing_is_not_taken_for_one_without_limits(gpt2, missing) -> None:
    whole = cluster()
    lacking = replace(whole, device=replace(whole.device, **missing))
    with pytest.raises(MissingFactError, match=whole.device.name):
        evaluate_stated(
            TracedJob(graph=gpt2, configuration=Configuration(), cluster=lacking, seq=1024),
            Strategy.parse("dp8"),
            global_batch=64,
        )


def test_gradients_that_meet_in_one_place_are_never_faster(gpt2) -> None:
    def step_s(text: str) -> float:
        strategy = Strategy.parse(text)
        return evaluate_stated(
            TracedJob(graph=gpt2, configuration=Configuration(), cluster=cluster(), seq=1024),
            strategy,
            global_batch=64,
        ).step_s

    assert step_s("dp8") < step_s("dp8+parameter-server")
    assert step_s("dp8") < step_s("dp8+single-process")


def test_a_parameter_server_hands_out_parameters_as_they_are_stored(gpt2) -> None:
    whole, autocast = cluster(), Configuration(precision="bf16", training_format="autocast")
    found = evaluate_stated(
        TracedJob(graph=gpt2, configuration=autocast, cluster=whole, seq=1024),
        Strategy.parse("dp8+parameter-server"),
        global_batch=64,
    )
    link = LinkTable.from_links([whole.device_link])
    stored_bytes = 4.0 * 124_439_808
    one_way_s = send_recv_s(stored_bytes, RankGroup.of(2.0, 2.0, link, link))
    assert found.exposed_s > 8 * 2 * float(one_way_s[0])


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("tp8", 8, "tp8"),
        ("tp8", 32, "dp4.tp8"),
        ("pp2.tp4@1f1b/mb8", 32, "pp2.dp4.tp4@1f1b/mb8"),
        ("pp2.dp2.tp4@1f1b/mb8+zero1", 8, "pp2.tp4@1f1b/mb8"),
        ("cp8+zero1", 8, "cp8+zero1"),
        ("ep4.tp2+zero1", 32, "dp4.ep4.tp2+zero1"),
        ("dp4", 1, "dp1"),
    ],
)
def test_more_devices_are_more_replicas(text, count, expected) -> None:
    found = at_count(Strategy.parse(text), count)
    assert str(found) == expected
    assert found.num_ranks == count


def test_replicas_must_fill_the_devices() -> None:
    with pytest.raises(InvalidInputError, match="12 devices are no multiple of the 8 ranks") as e:
        at_count(Strategy.parse("tp8"), 12)
    assert "16" in e.value.hint


def curve_of(text: str, counts: tuple[int, ...], *, on: Cluster, global_batch: int) -> ScalingCurve:
    return scaling_curve(
        Job(workload=load_workload("gpt2")),
        on,
        counts=counts,
        batch=BatchRule(global_batch=global_batch),
        strategy=Strategy.parse(text),
    )


def test_a_curve_of_one_strategy_names_the_counts_it_cannot_use(gpt2) -> None:
    curve = curve_of("pp2.tp4@1f1b/mb4", (4, 8, 12, 16), on=cluster(), global_batch=64)
    assert [p.strategy for p in curve.points] == ["pp2.tp4@1f1b/mb4", "pp2.dp2.tp4@1f1b/mb4"]
    assert [count for count, _ in curve.rejected] == [4, 12]


def test_what_cannot_run_anywhere_says_why(gpt2) -> None:
    def curve(text: str, on: Cluster) -> ScalingCurve:
        return curve_of(text, (16,), on=on, global_batch=60)

    with pytest.raises(InvalidInputError, match="does not divide into 16 replicas"):
        curve("dp8", cluster())
    with pytest.raises(InvalidInputError, match="does not divide 12 attention heads"):
        curve("dp2.tp8/mb2", cluster())
    with pytest.raises(InvalidInputError, match="needs a link between nodes"):
        curve("dp4.tp4/mb3", replace(cluster(), node_link=None))
    with pytest.raises(DoesNotFitError, match="per device; GeForce GTX 1060 3GB has"):
        curve("dp4.tp4", cluster("GTX 1060 3GB"))


def evaluated(name: str, text: str, *, seq: float, global_batch: int) -> Found:
    roomy = replace(
        cluster(), device=replace(cluster().device, memory_bytes=1e13, usable_memory_bytes=None)
    )
    return evaluate_stated(
        TracedJob(
            graph=load_workload(name).passes[0].graph,
            configuration=Configuration(),
            cluster=roomy,
            seq=seq,
        ),
        Strategy.parse(text),
        global_batch=global_batch,
    )


def test_context_ranks_take_long_sequences_where_replicas_cannot() -> None:
    """With one sequence in all, eight ranks share its work; the state is split among them."""
    one, ring = (
        evaluated("llama-3-8b", text, seq=32768, global_batch=1) for text in ("dp1", "cp8+zero1")
    )
    assert 1 / 8 < ring.step_s / one.step_s < 1 / 5
    assert ring.memory_bytes < one.memory_bytes / 3


def test_expert_ranks_hold_less_than_replicas_and_send_tokens() -> None:
    """Eight ranks have batches of their own either way; experts are held once instead of often."""
    replicas, experts = (
        evaluated("mixtral-8x7b", text, seq=4096, global_batch=8) for text in ("dp8", "ep8")
    )
    assert experts.memory_bytes < replicas.memory_bytes / 4
    assert replicas.tensor_s == 0.0
    assert experts.tensor_s > 0.0
    assert experts.exposed_s < replicas.exposed_s


def test_sequences_must_divide_into_first_and_last_pieces() -> None:
    with pytest.raises(InvalidInputError, match="into 16 pieces; 1000 does not divide") as caught:
        evaluated("gpt2", "cp8", seq=1000, global_batch=8)
    assert "multiple of 16" in caught.value.hint


def test_hybrid_sharding_is_full_sharding_without_replicas() -> None:
    one, same = (
        evaluated("gpt2", text, seq=1024, global_batch=64) for text in ("fsdp8", "dp8+zero3")
    )
    assert one.step_s == pytest.approx(same.step_s, rel=1e-12)
    assert one.memory_bytes == same.memory_bytes


def test_hybrid_sharding_keeps_gathers_inside_a_node() -> None:
    """Eight nodes: state is that of one node's shards, and less waits for the network.

    Replicas on other nodes exchange by a communicator of their own: two neighbours, 24 channels.
    """
    plain, hybrid, node = (
        evaluated("llama-3-8b", text, seq=4096, global_batch=batch)
        for text, batch in (("dp64+zero3", 64), ("dp8.fsdp8", 64), ("fsdp8", 8))
    )
    joined_bytes = float(communicator_bytes(8, 24))
    assert hybrid.memory_bytes - joined_bytes == pytest.approx(node.memory_bytes, rel=1e-12)
    assert hybrid.memory_bytes > plain.memory_bytes
    assert node.exposed_s < hybrid.exposed_s < plain.exposed_s


def test_what_is_split_cannot_be_split_again() -> None:
    with pytest.raises(InvalidInputError, match="splits all state already"):
        Strategy.parse("dp2.fsdp4+zero1")


def test_adapters_need_no_gradients_of_what_they_stand_beside() -> None:
    """A third of the arithmetic goes (products that make gradients of weights), and all state."""
    roomy = replace(
        cluster(), device=replace(cluster().device, memory_bytes=1e13, usable_memory_bytes=None)
    )
    graph = load_workload("llama-3-8b").passes[0].graph
    plain, adapted = (
        evaluate_stated(
            TracedJob(graph=graph, configuration=configuration, cluster=roomy, seq=4096),
            Strategy.parse("dp4.tp2/mb2"),
            global_batch=8,
        )
        for configuration in (
            Configuration(precision="bf16"),
            Configuration(precision="bf16", lora_rank=16, lora_modules=("*.q", "*.v", "*q_proj")),
        )
    )
    assert 0.55 < adapted.step_s / plain.step_s < 0.8
    assert adapted.memory_bytes < plain.memory_bytes / 2
    assert adapted.exposed_s < plain.exposed_s


@pytest.mark.parametrize(
    ("model", "text", "said", "hint"),
    [
        ("gpt2", "pp16@1f1b/mb16", "16 pipeline stages are more than the model's 12 layers", "12"),
        ("gpt2", "pp8@interleaved2/mb8", "16 pipeline stages are more than", "at most 12"),
        ("gpt2", "tp5", "does not divide 12 attention heads", "divides"),
        ("gpt2", "ep4", "no experts in gpt2", "use `dp`"),
        ("resnet50", "cp4", "cannot split resnet50.*it has no sequence", "`dp`"),
        ("gpt2", "cp3", "cuts each sequence into 6 pieces", "multiple of 6"),
    ],
)
def test_what_a_model_cannot_be_cut_into_says_why(model, text, said, hint) -> None:
    strategy = Strategy.parse(text)
    items = 4 * strategy.num_batches * strategy.schedule.num_microbatches
    with pytest.raises(InvalidInputError, match=said) as caught:
        evaluated(model, text, seq=1024, global_batch=items)
    assert hint in caught.value.hint


def test_stages_of_one_pipeline_rank_have_no_order_to_split_backward_in() -> None:
    for text in ("dp4@zbh1/mb4", "pp1@zbh1/mb4", "tp2@zbh1/mb4"):
        with pytest.raises(InvalidInputError, match="no `pp` axis"):
            Strategy.parse(text)
