"""No step undercuts its bound, and a search that stops at bounds answers as one that does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.sampled import sampled
from tests.unit.parallelism.test_search import SMALL, space

from paceline.catalog.load import load_catalog
from paceline.errors import DoesNotFitError
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.evaluation import evaluate_strategies, weighed_strategies
from paceline.parallelism.lower_bounds import least_steps_s
from paceline.parallelism.rank_memory import least_rank_bytes
from paceline.parallelism.schedule.table import KINDS, StrategyTable
from paceline.parallelism.search import (
    CONTEXT_MARGIN,
    SearchSpace,
    enumerate_strategies,
    search_strategies,
)
from paceline.parallelism.strategy.complexity import complexity, kinds_of

MODELS = (("gpt2", 1024), (SMALL, 1024), ("mixtral-8x7b", 4096), ("llama-3-8b", 8192))


def bounds_of(prepared: SearchSpace, table: StrategyTable) -> np.ndarray:
    """Bounds of rows, each from the variant of its ranks that recomputes nothing."""
    plain = {v.shape: v for v in prepared.variants if v.checkpointing == "none"}
    variants = [plain[one.shape] for one in prepared.kinds]
    return least_steps_s(table, prepared.kinds, variants, prepared.fabric)


def on_slow_links(prepared: SearchSpace) -> SearchSpace:
    links = {link.name: LinkTable.from_links([link]) for link in load_catalog().links}
    fabric = replace(prepared.fabric, device_link=links["pcie4-x16"], node_link=links["eth-25"])
    return replace(prepared, fabric=fabric)


@pytest.mark.parametrize(
    ("model", "seq", "num_devices", "links"),
    sampled(
        [(*m, count, links) for m in MODELS for count in (8, 128) for links in ("fast", "slow")],
        (SMALL, 1024), ("gpt2", 1024, 8),
        ("mixtral-8x7b", 4096, 8, "fast"),
    ),
)  # fmt: skip
def test_no_step_undercuts_its_bound(model: str, seq: int, num_devices: int, links: str) -> None:
    prepared = space(model, seq=seq)
    prepared = prepared if links == "fast" else on_slow_links(prepared)
    table = enumerate_strategies(prepared, num_devices=num_devices, global_batch=128)
    step_s = evaluate_strategies(table, prepared.variants, prepared.fabric).steps.step_s
    assert len(table) > 1
    assert (bounds_of(prepared, table) <= step_s * (1 + 1e-9)).all()


@pytest.mark.parametrize(("model", "seq"), MODELS)
@pytest.mark.parametrize("num_devices", [8, 128])
@pytest.mark.parametrize("has_optimizer", [True, False])
def test_no_rank_holds_less_than_its_bound(
    model: str, seq: int, num_devices: int, has_optimizer: bool
) -> None:
    prepared = space(model, seq=seq)
    table = enumerate_strategies(prepared, num_devices=num_devices, global_batch=128)
    weighed = weighed_strategies(
        table, prepared.variants, prepared.fabric, has_optimizer=has_optimizer
    )
    median_bytes = weighed.memory.process_mid_bytes
    recomputes = np.array([one.checkpointing != "none" for one in prepared.kinds])[table.variant]
    profile = prepared.fabric.profile
    least_bytes = least_rank_bytes(
        table, prepared.variants, recomputes, profile, has_optimizer=has_optimizer
    )
    assert (least_bytes <= median_bytes * (1 + 1e-9)).all()
    # State is most of what a rank holds whose microbatch is small, activations of a large one.
    assert (least_bytes > 0.3 * median_bytes).any()
    bare = least_rank_bytes(
        table, prepared.variants, np.ones_like(recomputes), profile, has_optimizer=has_optimizer
    )
    assert (least_bytes[recomputes] == bare[recomputes]).all()
    assert (least_bytes > 2 * bare).any()


def test_bounds_of_whole_layers_are_near_their_steps() -> None:
    """A device alone waits for nothing: what is left is the update and the start of its host."""
    prepared = space("llama-3-8b", seq=8192)
    table = enumerate_strategies(prepared, num_devices=1, global_batch=128)
    step_s = evaluate_strategies(table, prepared.variants, prepared.fabric).steps.step_s
    assert (bounds_of(prepared, table) > 0.8 * step_s).all()


def test_the_bound_of_a_pipeline_counts_its_bubble() -> None:
    """With as many microbatches as stages, half of the step at most is work."""
    prepared = space(SMALL)
    table = enumerate_strategies(prepared, num_devices=8, global_batch=8)
    rows = np.flatnonzero((table.kind == KINDS.index("1f1b")) & (table.pp == 8))
    kept = table.take(rows)
    busy_s = bounds_of(prepared, replace(kept, kind=np.zeros_like(kept.kind)))
    assert len(rows)
    assert (bounds_of(prepared, kept) > 1.3 * busy_s).all()


@pytest.mark.parametrize("links", ["fast", "slow"])
@pytest.mark.parametrize(
    ("model", "seq", "capacity_bytes"),
    [("gpt2", 1024, 4e9), ("gpt2", 1024, 1e15), (SMALL, 1024, 2e9), ("llama-3-8b", 8192, 40e9)],
)
def test_stopping_at_bounds_changes_no_answer(
    model: str, seq: int, capacity_bytes: float, links: str
) -> None:
    prepared = replace(space(model, seq=seq), capacity_bytes=capacity_bytes)
    prepared = prepared if links == "fast" else on_slow_links(prepared)
    table = enumerate_strategies(prepared, num_devices=64, global_batch=128)
    steps = evaluate_strategies(table, prepared.variants, prepared.fabric).steps
    fits = steps.needed_bytes(prepared.memory_confidence) <= capacity_bytes
    is_cut = np.array([one.shape.sequence > 1 for one in prepared.kinds])[table.variant]
    ranked_s = np.where(fits, steps.step_s * np.where(is_cut, CONTEXT_MARGIN, 1.0), np.inf)
    best = np.argsort(ranked_s, kind="stable")[:4]
    if not fits.any():
        with pytest.raises(DoesNotFitError):
            search_strategies(prepared, num_devices=64, global_batch=128, num_best=4)
        return
    best = best[np.isfinite(ranked_s[best])]
    found = search_strategies(prepared, num_devices=64, global_batch=128, num_best=4)
    assert found.strategies == tuple(table.strategy(r, prepared.kinds) for r in best.tolist())
    assert found.steps.step_s == pytest.approx(steps.step_s[best], rel=1e-12)


@pytest.mark.parametrize("capacity_bytes", [4e9, 1e15])
def test_the_best_of_each_rank_that_is_as_fast_is_found_in_one_search(
    capacity_bytes: float,
) -> None:
    prepared = replace(space("gpt2", seq=1024), capacity_bytes=capacity_bytes)
    every = search_strategies(prepared, num_devices=64, global_batch=128, num_best=100_000)
    near = search_strategies(
        prepared, num_devices=64, global_batch=128, num_best=1, same_factor=3.0
    )
    is_cut = np.array([one.size("cp") > 1 for one in every.strategies])
    ranked_s = every.steps.step_s * np.where(is_cut, CONTEXT_MARGIN, 1.0)
    ranks = complexity([kinds_of(one) for one in every.strategies])
    same = np.flatnonzero(ranked_s <= 3.0 * ranked_s.min())
    _, first = np.unique(ranks[same], return_index=True)
    assert len(first) > 2
    assert set(near.strategies) == {every.strategies[row] for row in same[first].tolist()}


def test_recomputing_is_not_worked_out_where_it_cannot_win() -> None:
    """Where everything fits, what is kept is faster than what is made again."""
    prepared = space(SMALL, capacity_bytes=1e15)
    asked: list[int] = []

    def evaluated(places: Sequence[int]):
        asked.extend(places)
        return prepared.evaluated(places)

    watched = replace(prepared, evaluated=evaluated)
    search_strategies(watched, num_devices=8, global_batch=64, num_best=1)
    recomputing = {i for i, one in enumerate(prepared.kinds) if one.checkpointing != "none"}
    assert recomputing - set(asked)
