"""What requests see, by hand from the times of passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.parallelism.serving.batching import (
    EnginePasses,
    ServingRuns,
    hosted_step_s,
    request_times,
)
from paceline.stack.engines import EngineProfile

SECONDS = st.floats(1e-4, 1.0)
REQUESTS = st.integers(0, 1024)
ENGINE = EngineProfile(
    name="e", title="E", framework="torch", host="torch", platforms=("cuda",), mixes_prompts=True,
    path_s=0.5, memory_frac=0.9, chunk_tokens=64,
)  # fmt: skip


def runs(**changes: float) -> ServingRuns:
    asked = {"concurrency": 8.0, "input_tokens": 64.0, "output_tokens": 16.0, "rounds": 4.0}
    return ServingRuns(**{name: np.array([value]) for name, value in (asked | changes).items()})


def passes(prompt_s: float = 0.8, step_s: float = 0.3, weights_s: float = 0.25) -> EnginePasses:
    return EnginePasses(
        prompt_s=np.array([prompt_s]), step_s=np.array([step_s]), weights_s=np.array([weights_s])
    )


def test_a_first_token_waits_for_its_way_its_prompt_half_a_step_and_half_of_the_first_round():
    """Of 9 requests in 4 rounds, those before one in the queue are 4 on average, once in four."""
    got = request_times(runs(concurrency=9.0), passes(2.0, 0.25, 0.0), ENGINE)
    assert got.first_token_s[0] == pytest.approx(0.5 + 2.0 + 0.125 + 4 * 2.0 / 4)


@pytest.mark.parametrize(
    ("output_tokens", "prompts", "reads"), [(14.0, 0.5, 0.5), (7.0, 1.0, 1.0), (1.75, 4.0, 1.0)]
)
def test_weights_that_a_prompt_reads_beside_tokens_are_read_once(output_tokens, prompts, reads):
    """A step reads them once, however many prompts go with it; tokens of a prompt take their own.

    Of a prompt of 64 tokens in 0.8 s, eight requests' own tokens take 0.1 s beside the weights;
    seven others send prompts meanwhile.
    """
    asked = runs(output_tokens=output_tokens, rounds=np.inf)
    got = request_times(asked, passes(), ENGINE)
    assert got.per_token_s[0] == pytest.approx(0.3 + prompts * 0.8 - reads * (0.25 - 0.1))
    apart = request_times(asked, passes(), replace(ENGINE, mixes_prompts=False))
    assert apart.per_token_s[0] == pytest.approx(0.3 + prompts * 0.8)


def test_the_device_reads_each_prompt_once_and_writes_each_token_in_a_step():
    """Requests in flight are their rate times their time in the engine (Little's law)."""
    asked, apart = runs(), replace(ENGINE, mixes_prompts=False)
    got = request_times(asked, passes(), apart)
    per_s = asked.concurrency / got.request_s
    busy_s = 0.8 + 16.0 * 0.3 / 8.0
    assert per_s[0] == pytest.approx(1.0 / busy_s)


@given(st.integers(1, 512), st.integers(1, 4096), st.integers(1, 512), st.floats(1.0, 100.0))
def test_a_step_reads_whole_prompts_within_its_limit(requests, prompt, answer, rounds):
    asked = runs(
        concurrency=requests, input_tokens=prompt, output_tokens=answer, rounds=rounds
    )  # fmt: skip
    together = float(asked.prompts_together(2048.0)[0])
    assert 1.0 - 1e-12 <= together <= requests
    assert together == pytest.approx(1.0) or together * prompt <= 2048.0


@pytest.mark.parametrize("mixes", [True, False])
@pytest.mark.parametrize("rounds", [1.0, 4.0, np.inf])
def test_a_request_waits_for_its_first_token_and_then_for_the_others(mixes, rounds):
    """A prompt that waits is not written for, so that no wait counts twice."""
    engine = replace(ENGINE, mixes_prompts=mixes, chunk_tokens=256)
    asked = runs(rounds=rounds)
    got = request_times(asked, passes(), engine)
    first_s = got.first_token_s - 0.5 - 0.3 / 2.0
    assert first_s + 16.0 * got.per_token_s == pytest.approx(got.request_s)


def test_prompts_that_one_step_reads_hold_back_no_token():
    """All eight are read together, and all begin to write together."""
    got = request_times(runs(rounds=1.0), passes(), replace(ENGINE, chunk_tokens=8192))
    assert got.per_token_s[0] == pytest.approx(0.3)
    assert got.first_token_s[0] == pytest.approx(0.5 + 0.3 / 2.0 + 8 * 0.8)


def test_the_way_of_a_request_delays_its_first_token_and_no_other():
    far, near = (request_times(runs(), passes(), replace(ENGINE, path_s=s)) for s in (0.5, 0.0))
    assert far.first_token_s[0] == pytest.approx(near.first_token_s[0] + 0.5)
    assert far.per_token_s[0] == near.per_token_s[0]
    unknown = request_times(runs(), passes(), replace(ENGINE, path_s=None))
    assert np.isnan(unknown.first_token_s[0])


def test_the_host_of_an_engine_sets_the_pace_where_it_is_slower():
    slow = replace(ENGINE, request_s=1.0, overlaps_since=(1, 0))
    alone, beside, between = (
        float(request_times(runs(rounds=np.inf), passes(), engine).per_token_s[0])
        for engine in (ENGINE, slow, replace(slow, release=(0, 9)))
    )
    assert beside == 8.0
    assert between == pytest.approx(alone + 8.0)


def paced(step_s: float, requests: int, request_s: float, *, overlaps: bool) -> float:
    host_s = np.array(requests * request_s)
    return float(hosted_step_s(np.array(step_s), host_s, overlaps=overlaps))


@given(SECONDS, REQUESTS, st.floats(0.0, 1e-3))
def test_beside_the_device_is_never_slower_than_between_its_steps(step_s, requests, request_s):
    beside = paced(step_s, requests, request_s, overlaps=True)
    between = paced(step_s, requests, request_s, overlaps=False)
    assert step_s <= beside <= between <= 2 * beside + 1e-12


@given(SECONDS, REQUESTS, SECONDS)
def test_more_requests_are_never_faster(step_s, requests, request_s):
    for overlaps in (True, False):
        fewer = paced(step_s, requests, request_s, overlaps=overlaps)
        assert paced(step_s, requests + 1, request_s, overlaps=overlaps) >= fewer


def test_a_host_without_work_changes_nothing():
    assert paced(0.02, 64, 0.0, overlaps=False) == paced(0.02, 64, 0.0, overlaps=True) == 0.02
