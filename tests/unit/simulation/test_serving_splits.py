"""Engines whose ranks share experts but no requests, or have layers one after the other."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError, PacelineError
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.serving.batching import (
    EnginePasses,
    ServingRuns,
    expected_largest,
    request_times,
)
from paceline.parallelism.split.experts import find_experts
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.engine_tables import EngineTable
from paceline.simulation.queue.figures import Replicas, tables_of
from paceline.simulation.rank import RankPasses
from paceline.simulation.simulator import simulate
from paceline.stack.engines import find_engine

CATALOG = load_catalog()
LINKS = {link.name: link for link in CATALOG.links}
H200 = find_device(CATALOG, "H200 SXM")
MIXTURE, DENSE = "mixtral-8x7b", "llama-3-8b"


def job(split: str, batch: float = 8.0, model: str = MIXTURE, **facts: object) -> Job:
    asked = {"prompt_tokens": 1024, "output_tokens": 256, "profile": "vllm"} | facts
    return Job(
        workload=load_workload(model, task="infer"), configuration=Configuration(precision="bf16"),
        strategy=Strategy.parse(split), batch=batch, **asked,  # type: ignore[arg-type]
    )  # fmt: skip


def stepped(split: str, batch: float = 8.0, *, per_node: int = 8, **facts: object) -> Steps:
    ranks = Strategy.parse(split).num_ranks
    machine = Machine.of(
        H200, ranks, devices_per_node=min(ranks, per_node), device_link=LINKS["dgx-h100-nvls"],
        node_link=LINKS["dgx-h100-ib"],
    )  # fmt: skip
    found = simulate([job(split, batch, **facts)], [machine])  # type: ignore[arg-type]
    found.check_known()
    return found


def one(found: Steps, name: str = "per_token_s") -> float:
    return float(getattr(found, name)[0])


@pytest.mark.parametrize("name", ["per_token_s", "first_token_s", "step_s", "memory_mid_bytes"])
def test_one_group_of_one_stage_is_what_it_is_without(name: str) -> None:
    assert one(stepped("ep1.pp1.tp2"), name) == pytest.approx(one(stepped("tp2"), name), rel=1e-9)


def test_ranks_keep_all_weights_once_and_those_of_attention_each() -> None:
    """By hand: what is no expert is whole on every rank, experts are dealt out."""
    whole, rank = (RankPasses.of(job(text)).step.largest.parameter_bytes for text in ("dp1", "ep4"))
    graph = load_workload(MIXTURE, task="infer").passes[0].graph
    experts = find_experts(graph)
    assert experts is not None
    stored = graph.storages.elements[:, 0]
    weights = [op.weight for op in experts.applied]
    experts_bytes = 2.0 * float(stored[weights].sum())
    assert experts_bytes == pytest.approx(32 * 8 * 3 * 4096 * 14336 * 2, rel=1e-9)
    assert 4 * rank == pytest.approx(whole + 3 * (whole - experts_bytes), rel=1e-6)


def test_stages_keep_all_weights_once() -> None:
    """Of 32 layers three stages have 11 at most."""
    whole, two, three = (
        one(stepped(text, model=DENSE), "parameter_bytes") for text in ("dp1", "pp2", "pp3")
    )
    assert two == pytest.approx(whole / 2, rel=1e-9)
    assert three == pytest.approx(whole * 11 / 32, rel=1e-9)


def test_one_request_gains_nothing_from_attention_of_its_own() -> None:
    alone, shared, own = (stepped(text, 1.0) for text in ("dp1", "tp4", "ep4"))
    assert one(shared) < one(own)
    dense = one(alone, "weights_s") - one(own, "weights_s")
    assert dense < 0.9 * one(alone, "weights_s")  # Attention is read whole.


def test_a_latent_cache_is_copied_for_tensor_ranks_and_shared_by_replicas() -> None:
    """Thirty-two requests: every tensor rank keeps all of their caches, a replica its own eight."""

    def caches_bytes(split: str, batch: float) -> float:
        asked = {"model": "deepseek-v2-lite", "prompt_tokens": 8192}
        full, half = (
            one(stepped(split, count, **asked), "memory_mid_bytes")  # type: ignore[arg-type]
            for count in (batch, batch / 2.0)
        )
        return 2.0 * (full - half)

    alone, copied, own = (caches_bytes(*p) for p in (("dp1", 32.0), ("tp4", 32.0), ("ep4", 8.0)))
    assert copied == pytest.approx(alone, rel=0.02)
    assert own == pytest.approx(alone / 4.0, rel=0.02)


def test_a_token_passes_all_stages_and_is_sent_between_them() -> None:
    """A batch in each stage is as slow as one alone, and there are two of them."""
    alone, two = stepped("dp1", model=DENSE), stepped("pp2/mb2", model=DENSE)
    assert one(two) > one(alone)
    sent_s = one(two, "token_exchange_s")
    assert 0.0 < sent_s < 0.01 * one(alone)
    assert one(two) == pytest.approx(one(alone) + sent_s, rel=0.02)
    assert one(two, "energy_j") == pytest.approx(one(alone, "energy_j"), rel=0.02)


def test_stages_in_two_nodes_send_over_the_network() -> None:
    near, far = (
        one(stepped("pp2.tp4", model=DENSE, per_node=n), "token_exchange_s") for n in (8, 4)
    )
    assert near < far


def test_parts_that_more_batches_fill_are_answered_one_after_the_other() -> None:
    once, twice = (one(stepped(f"pp2/mb{n}", model=DENSE), "step_s") for n in (2, 4))
    assert twice == pytest.approx(2.0 * once, rel=1e-9)


def test_stages_keep_the_caches_of_all_batches_of_their_layers() -> None:
    """Two batches of a half each are as many caches as one batch of a whole has."""
    alone, two = (
        [one(stepped(text, count, model=DENSE), "memory_mid_bytes") for count in (64.0, 32.0)]
        for text in ("dp1", "pp2/mb2")
    )
    assert two[0] - two[1] == pytest.approx(alone[0] - alone[1], rel=0.02)


def test_a_step_waits_for_the_prompts_of_other_groups_but_not_for_their_experts() -> None:
    """Once requests come one by one; those that come at once are read together."""
    steps = stepped("ep4", rounds=1e6)
    engine = find_engine("vllm").on(H200)
    asked = {"concurrency": np.array([8.0]), "input_tokens": np.array([1024.0]),
             "output_tokens": np.array([256.0]), "rounds": np.array([1e6])}  # fmt: skip
    passes = EnginePasses.of(steps)
    apart, waiting, for_all = (
        float(request_times(ServingRuns(**asked, groups=n), one, engine).per_token_s[0])
        for n, one in ((1, passes), (4, passes), (4, replace(passes, joint_s=0.0)))
    )
    assert apart < waiting < for_all
    assert waiting == pytest.approx(one(steps), rel=1e-9)


def test_the_largest_of_several_numbers_is_between_their_mean_and_their_sum() -> None:
    mean = np.array([1e-6, 0.01, 1.0, 30.0])
    last = mean
    for groups in (2, 8, 64):
        found = expected_largest(mean, groups)
        assert np.all(found >= last)
        assert np.all(found <= groups * mean * (1.0 + 1e-9))
        last = found
    assert expected_largest(mean, 8)[0] == pytest.approx(8e-6, rel=1e-3)


def test_groups_wait_for_nothing_where_all_prompts_come_at_once() -> None:
    once = ServingRuns(
        concurrency=np.array([8.0]), input_tokens=np.array([512.0]), groups=8,
        output_tokens=np.array([128.0]), rounds=np.array([1.0]),
    )  # fmt: skip
    assert once.waited_prompts[0] == 0.0
    assert once.others[0] == 63.0


@pytest.mark.parametrize(
    ("split", "model", "why"),
    [("ep4", DENSE, "no experts"), ("pp33", DENSE, "pipeline stages"), ("ep3", MIXTURE, "divide"),
     ("cp2", DENSE, "shares tokens")],
)  # fmt: skip
def test_what_cannot_be_split_says_why(split: str, model: str, why: str) -> None:
    with pytest.raises(PacelineError, match=why):
        stepped(split, model=model, per_node=64)


@pytest.mark.parametrize("split", ["ep4", "pp2.tp2"])
def test_a_queue_of_a_split_replica_can_do_what_its_groups_do_together(split: str) -> None:
    """A step that writes for sixteen in each group is one of the replica for all of them."""
    ways = Strategy.parse(split)
    machine = Machine.of(H200, 4, device_link=LINKS["dgx-h100-nvls"])
    asked = {"prompt_tokens": 512, "output_tokens": 256}
    service = Replicas.of(job(split, **asked), machine, mean_tokens=640)
    assert service.num_replicas == 1
    assert service.job.strategy.num_ranks == 4
    (table,) = tables_of([service])
    assert isinstance(table, EngineTable)
    groups = ways.size("ep") * ways.size("pp")
    told = stepped(split, 16.0, **asked)
    expected_s = one(told, "weights_s") + one(told, "token_exchange_s")
    assert table.times.write_s[16 * groups] == pytest.approx(expected_s, rel=0.05)


def test_loops_have_no_stages() -> None:
    with pytest.raises(InvalidInputError, match="stages"):
        stepped("pp2", model=DENSE, profile="torch")


def test_sums_beyond_a_node_are_those_of_the_library() -> None:
    near, far = (one(stepped("tp8", model=DENSE, per_node=n), "token_exchange_s") for n in (8, 4))
    assert math.isfinite(far)
    assert far > near
