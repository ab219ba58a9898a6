"""ZB-H1: the published bubble, the event simulation, its memory, and what it gains on a model."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_actions import actions_of_rank
from tests.unit.parallelism.simulation import simulate_pipeline_s
from tests.unit.parallelism.stated_of_tests import evaluate_stated

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.schedule.blocks import BlockCosts, TensorGroup, block_costs
from paceline.parallelism.schedule.bubbles import in_flight, num_put_off, pipeline_s
from paceline.parallelism.split import SplitShape
from paceline.parallelism.strategy.strategy import Schedule, Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points

SMALL = "transformer:layers=8,hidden=1024,heads=8,vocab=4096,positions=1024,ffn=4096"


def seconds(kind: str, num_ranks: int, count: int, f: float, b: float, w: float) -> float:
    stages = np.ones((1, num_ranks))
    schedule = Schedule(kind=kind, num_microbatches=count)  # type: ignore[arg-type]
    found = pipeline_s(schedule, f * stages, (b + w) * stages, weight_s=w * stages)
    return float(found[0])


@given(
    num_ranks=st.integers(2, 12),
    extra=st.integers(0, 200),
    times=st.tuples(*[st.floats(0.5, 2.0)] * 3),
)
@settings(max_examples=100, deadline=None)
def test_equal_stages_lose_the_published_bubble(num_ranks, extra, times) -> None:
    """Qi et al. 2024, table 1: ``(p - 1) (F + B - W)``, where ``W`` is the least of the three.

    Otherwise the first rank waits ``(p - 1) B`` for its first backward, which nothing can fill, or
    the last one ``(p - 1) F`` for its first forward.
    """
    (w, f, b), count = sorted(times), num_ranks + extra
    bubble = seconds("zbh1", num_ranks, count, f, b, w) - count * (f + b + w)
    assert bubble == pytest.approx((num_ranks - 1) * (f + b - w), abs=1e-6)
    bubble = seconds("zbh1", num_ranks, count, w, f, b) - count * (f + b + w)
    assert bubble == pytest.approx((num_ranks - 1) * max(f, w), abs=1e-6)


def test_a_third_of_the_bubble_of_1f1b_is_left_where_all_parts_are_equal() -> None:
    ideal = 32 * 3.0
    split, whole = (seconds(kind, 8, 32, 1.0, 1.0, 1.0) - ideal for kind in ("zbh1", "1f1b"))
    assert split == pytest.approx(whole / 3)


@st.composite
def pipelines(draw):
    num_ranks = draw(st.integers(2, 8))
    count = draw(st.integers(1, 9 * num_ranks))
    cost = st.lists(st.floats(0.5, 2.0), min_size=num_ranks, max_size=num_ranks)
    return count, *(tuple(draw(cost)) for _ in range(3))


@given(pipelines())
@settings(max_examples=150, deadline=None)
def test_arrays_agree_with_the_event_simulation(case) -> None:
    count, forward, inputs, weights = case
    schedule = Schedule(kind="zbh1", num_microbatches=count)
    whole = np.add(inputs, weights)[None]
    found = pipeline_s(schedule, np.array([forward]), whole, weight_s=np.array([weights]))[0]
    assert found == pytest.approx(simulate_pipeline_s(schedule, forward, inputs, weights), rel=0.02)
    usual = Schedule(kind="1f1b", num_microbatches=count)
    assert found <= pipeline_s(usual, np.array([forward]), whole)[0] * (1 + 1e-9)


@pytest.mark.parametrize(("num_ranks", "count"), [(4, 16), (4, 4), (8, 3), (2, 1)])
def test_every_rank_does_everything_once_and_holds_as_much_as_the_first_of_1f1b(
    num_ranks: int, count: int
) -> None:
    schedule = Schedule(kind="zbh1", num_microbatches=count)
    for rank, expected in enumerate(in_flight(schedule, num_ranks=num_ranks)):
        actions = actions_of_rank(schedule, num_ranks, rank)
        assert Counter((a.kind, a.microbatch) for a in actions) == Counter(
            (kind, number) for kind in "FBW" for number in range(count)
        )
        held = np.cumsum([{"F": 1, "B": 0, "W": -1}[action.kind] for action in actions])
        assert held.max() == expected == min(count, num_ranks)


@pytest.mark.parametrize(("num_ranks", "count"), [(4, 16), (4, 4), (8, 3), (2, 1)])
def test_what_is_put_off_is_what_the_order_of_actions_owes(num_ranks: int, count: int) -> None:
    """The first rank makes gradients of weights with those of inputs, and owes none."""
    schedule = Schedule(kind="zbh1", num_microbatches=count)
    for rank, expected in enumerate(num_put_off(schedule, num_ranks=num_ranks)):
        actions = actions_of_rank(schedule, num_ranks, rank)
        owed = np.cumsum([{"F": 0, "B": 1, "W": -1}[action.kind] for action in actions])
        assert expected == (owed.max() if rank else 0)


@cache
def graph() -> Graph:
    return load_workload(SMALL).passes[0].graph


def blocks(kept: str = "half-weights", checkpointing: str = "none") -> BlockCosts:
    device = DeviceTable.from_devices([find_device(load_catalog(), "H100 SXM5 80GB")])
    none = LinkTable.from_links([None])
    group = TensorGroup(shape=SplitShape(), ranks_per_node=8, device_link=none, node_link=none)
    return block_costs(
        graph(),
        Configuration(checkpointing=checkpointing, training_format=kept),  # type: ignore[arg-type]
        device, Points(batch=np.array([8.0]), seq=np.array([1024.0])), group,
    )  # fmt: skip


@pytest.mark.parametrize("kept", ["half-weights", "autocast"])
def test_gradients_of_weights_are_about_as_much_work_as_forward_products(kept: str) -> None:
    """They are as many products; forward has attention, norms and activations besides."""
    layers = slice(2, -2)
    plain, again = blocks(kept), blocks(kept, "block")
    weight, forward = plain.weight_s[0, layers], plain.forward_s[0, layers]
    assert (0.4 * forward < weight).all()
    assert (weight < 1.2 * forward).all()
    assert (weight < 0.6 * plain.backward_s[0, layers]).all()
    assert again.weight_s == pytest.approx(plain.weight_s, rel=0.05)


def found(kind: str, stages: int):
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    cluster = Cluster(
        device=find_device(catalog, "H100 SXM5 80GB"), devices_per_node=8,
        device_link=links["dgx-h100-nvls"], node_link=links["dgx-h100-ib"],
    )  # fmt: skip
    return evaluate_stated(
        TracedJob(
            graph=graph(),
            configuration=Configuration(training_format="half-weights"),
            cluster=cluster,
            seq=1024,
        ),
        Strategy.parse(f"pp{stages}@{kind}/mb{2 * stages}"),
        global_batch=16 * stages,
    )


def test_a_model_gains_time_and_pays_memory() -> None:
    split, whole = found("zbh1", 4), found("1f1b", 4)
    assert split.bubble_s < 0.75 * whole.bubble_s
    assert split.step_s < whole.step_s
    assert split.memory_bytes >= whole.memory_bytes
