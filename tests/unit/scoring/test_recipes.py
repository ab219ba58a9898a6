"""Rows whose devices share the model are costed as the strategy that they state."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.unit.parallelism.stated_of_tests import evaluate_stated

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.naming.networks import links_of_row, switched_link
from paceline.scoring.naming.recipes import degrees_of, recipe_of, strategy_of
from paceline.scoring.naming.source_levels import as_published
from paceline.scoring.naming.stated_degrees import stated_degrees
from paceline.scoring.readings import read_job
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows
from paceline.scoring.workloads import WorkloadKey, cached_workload

H100 = "H100 SXM5 80GB"
BASE = {
    "model": "llama3_8b", "task": "train", "framework": "PyTorch 2.4", "precision": "bf16",
    "gpu": "H100-SXM5-80GB", "n_gpus": "8", "n_nodes": "1", "interconnect": "NVSwitch",
    "parallelism": "TP=2 PP=2", "batch_per_gpu": "1", "global_batch": "16", "seq_len": "2048",
    "unit": "tok/s",
}  # fmt: skip
MEGATRON = {"framework": "NeMo Megatron-Bridge 26.08"}


def answers(*changes: dict[str, str]):
    rows = [parse_row(BASE | change) for change in changes]
    return predict_rows(rows, catalog=load_catalog())


def strategy(**change: str) -> str:
    row = parse_row(BASE | {"batch_per_gpu": ""} | change)
    recipe = recipe_of(row, H100)
    has_adapters = "LoRA" in row.flags
    return str(strategy_of(row, degrees_of(row), recipe, has_adapters=has_adapters))


@pytest.mark.parametrize(
    ("parallelism", "n_gpus", "global_batch", "expected"),
    [
        ("TP=4 PP=16 CP=1 VP=4 EP=n/a", 256, 1536,
         "pp16.dp4.tp4@interleaved4/mb384+zero1+sp"),
        ("TP=1 PP=1 CP=1 VP=n/a EP=n/a FSDP=64", 64, 256, "dp64/mb4+zero3"),
        ("TP=8 PP=8 CP=2 VP=8 EP=n/a", 1024, 1536,
         "pp8.dp8.cp2.tp8@interleaved8/mb192+zero1+sp"),
        ("TP=1 PP=4 CP=1 VP=4 EP=64", 256, 4096, "pp4.ep64@interleaved4/mb64+zero1"),
        ("TP=2 PP=1 EP=64", 64, 512, "ep32.tp2/mb16+zero1+sp"),
    ],
)  # fmt: skip
def test_a_recipe_becomes_the_strategy_it_states(parallelism, n_gpus, global_batch, expected):
    counts = {"n_gpus": str(n_gpus), "global_batch": str(global_batch), "batch_per_gpu": "1"}
    assert strategy(**MEGATRON, **counts, parallelism=parallelism) == expected


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"parallelism": "TP=4 PP=1 EP=6", "n_gpus": "64"}, "do not make its 64 ranks"),
        ({"parallelism": "TP=3"}, "do not make its 8 ranks"),
        ({"parallelism": "TP=2 DP=2"}, "do not make its 8 ranks"),
        ({"parallelism": "TP=2 PP=2", "global_batch": "5", "batch_per_gpu": "1"}, "microbatches"),
        ({"parallelism": "TP=2", "global_batch": ""}, "no batch size"),
        ({"parallelism": "", "global_batch": "4"}, "share an item"),
        ({"parallelism": "DP=3"}, "are not its 8 devices"),
    ],
)
def test_degrees_that_do_not_go_together_say_so(change, reason):
    with pytest.raises(UnresolvedRowError, match=reason):
        strategy(**change)


@pytest.mark.parametrize(
    ("n_gpus", "global_batch", "grad_accum", "expected"),
    [
        (8, 8, 4, "dp2.tp4/mb4+sp"),
        (8, 8, 2, "dp4.tp2/mb2+sp"),
        (1024, 128, 1, "dp128.cp2.tp4+sp"),
        (8, 8, 1, "dp8"),
    ],
)
def test_batch_and_devices_tell_how_adapters_are_trained(
    n_gpus, global_batch, grad_accum, expected
):
    """The first three are the names of NVIDIA's configurations."""
    counts = {"n_gpus": n_gpus, "global_batch": global_batch, "grad_accum": grad_accum}
    told = {"framework": "NeMo", "compiler_flags": "LoRA", "parallelism": "tp up to 4, then cp"}
    assert strategy(**told, **{name: str(count) for name, count in counts.items()}) == expected


def test_a_row_has_what_the_recipe_of_its_release_says():
    def stated(model: str, device: str, **change: str) -> list[bool]:
        recipe = recipe_of(parse_row(BASE | {"model": model} | change), device)
        return ["tokens-once" in recipe.habits, "hidden" in recipe.habits]

    rack = "GB200 (per GPU)"
    old = {"framework": "NeMo Megatron-Bridge 25.09 NeMo Container", "precision": ""}
    new = {"framework": "NeMo Megatron-Bridge 26.06.01 NeMo Container", "precision": "MXFP8"}
    assert stated("DeepSeekV3 (w/o MTP)", rack, **old) == [True, False]
    assert stated("DeepSeekV3", rack, **new) == [True, True]
    assert stated("LLAMA3_8B", rack, **new) == [False, False]
    assert stated("DeepSeekV3", rack) == [False, False], "no recipe of NVIDIA's"


def test_a_stated_strategy_costs_what_it_costs_a_user_at_the_level_of_tables():
    """`paceline scale --strategy` asks the same on the same cluster."""
    (answer,) = answers({})
    catalog, row = load_catalog(), parse_row(BASE)
    device = find_device(catalog, H100)
    job = read_job(row)
    key = WorkloadKey(entry=job.entry, task="train", image_size=None, optimizer=None)
    on = Cluster(
        device=replace(device, memory_bytes=math.inf, usable_memory_bytes=None),
        devices_per_node=8,
        device_link=switched_link(catalog, device), node_link=None,
    )  # fmt: skip
    graph = cached_workload(key).passes[0].graph
    found = evaluate_stated(
        TracedJob(
            graph=graph, configuration=job.configuration, cluster=on, seq=2048,
            calibration=as_published(builtin_calibration()),
        ),
        Strategy.parse("pp2.dp2.tp2@1f1b/mb8"),
        global_batch=16,
    )  # fmt: skip
    assert answer.step_mid_s == pytest.approx(found.step_s)
    assert answer.memory_mid_bytes == pytest.approx(found.memory_mid_bytes)
    assert answer.memory_mid_bytes < answer.memory_high_bytes <= found.memory_bytes
    assert answer.throughput_mid == pytest.approx(16 * 2048 / found.step_s)


def test_more_ranks_of_a_model_hold_less_of_it():
    four, eight = answers({"n_gpus": "4"}, {"parallelism": "TP=4 PP=2"})
    assert eight.memory_mid_bytes < four.memory_mid_bytes
    assert four.memory_low_bytes < four.memory_mid_bytes < four.memory_high_bytes


def test_ranks_that_share_a_model_need_their_number():
    silent, one = answers({"n_gpus": ""}, {"n_gpus": "1"})
    assert silent.reason == one.reason
    assert "share the model" in silent.reason


def test_a_global_batch_says_how_many_microbatches_there_are():
    plain = {"parallelism": ""}
    stated, implied = answers(plain | {"grad_accum": "2"}, plain)
    assert stated == implied
    once, _ = answers(plain | {"global_batch": "8"}, plain)
    assert once.step_mid_s < implied.step_mid_s < 2.0 * once.step_mid_s
    assert implied.throughput_mid == pytest.approx(16 * 2048 / implied.step_mid_s)


def test_a_degree_of_one_is_none():
    plain, stated = answers({"parallelism": ""}, {"parallelism": "TP=1 PP=1 CP=1"})
    assert plain == stated


@pytest.mark.parametrize(
    "cell", ["TP=4 PP=2", "tp4, pp2", "tensor_parallel=4;pipeline_parallel=2", "PP 2 / TP: 4"]
)
def test_degrees_may_be_spelled_in_many_ways(cell):
    assert stated_degrees(cell) == stated_degrees("TP=4 PP=2")


def test_a_network_that_is_not_stated_is_that_of_the_vendors_system_and_said():
    nodes = {"n_gpus": "16", "n_nodes": "2", "parallelism": "", "batch_per_gpu": "1"}
    silent, stated = answers(nodes, nodes | {"interconnect": "NVSwitch + 8x IB NDR 400Gb/s"})
    assert silent.step_mid_s == stated.step_mid_s
    assert "network" in silent.note
    assert "network" not in stated.note
    assert silent.step_high_s > stated.step_high_s


def test_a_rack_is_one_node():
    catalog = load_catalog()
    row = parse_row(BASE | {"n_gpus": "64", "n_nodes": "16"})
    joined = links_of_row(catalog, find_device(catalog, "GB200 (per GPU)"), row)
    assert joined.devices_per_node == 4
    assert joined.links.device is not None
    assert joined.links.device.domain_devices == 72
    assert links_of_row(catalog, find_device(catalog, H100), row).devices_per_node == 4


@pytest.mark.parametrize(
    ("device", "beyond"), [("RTX A6000", "ws-pcie4"), ("GeForce RTX 2080 Ti", "host-staged")]
)
def test_a_bridge_joins_two_cards_and_more_talk_over_what_all_have(device, beyond):
    catalog = load_catalog()

    def joined(count: str) -> str:
        row = parse_row(BASE | {"n_gpus": count, "interconnect": "NVLink bridge (pairs)"})
        link = links_of_row(catalog, find_device(catalog, device), row).links.device
        assert link is not None
        return link.name

    assert "bridge" in joined("2")
    assert joined("4") == joined("8") == beyond
