"""One strategy on one cluster has one number, whichever road leads to it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.tolerance import ASKED_TOGETHER
from tests.unit.parallelism.stated_of_tests import evaluate_blocks, evaluate_stated, searched

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Checkpointing, Compiler, Configuration, KeptFormat
from paceline.model.graph.workload import Workload
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.fixed_strategy import stated_traits
from paceline.parallelism.search import prepare_search
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.planning.decisions.curve import ScalingPoint
from paceline.planning.decisions.device_counts import BatchRule, scaling_curve
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.prediction.uncertainty.posterior_correction import pass_traits
from paceline.simulation.job import Job

HOW = Configuration()
#: Device, link inside a node of eight, link between nodes.
CLUSTERS = {
    "PCIe and Ethernet": ("L4", "ws-pcie4", "eth-10"),
    "NVLink and InfiniBand": ("H100 SXM5 80GB", "dgx-h100-nvls", "dgx-h100-ib"),
    "slice of a torus": ("TPU v4", "ici-v4", "ici-v4"),
    "NVLink and Ethernet": ("A100 SXM4 80GB", "dgx-a100", "eth-10"),
}


def cluster(name: str) -> Cluster:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    device, inside, between = CLUSTERS[name]
    return Cluster(
        device=find_device(catalog, device),
        devices_per_node=8,
        device_link=links[inside],
        node_link=links[between],
    )


def scaled(job: Workload, on: Cluster, count: int, items: int, strategy=None) -> ScalingPoint:
    found = scaling_curve(
        Job(workload=job),
        on,
        counts=(count,),
        batch=BatchRule(global_batch=items),
        strategy=strategy,
    )
    return found.points[0]


def traced(job: Workload, on: Cluster) -> TracedJob:
    return TracedJob(graph=job.passes[0].graph, configuration=HOW, cluster=on, seq=job.default_seq)


def test_fully_sharded_is_one_thing_by_two_names() -> None:
    job, on = load_workload("bert-base"), cluster("NVLink and InfiniBand")
    names = (Strategy.parse(text) for text in ("fsdp8", "dp8+zero3"))
    one, other = (scaled(job, on, 8, 64, name) for name in names)
    assert one.step_s == other.step_s
    assert one.memory_bytes == other.memory_bytes


@pytest.mark.kernels
@pytest.mark.parametrize("model", ["resnet50", "gpt2", "dcgan", "ppo"])
def test_a_strategy_of_one_device_is_the_prediction(model: str) -> None:
    """Of all passes of a step, each as often as it runs."""
    job, on = load_workload(model), cluster("NVLink and InfiniBand")
    points = Points(batch=np.array([4.0]), seq=np.array([float(job.default_seq)]))
    table = DeviceTable.from_devices([on.device])
    expected = sum(
        one.repeats * float(predict_pass(lower(one.graph, HOW), table, points).mid_s[0, 0])
        for one in job.passes
        if one.runs_on == "device"
    )
    for strategy in (None, Strategy()):
        assert scaled(job, on, 1, 4, strategy).step_s == pytest.approx(expected, rel=ASKED_TOGETHER)


@pytest.mark.parametrize(("model", "batch"), [("gpt2", 64), ("bert-large", 512), ("llama-3-8b", 1)])
def test_microbatches_cost_as_much_block_by_block(model: str, batch: int) -> None:
    """Where the device sets the pace, only the last one updates, at the rate of its kernels."""
    job, on = load_workload(model), cluster("NVLink and InfiniBand")
    on = replace(on, device=replace(on.device, memory_bytes=10**13, usable_memory_bytes=None))
    many = Strategy.parse("dp1/mb16")
    whole, by_blocks = (
        evaluate(traced(job, on), many, global_batch=16 * batch).step_s
        for evaluate in (evaluate_stated, evaluate_blocks)
    )
    assert whole == pytest.approx(by_blocks, rel=0.01)


def test_several_passes_cannot_be_split() -> None:
    job, on = load_workload("dcgan"), cluster("NVLink and InfiniBand")
    with pytest.raises(InvalidInputError, match="several"):
        scaled(job, on, 8, 64, Strategy.parse("dp4.tp2"))


def test_a_smaller_update_and_a_scattered_one_are_counted_once_a_step() -> None:
    """Microbatches before the last neither update nor, in plain data parallel, exchange."""
    job, on = load_workload("gpt2"), cluster("NVLink and Ethernet")
    points = Points(batch=np.array([4.0]), seq=np.array([1024.0]))
    alone = predict_pass(
        lower(job.passes[0].graph, HOW), DeviceTable.from_devices([on.device]), points
    )
    update_s = float(alone.update_s[0, 0])
    once, four = (
        scaled(job, on, 1, 4 * count, Strategy.parse(text)).step_s
        for text, count in (("dp1", 1), ("dp1/mb4", 4))
    )
    assert four == pytest.approx(4 * once - 3 * update_s, rel=1e-9)


def memory_by_both_roads(
    job: Workload, how: Configuration, strategy: Strategy, batch: int
) -> list[float]:
    """As replicas, whose memory is that of the whole pass, and block by block."""
    on = cluster("NVLink and InfiniBand")
    on = replace(on, device=replace(on.device, memory_bytes=10**13, usable_memory_bytes=None))
    items = batch * strategy.num_parts
    return [
        evaluate(
            replace(traced(job, on), configuration=how), strategy, global_batch=items
        ).memory_bytes
        for evaluate in (evaluate_stated, evaluate_blocks)
    ]


@cache
def updated_by(model: str, optimizer: str) -> Workload:
    """Traced once, for all that is asked of it."""
    return load_workload(model, optimizer=optimizer)


@pytest.mark.parametrize("checkpointing", ["none", "block"])
@pytest.mark.parametrize("text", ["dp1", "dp1/mb4"])
@pytest.mark.parametrize(
    ("model", "batch", "optimizer"),
    [
        ("bert-base", 1, "adamw"), ("bert-base", 32, "adamw"), ("gpt2", 1, "adamw"),
        ("gpt2", 16, "adamw"), ("resnet50", 8, "sgd"), ("resnet50", 128, "adamw"),
        ("llama-3.2-1b", 1, "adamw"), ("llama-3.2-1b", 4, "adamw"), ("llama-3-8b", 1, "adamw"),
    ],
)  # fmt: skip
def test_memory_by_blocks_is_that_of_the_pass(
    model: str, batch: int, optimizer: str, text: str, checkpointing: Checkpointing
) -> None:
    """Gradients come as backward goes; those of later microbatches are there already."""
    job, how = updated_by(model, optimizer), Configuration(checkpointing=checkpointing)
    by_pass, by_blocks = memory_by_both_roads(job, how, Strategy.parse(text), batch)
    assert by_blocks == pytest.approx(by_pass, rel=0.03)


@pytest.mark.parametrize("kept", ["autocast", "half-weights", "pure"])
def test_memory_by_blocks_is_that_of_the_pass_in_every_format(kept: KeptFormat) -> None:
    how = Configuration(training_format=kept)
    by_pass, by_blocks = memory_by_both_roads(load_workload("gpt2"), how, Strategy(), 4)
    assert by_blocks == pytest.approx(by_pass, rel=0.03)


@pytest.mark.parametrize("text", ["dp8", "dp8+zero1", "dp8+zero2", "dp8+zero3", "dp8/mb4+zero2"])
@pytest.mark.parametrize("compiler", ["eager", "compiled"])
@pytest.mark.parametrize(("model", "batch"), [("bert-base", 8), ("gpt2", 8), ("llama-3-8b", 1)])
def test_memory_of_shards_by_blocks_is_that_of_the_pass(
    model: str, batch: int, compiler: Compiler, text: str
) -> None:
    """What ranks split moves the peak, from where gradients are whole to where they are not."""
    how = Configuration(compiler=compiler)
    by_pass, by_blocks = memory_by_both_roads(
        load_workload(model), how, Strategy.parse(text), batch
    )
    assert by_blocks == pytest.approx(by_pass, rel=0.03)


@pytest.mark.parametrize("model", ["resnet50", "bert-base"])
def test_gradients_that_are_kept_between_steps_are_there_by_blocks_too(model: str) -> None:
    """PyTorch before 2.0 zeroed them in place: one microbatch needs what several do."""
    job, how = load_workload(model), Configuration(accumulates=True)
    once, again = (
        memory_by_both_roads(job, how, Strategy.parse(text), 32) for text in ("dp1", "dp1/mb4")
    )
    assert once == pytest.approx(again, rel=0.003)
    assert once[1] == pytest.approx(once[0], rel=0.003)


@pytest.mark.parametrize(
    "how",
    [HOW, Configuration(compiler="compiled"), Configuration(checkpointing="block"),
     Configuration(training_format="pure")],
)  # fmt: skip
@pytest.mark.parametrize("model", ["resnet50", "bert-base", "gpt2"])
def test_measurements_know_a_step_by_the_same_whole_and_block_by_block(
    model: str, how: Configuration
) -> None:
    """What a step of one device taught counts for replicas, and for their ranks elsewhere."""
    job = replace(traced(load_workload(model), cluster("NVLink and InfiniBand")), configuration=how)
    whole = pass_traits(
        lower(job.graph, how), job.cluster.device_table, Points.of([1, 4], seq=job.seq),
        builtin_calibration(),
    )  # fmt: skip
    assert stated_traits(job, Strategy.parse("dp8"), [1, 4]) == whole


@pytest.mark.kernels
def test_measurements_know_what_was_searched_as_what_is_stated() -> None:
    job = traced(load_workload("gpt2"), cluster("NVLink and InfiniBand"))
    space = prepare_search(
        job.graph, job.configuration, job.cluster.device_table, job.fabric, seq=job.seq,
        capacity_bytes=job.cluster.capacity_bytes, microbatches=[1, 2, 4],
    )  # fmt: skip
    every = searched(space, num_devices=8, global_batch=16, num_best=200)
    assert {one.strategy.size("tp") for one in every} >= {1, 2, 4}
    for found in every[::10]:
        (stated,) = stated_traits(job, found.strategy, [found.microbatch])
        assert space.traits(found.strategy, found.microbatch) == stated
