"""What ranks hand to collectives is what the planner predicts, to the byte; what they hold, 2 %."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from exchanged import ExchangedBytes, exchanged_bytes
from mesh_ranks import start_ranks
from mesh_traced import BATCH, LENGTH, PICTURES, TOKENS, WIDTH

from paceline.catalog.lookup import find_device
from paceline.catalog.tables import shipped_catalog
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Owner
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.fixed_strategy import rows_of, variant_of
from paceline.parallelism.rank_memory import rank_memory
from paceline.parallelism.schedule.pipeline_timing import distinct_pipelines
from paceline.parallelism.split.tensor import split_tensor
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.parallelism.training_profile import find_training_profile

_MESHES = [
    "dp4", "fsdp4", "dp2.fsdp2/mb2", "tp2", "dp2.tp2/mb2", "pp2@1f1b/mb4", "pp2.dp2@1f1b/mb2",
    "fsdp2.tp2",
]  # fmt: skip
_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "send")


def _job(kind, strategy, gives="outputs"):
    catalog = shipped_catalog()
    link = catalog.links[0]
    cluster = Cluster(
        device=find_device(catalog, "H100 SXM5 80GB"), devices_per_node=8, device_link=link,
        node_link=link, profile=find_training_profile("loop"),
    )  # fmt: skip
    accumulates = strategy.schedule.num_microbatches > 1
    name = f"Traced{kind.upper()}{'Loss' if gives == 'loss' else ''}"
    return TracedJob(
        graph=load_workload(f"mesh_traced:{name}").passes[0].graph,
        configuration=replace(Configuration(precision="fp32"), accumulates=accumulates),
        cluster=cluster,
        seq=float(LENGTH),
    )


def _predicted(kind, strategy):
    return exchanged_bytes(_job(kind, strategy), strategy, microbatch=BATCH / strategy.num_parts)


def _live_predicted(kind, strategy):
    """Live bytes of the fullest rank; only a stage's outputs are held after the loss."""
    job = _job(kind, strategy, gives="outputs" if strategy.size("pp") > 1 else "loss")
    batch = PICTURES if kind == "vgg" else BATCH
    variant = variant_of(job, strategy, [batch / strategy.num_parts])
    table = rows_of(strategy, 1)
    pipelines = distinct_pipelines(table, [variant], job.fabric)
    return float(rank_memory(table, [variant], pipelines, job.fabric).allocated_bytes[0])


@pytest.fixture(autouse=True)
def _models_on_the_path(monkeypatch):
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    monkeypatch.setenv("PYTHONPATH", path)


def test_parts_add_up():
    one = ExchangedBytes(all_reduce=1.0, send=2.0)
    assert one + one == ExchangedBytes(all_reduce=2.0, send=4.0)


def test_what_is_predicted_follows_the_formulas():
    weights = 4 * (TOKENS * WIDTH * 2 + LENGTH * WIDTH + 2 * WIDTH + 4 * (
        4 * (WIDTH * WIDTH + WIDTH) + 8 * WIDTH * WIDTH + 5 * WIDTH + 4 * WIDTH
    ))  # fmt: skip
    found = {text: _predicted("gpt", Strategy.parse(text)) for text in ("dp4", "fsdp4/mb2", "dp1")}
    assert found["dp4"] == ExchangedBytes(all_reduce=4.0 * weights)
    assert found["fsdp4/mb2"] == ExchangedBytes(
        all_gather=16.0 * weights, reduce_scatter=8.0 * weights
    )
    assert found["dp1"] == ExchangedBytes()


def test_norms_between_columns_and_rows_are_split_with_their_features():
    width, classes = 32, 16
    conv = 9 * width * 2 * width
    shared = conv + 2 * width + 2 * 2 * width + conv  # Filters, a bias and a norm of a pair.
    block = 2 * width + shared / 2 + width
    ends = 9 * 3 * width + width + 2 * width + width * classes + classes
    graph = split_tensor(_job("cnn", Strategy()).graph, 2, splits_words=False).graph
    held = graph.storages.elements[graph.storages.owner == Owner.PARAMETER, 0].sum()
    assert held == ends + 4 * block


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt", "cnn"])
@pytest.mark.parametrize("text", _MESHES)
def test_ranks_exchange_and_hold_what_is_predicted(kind, text):
    strategy = Strategy.parse(text)
    said = start_ranks("mesh_bytes_worker.py", strategy.num_ranks, kind, text)
    found = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("BYTES ")]
    wanted = _predicted(kind, strategy)
    assert {one: sum(rank[one] for rank in found) for one in _KINDS} == {
        one: getattr(wanted, one) for one in _KINDS
    }
    # Backward convolutions of a CPU keep copies that a device's do not.
    if kind == "gpt":
        most = max(rank["live"] for rank in found)
        assert most == pytest.approx(_live_predicted(kind, strategy), rel=0.02)


@pytest.mark.slow
def test_a_frozen_vgg16_trains_its_head_in_the_predicted_memory():
    said = start_ranks("mesh_bytes_worker.py", 1, "vgg", "dp1")
    (found,) = (json.loads(line[6:]) for line in said.splitlines() if line.startswith("BYTES "))
    assert found["live"] == pytest.approx(_live_predicted("vgg", Strategy()), rel=0.05)
