"""Pinned strategies: what can be pinned, where it can run, and what the plan then says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import cache

import numpy as np
import pytest
from tests.tolerance import ASKED_TOGETHER
from tests.unit.parallelism.stated_of_tests import evaluate_stated

from paceline.catalog.entities import Catalog
from paceline.catalog.freshness import unranked_reason
from paceline.catalog.load import load_catalog
from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.memory.memory_fit import quantile_bytes
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.planning.decisions.device_counts import BatchRule, scaling_curve
from paceline.planning.forecast.question import SearchOptions, resolve_question
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.places import Place, find_places
from paceline.planning.search.all_candidates import Search, run_search
from paceline.planning.search.choices import strategy_of
from paceline.planning.search.pinned import is_searched, pinned_node_counts, pinned_strategy
from paceline.simulation.job import Job

TODAY = date(2026, 11, 20)
#: One of each kind of strategy, all on eight devices.
STATED = (
    "dp4.tp2+sp", "pp8", "pp4.dp2@gpipe/mb4", "pp2.dp2.tp2@interleaved2/mb4+zero1", "dp2.fsdp4",
    "dp2.cp4", "dp8+recompute-block", "dp8/mb4", "dp8+zero1", "dp8+single-process",
    "dp8+parameter-server",
)  # fmt: skip


@cache
def places() -> tuple[Place, ...]:
    found = find_places(load_catalog(), Goal(), today=TODAY)
    return tuple(found.places)


@cache
def catalog() -> Catalog:
    """Machines of eight, and some of one."""
    whole = load_catalog()
    fresh = [offer for offer in whole.offers if unranked_reason(offer, TODAY) is None]
    eight = [offer for offer in fresh if offer.num_devices == 8][::6]
    return replace(whole, offers=(*eight, *[o for o in fresh if o.num_devices == 1][:3]))


def pin(text: str, **changes: object) -> Goal:
    return replace(Goal(), pins={"strategy": text}, **changes)  # type: ignore[arg-type]


def search(
    text: str, model: str = "gpt2", task: str = "train", *, work: Work | None = None,
    **changes: object,
) -> Search:  # fmt: skip
    workload = load_workload(model, task=task)  # type: ignore[arg-type]
    question = resolve_question(
        workload, pin(text, **changes), work or Work(), today=TODAY, options=SearchOptions()
    )
    return run_search(question, catalog())


def test_nothing_pinned_is_no_strategy() -> None:
    assert pinned_strategy(Goal(), places()) is None
    assert pinned_node_counts(Goal()) == ()


def test_any_number_of_replicas_can_be_pinned_where_whole_machines_hold_it() -> None:
    assert str(pinned_strategy(pin("dp7+zero2"), places())) == "dp7+zero2"
    assert pinned_node_counts(pin("dp12")) == (1, 2, 3, 4, 6, 12)


@pytest.mark.parametrize("text", STATED)
def test_a_plan_runs_exactly_the_pinned_strategy(text: str) -> None:
    found = search(text)
    rows = np.flatnonzero(found.is_feasible)
    assert len(rows)
    assert {strategy_of(found, row) for row in rows} == {Strategy.parse(text)}


@pytest.mark.parametrize("text", ["dp8", "dp8+zero3"])
def test_searched_sharding_stays_free_in_its_microbatches_alone(text: str) -> None:
    found, pinned = search(text, "llama-3-8b" if "zero3" in text else "gpt2"), Strategy.parse(text)
    assert len(found.candidates)
    for row in range(len(found.candidates)):
        one = strategy_of(found, row)
        assert replace(one, schedule=pinned.schedule) == pinned


@pytest.mark.kernels
def test_figures_are_those_that_scale_gives() -> None:
    found = search("pp2.dp2.tp2@1f1b/mb8+sp")
    for row in range(0, len(found.candidates), 3):
        place = found.found.places[found.candidates.place[row]]
        configuration = found.forecast.configurations[found.candidates.configuration[row]]
        cluster = Cluster(
            device=place.device,
            devices_per_node=int(place.offer.num_devices),
            device_link=place.links.device,
            node_link=place.links.node,
        )
        alone = evaluate_stated(
            TracedJob(
                graph=found.workload.passes[0].graph,
                configuration=configuration,
                cluster=cluster,
                seq=found.question.seq,
            ),
            Strategy.parse("pp2.dp2.tp2@1f1b/mb8+sp"),
            global_batch=int(found.candidates.global_batch[row]),
        )
        assert found.evaluation.steps.step_s[row] == pytest.approx(alone.step_s, rel=ASKED_TOGETHER)


def test_a_stated_global_batch_is_kept() -> None:
    found = search("pp2.dp4@1f1b/mb4", global_batch=64)
    assert set(found.candidates.global_batch.tolist()) == {64}
    assert {one.batch for one in found.whole.jobs} == {4}


def test_inference_pins_replicas_of_tensor_groups() -> None:
    found = search("dp4.tp2", task="infer", work=Work(requests_per_s=1.0))
    assert {str(strategy_of(found, row)) for row in range(len(found.candidates))} == {"dp4.tp2"}
    with pytest.raises(InvalidInputError, match="is for training") as caught:
        search("pp2.dp4", task="infer", work=Work(requests_per_s=1.0))
    assert "dp4.tp2" in caught.value.hint


@pytest.mark.parametrize("text", ["ep8", "ep4.tp2", "pp2.tp8@1f1b/mb2", "pp2.ep8@1f1b/mb2"])
def test_inference_pins_stages_and_groups_that_share_experts(text: str) -> None:
    found = search(
        text, "mixtral-8x7b", task="infer", work=Work(requests_per_s=1.0), max_devices=16
    )
    rows = range(len(found.candidates))
    assert {str(strategy_of(found, row)) for row in rows} == {text}
    assert set(found.candidates.num_devices.tolist()) == {Strategy.parse(text).num_ranks}


@pytest.mark.parametrize(
    ("goal", "said", "hint"),
    [
        (pin("dp128"), "128 devices; at most 64", "--max-devices 128"),
        (pin("dp8", global_batch=12), "12 does not divide into 8 replicas", "16"),
        (pin("tp2.dp2"), "an order that has no cost model", "dp . tp"),
    ],
)
def test_what_cannot_be_pinned_says_why(goal: Goal, said: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        pinned_strategy(goal, places())
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("tp8", "does not divide 12 attention heads", "divides the number of heads"),
        ("dp4.ep2", "finds no experts", "use `dp`, `tp` or `pp`"),
        ("pp64", "are more than the model's", "use at most"),
        ("dp8/mb1000", "a multiple of 8000 items per step", "--global-batch 8000"),
    ],
)
def test_what_no_machine_can_run_says_why(text: str, said: str, hint: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        search(text)
    assert hint in caught.value.hint


def test_what_fits_nowhere_names_the_memory() -> None:
    with pytest.raises(DoesNotFitError, match="per device") as caught:
        search("dp8/mb2", "llama-3-70b")
    assert "split more" in caught.value.hint


def test_a_machine_without_a_link_between_nodes_says_so() -> None:
    alone = [p for p in places() if p.links.node is None and p.offer.num_devices == 8][:1]
    assert alone, "the catalogue knows machines that nothing joins"
    with pytest.raises(InvalidInputError, match="needs a link between nodes; there is none"):
        pinned_strategy(pin("dp16"), alone)
    with pytest.raises(InvalidInputError, match="no number of whole machines"):
        pinned_strategy(pin("dp12"), alone)


def test_the_processors_of_a_machine_are_one_device() -> None:
    """The catalogue counts no accelerators there; a plan of it can be pinned as it is printed."""
    graviton = tuple(o for o in load_catalog().offers if o.name == "aws/c7g.4xlarge")
    assert graviton[0].num_devices < 1
    question = resolve_question(
        load_workload("mnist-cnn"), pin("dp1"), Work(), today=TODAY, options=SearchOptions()
    )
    found = run_search(question, replace(load_catalog(), offers=graviton))
    assert found.is_feasible.any()
    assert {str(strategy_of(found, row)) for row in np.flatnonzero(found.is_feasible)} == {"dp1"}


@pytest.mark.parametrize("text", ["dp1/mb2", "dp1+recompute-block"])
def test_processors_run_strategies_that_are_stated_in_full(text: str) -> None:
    """Within the memory of their machine, which is theirs."""
    graviton = tuple(o for o in load_catalog().offers if o.name == "aws/c7g.4xlarge")
    question = resolve_question(
        load_workload("mnist-cnn"), pin(text), Work(), today=TODAY, options=SearchOptions()
    )
    found = run_search(question, replace(load_catalog(), offers=graviton))
    assert {str(strategy_of(found, row)) for row in range(len(found.candidates))} == {text}
    assert np.isfinite(found.evaluation.steps.step_s).all()
    small = tuple(replace(offer, host_memory_bytes=1e8) for offer in graviton)
    with pytest.raises(DoesNotFitError):
        run_search(question, replace(load_catalog(), offers=small))


@pytest.mark.parametrize("global_batch", [64, 512])
@pytest.mark.parametrize("text", ["dp8", "dp8+zero2", "dp8+zero3"])
def test_searched_memory_is_that_of_the_strategy_stated(text: str, global_batch: int) -> None:
    """Of one microbatch, and of several, whose gradients are kept."""
    found = search(text, global_batch=global_batch)
    counts = found.candidates.microbatches
    rows = [int(np.flatnonzero(counts == count)[0]) for count in np.unique(counts)]
    assert rows
    for row in rows:
        place = found.found.places[found.candidates.place[row]]
        cluster = Cluster(
            device=place.device, devices_per_node=int(place.offer.num_devices),
            device_link=place.links.device, node_link=place.links.node,
        )  # fmt: skip
        stated = evaluate_stated(
            TracedJob(
                graph=found.workload.passes[0].graph,
                configuration=found.forecast.configurations[found.candidates.configuration[row]],
                cluster=cluster,
                seq=found.question.seq,
            ),
            strategy_of(found, row),
            global_batch=global_batch,
        )
        assert found.candidates.memory_high_bytes[row] == pytest.approx(stated.memory_bytes)


def test_what_is_pinned_must_fit_at_the_chance_that_the_goal_states() -> None:
    """At nine of ten cases a device may be smaller than the bound of nineteen of twenty."""
    pins = {"strategy": "dp8/mb4", "batch": "16"}
    question = resolve_question(
        load_workload("gpt2"),
        Goal(pins=pins, vendors=("NVIDIA",)),
        Work(),
        today=TODAY,
        options=SearchOptions(),
    )  # fmt: skip
    found = run_search(question, catalog())
    bound = float(found.candidates.memory_high_bytes.max())
    small = tuple(
        replace(device, memory_bytes=int(0.985 * bound), usable_memory_bytes=None)
        for device in catalog().devices
    )
    tight = replace(catalog(), devices=small)
    for confidence, fits in ((0.9, True), (0.99, False)):
        goal = Goal(pins=pins, vendors=("NVIDIA",), memory_confidence=confidence)
        asked = replace(question, goal=goal)
        if fits:
            assert len(run_search(asked, tight).candidates)
        else:
            with pytest.raises(DoesNotFitError, match="per device"):
                run_search(asked, tight)


@pytest.mark.parametrize("text", ["dp8", "dp8+zero2", "dp8/mb4", "dp4.tp2+sp"])
def test_every_verb_judges_alike_at_the_edge_whether_a_job_fits(text: str) -> None:
    """`plan`, `scale` and the search for strategies, a hair above what is needed and below."""
    strategy, work = Strategy.parse(text), Work()
    batch = 16 if is_searched(strategy) else 8
    pins = {"strategy": text, "batch": str(batch)}
    question = resolve_question(
        load_workload("gpt2"), Goal(pins=pins), work, today=TODAY, options=SearchOptions()
    )
    place = next(p for p in places() if p.offer.num_devices == 8 and "H100" in p.device.name)
    one = replace(catalog(), offers=(place.offer,))
    found = run_search(question, one)
    candidates = found.candidates
    of_row = quantile_bytes(candidates.memory_mid_bytes, candidates.memory_high_bytes)
    leanest, needed = int(of_row.argmin()), float(of_row.min())
    how = found.forecast.configurations[candidates.configuration[leanest]]
    for room_bytes, fits in ((needed * (1 + 1e-6), True), (needed * (1 - 1e-6), False)):
        device = replace(place.device, memory_bytes=room_bytes, usable_memory_bytes=None)
        narrow = replace(
            one, devices=tuple(device if d.name == device.name else d for d in one.devices)
        )
        cluster = Cluster(
            device=device, devices_per_node=8, device_link=place.links.device,
            node_link=place.links.node,
        )  # fmt: skip
        global_batch = batch * strategy.num_batches * strategy.schedule.num_microbatches
        assert _runs(lambda market=narrow: len(run_search(question, market).candidates)) == fits
        assert _runs(
            lambda on=cluster, items=global_batch: scaling_curve(
                Job(workload=question.workload, configuration=how, seq=question.seq), on,
                counts=(8,), batch=BatchRule(global_batch=items), strategy=strategy,
            )
        ) == fits  # fmt: skip


def _runs(ask: Callable[[], object]) -> bool:
    """Whether anything is found."""
    try:
        return bool(ask())
    except DoesNotFitError:
        return False
