"""The candidate table against a plain enumeration, and its rules one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from made_up import made_forecast, made_places

from paceline.parallelism.strategy.strategy import SEARCHED_SHARDINGS
from paceline.planning.search.candidates import BatchRule, enumerate_candidates

FREE = BatchRule(
    max_global_batch=None, exact_global_batch=None, num_largest=99, accumulates=False,
    memory_confidence=0.9, shards_freely=True,
)  # fmt: skip


def table(places, forecast, rule=FREE, *, node_counts=(1, 2, 4), max_devices=64, training=True):
    return enumerate_candidates(
        places, forecast, rule, node_counts=node_counts, max_devices=max_devices,
        is_training=training,
    )  # fmt: skip


def rows_of(candidates):
    columns = ("place", "num_nodes", "sharding", "configuration", "batch", "microbatches")
    return {tuple(row) for row in np.stack([getattr(candidates, c) for c in columns], axis=1)}


def test_everything_that_fits_is_there_once():
    places = made_places(devices_per_node=(1, 8), usd_per_hour=(1.0, 8.0),
                         memory_bytes=(80e9, 80e9), device=(0, 0))  # fmt: skip
    candidates = table(places, made_forecast(num_configurations=2))
    expected = {
        (place, nodes, sharding, configuration, batch, 1)
        for place, nodes, sharding, configuration, batch in itertools.product(
            (0, 1), (1, 2, 4), range(len(SEARCHED_SHARDINGS)), (0, 1), range(4)
        )
        if (1, 8)[place] * nodes > 1 or sharding == 0
    }
    assert rows_of(candidates) == expected
    assert len(candidates) == len(expected)


def test_what_does_not_fit_at_the_stated_chance_is_not_there():
    forecast = made_forecast(item_bytes=10e9, state_bytes=0.0, memory_log_sigma=0.1)
    candidates = table(made_places(memory_bytes=(80e9,)), forecast, node_counts=(1,))
    assert forecast.batch[candidates.batch].max() == 4


def test_state_is_sharded_only_where_it_does_not_fit_otherwise():
    forecast = made_forecast(item_bytes=1e9, state_bytes=70e9)
    rule = replace(FREE, shards_freely=False)
    candidates = table(made_places(memory_bytes=(80e9,)), forecast, rule, node_counts=(8,))
    freely = table(made_places(memory_bytes=(80e9,)), forecast, node_counts=(8,))
    plain = {b for s, b in zip(freely.sharding, freely.batch, strict=True) if s == 0}
    sharded = {b for s, b in zip(candidates.sharding, candidates.batch, strict=True) if s > 0}
    assert plain
    assert sharded
    assert not plain & sharded
    assert set(freely.batch.tolist()) == set(candidates.batch.tolist())


def test_sharding_admits_what_plain_data_parallel_does_not():
    forecast = made_forecast(item_bytes=1e9, state_bytes=100e9)
    candidates = table(made_places(memory_bytes=(80e9,)), forecast, node_counts=(8,))
    assert len(candidates) > 0
    assert set(candidates.sharding.tolist()) <= {1, 2}


@pytest.mark.parametrize("limit", [1, 7, 16, 64])
def test_the_global_batch_limit_holds(limit):
    rule = BatchRule(
        max_global_batch=limit, exact_global_batch=None, num_largest=99, accumulates=True,
        memory_confidence=0.9,
    )  # fmt: skip
    forecast = made_forecast()
    candidates = table(made_places(), forecast, rule, node_counts=(1, 2, 4, 8, 16))
    made = forecast.batch[candidates.batch] * candidates.num_devices * candidates.microbatches
    assert (made <= limit).all()
    assert limit < 2 or candidates.num_devices.max() > 1


@pytest.mark.parametrize("exact", [8, 48, 96])
def test_an_exact_global_batch_is_made_exactly(exact):
    rule = BatchRule(
        max_global_batch=None, exact_global_batch=exact, num_largest=99, accumulates=False,
        memory_confidence=0.9,
    )  # fmt: skip
    forecast = made_forecast(batch=(1, 2, 3, 4, 6, 8))
    candidates = table(made_places(), forecast, rule)
    made = forecast.batch[candidates.batch] * candidates.num_devices * candidates.microbatches
    assert (made == exact).all()
    assert len(candidates) > 0


def test_only_the_largest_batches_are_kept():
    rule = BatchRule(
        max_global_batch=None, exact_global_batch=None, num_largest=2, accumulates=False,
        memory_confidence=0.9,
    )  # fmt: skip
    forecast = made_forecast()
    candidates = table(made_places(), forecast, rule, node_counts=(1,))
    assert sorted(forecast.batch[candidates.batch].tolist()) == [4.0, 8.0]


def test_machines_without_a_network_stay_alone_in_training_and_not_in_inference():
    places = made_places(linked=False)
    alone = table(places, made_forecast())
    replicas = table(places, made_forecast(), training=False)
    assert set(alone.num_nodes.tolist()) == {1}
    assert set(replicas.num_nodes.tolist()) == {1, 2, 4}


def test_machines_of_a_domain_need_no_network_and_share_layers():
    """Two places with machines of four, of which the first are joined to sixteen devices."""
    places = made_places(devices_per_node=(4, 4), usd_per_hour=(1.0, 1.0),
                         memory_bytes=(80e9, 80e9), device=(0, 0))  # fmt: skip
    places = replace(places, devices_per_domain=np.array([16, 4]), has_node_link=np.zeros(2, bool))
    made = table(places, made_forecast(), node_counts=(1, 2, 4, 8), max_devices=64)
    assert set(zip(made.place.tolist(), made.num_nodes.tolist(), strict=True)) == {
        (0, 1), (0, 2), (0, 4), (1, 1),
    }  # fmt: skip
    forecast = made_forecast()
    configured = tuple(replace(one, tensor_degree=8) for one in forecast.configured)
    shared = table(places, replace(forecast, configured=configured), training=False)
    assert set(shared.place.tolist()) == {0}
    assert set(shared.num_nodes.tolist()) == {2, 4}
    assert (shared.num_groups == shared.num_devices // 8).all()


def test_no_candidate_has_more_devices_than_allowed():
    places = made_places(devices_per_node=(8,))
    assert table(places, made_forecast(), max_devices=16).num_devices.max() == 16


def test_an_unpredicted_device_has_no_candidates():
    forecast = made_forecast()
    steps = replace(forecast.steps, step_s=np.full_like(forecast.steps.step_s, np.nan))
    forecast = replace(forecast, steps=steps)
    assert len(table(made_places(), forecast)) == 0


def test_one_device_accumulates_up_to_a_step_of_a_usual_size():
    forecast = made_forecast(item_bytes=30e9, state_bytes=0.0)
    rule = replace(FREE, max_global_batch=16, least_global_batch=8, accumulates=True)
    alone = table(made_places(memory_bytes=(80e9,)), forecast, rule, node_counts=(1,))
    assert len(alone) > 0
    assert (alone.microbatches > 1).all()
    assert (alone.global_batch == 16).all()
    roomy = table(made_places(memory_bytes=(800e9,)), forecast, rule, node_counts=(1,))
    assert forecast.batch[roomy.batch[roomy.microbatches == 1]].min() == 8
