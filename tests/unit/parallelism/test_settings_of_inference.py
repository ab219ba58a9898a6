"""Every field of a Configuration does to ranks that serve what it does to one device.

Replicas answer as one device. Ranks that share a model run the program of one device, op for op;
and what changes nothing on one device changes nothing on them, their exchange included.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache

import numpy as np
import pytest
from tests.unit.parallelism.test_every_setting_acts import SETTINGS, cluster

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import OpKind
from paceline.model.graph.workload import Workload
from paceline.model.reading.load import load_workload
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.rank import RankPasses
from paceline.simulation.simulator import simulate

#: Items, profiles, and strategies whose ranks share the model.
MODELS: dict[str, tuple[int, tuple[str, ...], tuple[str, ...]]] = {
    "gpt2": (8, ("vllm",), ("tp2",)),
    "llama-3-8b": (4, ("vllm",), ("tp2", "tp8")), "mixtral-8x7b": (4, ("vllm",), ("tp8",)),
    "resnet50": (64, ("torch",), ("tp2",)), "t5-base": (8, ("torch",), ("tp2",)),
    "sd15-unet": (8, ("torch",), ("tp2", "cp2", "cp2+ulysses2")),
}  # fmt: skip
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in MODELS if name != "gpt2"]
EVERY = [value for values in SETTINGS.values() for value in values]
#: What every run asks: of each field its last value; models that are slow see every one.
LAST = [values[-1] for values in SETTINGS.values()]


@cache
def hows(model: str) -> list[Configuration]:
    return [Configuration(**value) for value in (LAST if model == "gpt2" else EVERY)]  # type: ignore[arg-type]


@cache
def workload(model: str) -> Workload:
    return load_workload(model, task="infer")


def job(model: str, how: Configuration, text: str, profile: str) -> Job:
    asked = workload(model)
    lengths = {"prompt_tokens": 256, "output_tokens": 64} if asked.generates else {}
    return Job(
        workload=asked, configuration=how, strategy=Strategy.parse(text), batch=MODELS[model][0],
        profile=profile, **lengths,
    )  # fmt: skip


@cache
def steps(model: str, text: str, profile: str) -> Steps:
    """Of the default, then of every setting."""
    jobs = [job(model, how, text, profile) for how in (Configuration(), *hows(model))]
    machine = Machine.of_cluster(cluster(), Strategy.parse(text).num_ranks)
    return simulate(jobs, [machine] * len(jobs))


def cases(model: str) -> list[tuple[str, str]]:
    _, profiles, texts = MODELS[model]
    return [(profile, text) for profile in profiles for text in texts]


def test_every_field_is_asked() -> None:
    assert set(SETTINGS) == {field.name for field in fields(Configuration)}


@pytest.mark.parametrize("model", ["gpt2", *SLOW])
def test_replicas_answer_as_one_device(model: str) -> None:
    for profile in MODELS[model][1]:
        alone, replicas = (steps(model, text, profile) for text in ("dp1", "dp8"))
        for name in ("step_s", "per_token_s", "memory_mid_bytes", "memory_high_bytes"):
            assert np.array_equal(getattr(alone, name), getattr(replicas, name), equal_nan=True)
        assert [str(one) for one in alone.reasons] == [str(one) for one in replicas.reasons]


@pytest.mark.parametrize("model", ["gpt2", *SLOW])
def test_what_changes_nothing_on_one_device_changes_nothing_on_ranks(model: str) -> None:
    """What one device refuses ranks refuse; what ranks alone refuse comes with a hint."""
    for profile, text in cases(model):
        alone, ranks = steps(model, "dp1", profile), steps(model, text, profile)
        assert ranks.reasons[0] is None, ranks.reasons[0]
        for row, how in enumerate(hows(model), start=1):
            if alone.reasons[row] is not None:
                assert isinstance(ranks.reasons[row], type(alone.reasons[row])), how
                continue
            if ranks.reasons[row] is not None:
                assert ranks.reasons[row].hint, how
                continue
            for name in ("step_s", "memory_mid_bytes"):
                here, there = getattr(alone, name), getattr(ranks, name)
                is_idle = here[row] == here[0]
                assert not is_idle or there[row] == pytest.approx(there[0], rel=1e-9), (name, how)


def counts(lowered: LoweredPass) -> np.ndarray:
    """How often each kind of op runs."""
    return np.bincount(lowered.costs.kind, weights=lowered.costs.count, minlength=len(OpKind))


@pytest.mark.parametrize("model", ["gpt2", *SLOW])
def test_ranks_that_serve_run_the_program_of_one_device(model: str) -> None:
    for profile, text in cases(model):
        for how in hows(model):
            degree = Strategy.parse(text).size("tp")
            try:
                alone = RankPasses.of(job(model, how, "dp1", profile))
                ranks = RankPasses.of(job(model, how, text, profile), tensor=degree)
            except InvalidInputError:
                continue  # as above
            for name, mine in ranks.lowered.items():
                assert np.array_equal(counts(mine), counts(alone.lowered[name])), (name, how, text)
