"""Laws of queues that the step loop keeps, whatever the engine."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from tests.sampled import sampled

from paceline.errors import InvalidInputError
from paceline.simulation.queue.engine_tables import EngineTable
from paceline.simulation.queue.load import Lengths, Load, Requests
from paceline.simulation.queue.percentiles import Served, summed_up
from paceline.simulation.queue.service import (
    Limit,
    Limits,
    keeps,
    rate_within,
    saturation,
    served,
    steady,
)
from paceline.simulation.queue.step_loop import Batching, StepTimes, Timeline, run_steps

_SIZES = np.arange(257.0)
_TIMES = StepTimes(
    write_s=0.01 + 2e-5 * _SIZES,
    context_s=np.full(257, 1e-8),
    read_s=np.maximum(0.01, 3e-6 * np.arange(8193.0)),
    attention_s=1e-12,
)
_ENGINE = Batching(max_requests=256, chunk_tokens=8192, cache_tokens=200_000)
_ENGINES = {
    "mixes": _ENGINE,
    "reads first": replace(_ENGINE, mixes_prompts=False),
    "small chunks": replace(_ENGINE, chunk_tokens=300),
    "reserves": replace(_ENGINE, reserves_answers=True, cache_tokens=20_000),
    "evicts": replace(_ENGINE, cache_tokens=6_000),
    "searches": replace(_ENGINE, beams=4, cache_tokens=20_000),
    "host between steps": replace(_ENGINE, host_s=5e-5, overlaps=False),
}
_TABLE = EngineTable(
    times=_TIMES, batching=_ENGINE, path_s=0.0, log_sigma=0.1, memory_bytes=1.0,
    capacity_bytes=2.0, knowledge=0,
)  # fmt: skip
_LOAD = Load(
    arrivals="poisson",
    prompt=Lengths(mean=500, spread=1.0),
    output=Lengths(mean=150, spread=1.0),
    rate_per_s=20.0,
    num_requests=1000,
)
_CLOSED = replace(_LOAD, arrivals="closed", concurrency=32)


def _run(load: Load, batching: Batching = _ENGINE, times: StepTimes = _TIMES) -> Timeline:
    return run_steps(load.requests(), times, batching)


def _seen(load: Load, batching: Batching = _ENGINE) -> Served:
    return summed_up([_run(load, batching)])


@pytest.mark.parametrize("batching", _ENGINES.values(), ids=_ENGINES)
@pytest.mark.parametrize("load", [_LOAD, _CLOSED], ids=["poisson", "closed"])
def test_littles_law_holds(load: Load, batching: Batching) -> None:
    run = _run(load, batching)
    seen = summed_up([run])
    times = np.sort(np.concatenate([run.arrival_s, run.finish_s]))
    middle = (times[1:] + times[:-1]) / 2.0
    arrived = np.searchsorted(np.sort(run.arrival_s), middle, side="right")
    finished = np.searchsorted(np.sort(run.finish_s), middle, side="right")
    counted = float(((arrived - finished) * np.diff(times)).sum() / (times[-1] - times[0]))
    assert seen.requests_per_s * seen.request.mean_s == pytest.approx(counted)


@pytest.mark.parametrize("batching", _ENGINES.values(), ids=_ENGINES)
def test_every_request_is_served_in_order_of_its_own_events(batching: Batching) -> None:
    run = _run(_LOAD, batching)
    assert (run.first_token_s > run.arrival_s).all()
    assert (run.finish_s >= run.first_token_s).all()
    several = run.requests.output_tokens > 1
    least_s = 0.01 * (run.requests.output_tokens - 1)
    assert ((run.finish_s - run.first_token_s)[several] > 0.99 * least_s[several]).all()


@pytest.mark.parametrize("load_frac", [0.3, 0.6, 0.8])
def test_one_at_a_time_in_equal_times_is_m_d_1(load_frac: float) -> None:
    times = StepTimes(write_s=np.zeros(2), context_s=np.zeros(2), read_s=np.array([0.0, 1.0]))
    one = Lengths(mean=1)
    load = Load(
        arrivals="poisson", prompt=one, output=one, rate_per_s=load_frac, num_requests=100_000
    )
    seen = summed_up([_run(load, Batching(max_requests=1, chunk_tokens=1), times)])
    wait_s = load_frac / (2.0 * (1.0 - load_frac))
    assert seen.request.mean_s == pytest.approx(1.0 + wait_s, rel=0.04)


@pytest.mark.parametrize("load_frac", sampled([0.3, 0.6, 0.8], 0.6))
def test_one_at_a_time_in_exponential_times_is_m_m_1(load_frac: float) -> None:
    rng = np.random.default_rng(3)
    count, tokens = 100_000, 10_000
    requests = Requests(
        arrival_s=np.cumsum(rng.standard_exponential(count) / load_frac),
        prompt_tokens=np.ones(count, dtype=np.int64),
        output_tokens=1 + np.rint(tokens * rng.standard_exponential(count)).astype(np.int64),
    )
    times = StepTimes(
        write_s=np.full(2, 1.0 / tokens), context_s=np.zeros(2), read_s=np.array([0.0, 0.0])
    )
    run = run_steps(requests, times, Batching(max_requests=1, chunk_tokens=1))
    mean_s = float((run.finish_s - run.arrival_s).mean())
    assert mean_s == pytest.approx(1.0 / (1.0 - load_frac), rel=0.06)


@pytest.mark.parametrize("batching", _ENGINES.values(), ids=_ENGINES)
def test_a_closed_loop_keeps_its_concurrency(batching: Batching) -> None:
    run = _run(_CLOSED, batching)
    ends = np.sort(run.finish_s)
    starts = np.sort(run.arrival_s)
    np.testing.assert_allclose(starts[32:], ends[: len(starts) - 32])
    assert (starts[:32] == 0.0).all()


def test_percentiles_rise_with_the_rate() -> None:
    runs = [_seen(_LOAD.at_rate(rate)) for rate in (1.0, 5.0, 20.0, 60.0, 200.0)]
    for less, more in itertools.pairwise(runs):
        for name in ("first_token", "per_token", "request"):
            for percentile in ("p50_s", "p95_s", "p99_s"):
                low, high = (getattr(getattr(one, name), percentile) for one in (less, more))
                assert low <= high * 1.02


def test_beyond_capacity_the_queue_grows_and_below_it_does_not() -> None:
    capacity = saturation(_TABLE, _LOAD).requests_per_s

    def wait_growth_s(rate: float) -> float:
        load = replace(_LOAD, num_requests=12_000).at_rate(rate)
        run = run_steps(load.requests(), _TIMES, _ENGINE)
        wait_s = run.first_token_s - run.arrival_s
        return float(wait_s[-1000:].mean() - wait_s[3000:4000].mean())

    assert wait_growth_s(0.85 * capacity) < 1.0
    assert wait_growth_s(1.15 * capacity) > 5.0


def test_a_rate_within_limits_keeps_them_and_none_within_the_impossible() -> None:
    limits: Limits = {"first_token": Limit(percentile=99, seconds=0.1)}
    rate = rate_within(_TABLE, _LOAD, limits)
    assert 0.0 < rate <= saturation(_TABLE, _LOAD).requests_per_s
    assert keeps(served(_TABLE, _LOAD.at_rate(rate).requests()), limits)
    assert not keeps(served(_TABLE, _LOAD.at_rate(1.5 * rate).requests()), limits)
    assert rate_within(_TABLE, _LOAD, {"per_token": Limit(percentile=50, seconds=0.001)}) == 0.0


def test_times_are_those_of_a_run_without_end() -> None:
    rate = 0.9 * saturation(_TABLE, _LOAD).requests_per_s
    long = replace(_LOAD, num_requests=30_000).at_rate(rate)
    short = steady(_TABLE, replace(_LOAD, num_requests=500).at_rate(rate))
    seen = served(_TABLE, long.requests())
    for name in ("per_token", "first_token"):
        mine, endless = getattr(short, name), getattr(seen, name)
        assert mine.p50_s == pytest.approx(endless.p50_s, rel=0.15)
    filling = served(_TABLE, replace(_LOAD, num_requests=500).at_rate(rate).requests())
    assert filling.per_token.p50_s < short.per_token.p50_s


def test_replicas_share_what_comes() -> None:
    load = replace(_LOAD, num_requests=4000, rate_per_s=40.0)
    two = served(_TABLE, load.requests(), num_replicas=2)
    one = served(_TABLE, load.at_rate(20.0).requests())
    assert two.num_requests == 4000
    assert two.per_token.p50_s == pytest.approx(one.per_token.p50_s, rel=0.1)


def test_a_closed_loop_of_one_request_keeps_one_replica_busy() -> None:
    load = replace(_LOAD, arrivals="closed", concurrency=1, rate_per_s=None, num_requests=50)
    two = served(_TABLE, load.requests(), num_replicas=2)
    one = served(_TABLE, load.requests())
    assert two.num_requests == 50
    assert two.requests_per_s == pytest.approx(one.requests_per_s)


def test_an_evicted_request_reads_again_and_loses_nothing() -> None:
    run = _run(_LOAD, _ENGINES["evicts"])
    free = _run(_LOAD)
    assert run.num_preempted > 0
    assert free.num_preempted == 0
    assert np.isfinite(run.finish_s).all()
    assert run.finish_s.max() > free.finish_s.max()


def test_a_request_alone_takes_its_prompt_and_its_steps() -> None:
    requests = Requests(
        arrival_s=np.zeros(1), prompt_tokens=np.array([1000]), output_tokens=np.array([101])
    )
    run = run_steps(requests, _TIMES, _ENGINE)
    read_s = max(0.01, 3e-6 * 1000) + 1e-12 * 1000**2
    context = 1001 + 99 / 2.0
    assert run.first_token_s[0] == pytest.approx(read_s)
    written_s = 100 * (0.01 + 2e-5 + 1e-8 * context)
    assert run.finish_s[0] - run.first_token_s[0] == pytest.approx(written_s)


def test_chunks_of_a_prompt_add_up_to_its_attention() -> None:
    requests = Requests(
        arrival_s=np.zeros(1), prompt_tokens=np.array([6000]), output_tokens=np.array([1])
    )
    times = replace(_TIMES, read_s=3e-6 * np.arange(8193.0))
    whole, chunked = (
        run_steps(requests, times, replace(_ENGINE, chunk_tokens=chunk)).first_token_s[0]
        for chunk in (8192, 1000)
    )
    assert whole == pytest.approx(chunked)


def test_the_same_seed_gives_the_same_run_and_another_does_not() -> None:
    first, again, other = (_seen(replace(_LOAD, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_request_longer_than_the_cache_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="does not fit the cache"):
        _run(replace(_LOAD, prompt=Lengths(mean=9000)), _ENGINES["evicts"])


def test_a_leap_of_steps_takes_what_single_steps_take() -> None:
    long = Requests(
        arrival_s=np.zeros(1), prompt_tokens=np.array([10]), output_tokens=np.array([50])
    )
    alone = run_steps(long, _TIMES, _ENGINE)
    steps = [0.01 + 2e-5 + 1e-8 * (11 + step) for step in range(49)]
    assert alone.finish_s[0] - alone.first_token_s[0] == pytest.approx(math.fsum(steps))


@pytest.mark.parametrize("load", [_LOAD, _CLOSED])
def test_answers_that_come_whole_take_no_longer_for_more_tokens(load: Load) -> None:
    nothing = np.zeros(2)
    times = replace(_TIMES, write_s=nothing, context_s=nothing, read_s=0.1 + 0.01 * _SIZES[:65])
    whole = Batching(max_requests=64, chunk_tokens=64, mixes_prompts=False, answers_whole=True)
    longer = replace(load, output=Lengths(mean=900, spread=1.0))
    one, other = _run(load, whole, times), _run(longer, whole, times)
    assert np.array_equal(one.finish_s, other.finish_s)
    assert np.array_equal(one.first_token_s, one.finish_s)


def test_beams_share_the_prompt_that_they_look_back_on() -> None:
    one = Requests(
        arrival_s=np.zeros(1), prompt_tokens=np.array([1000]), output_tokens=np.array([101])
    )
    flat = StepTimes(
        write_s=np.full(2, 0.01), context_s=np.full(2, 1e-6), read_s=np.full(1101, 0.02)
    )
    took_s = {
        beams: float(
            run_steps(one, flat, replace(_ENGINE, max_requests=1, beams=beams)).finish_s[0]
        )
        for beams in (1, 4)
    }
    looked_back = 1000 * 100 + sum(range(1, 101))
    assert took_s[1] == pytest.approx(0.02 + 100 * 0.01 + 1e-6 * looked_back)
    assert took_s[4] - took_s[1] == pytest.approx(1e-6 * 3 * sum(range(1, 101)))


def test_a_search_takes_less_of_the_cache_than_its_beams_apart() -> None:
    requests = _LOAD.requests()
    searched = replace(_ENGINE, beams=4)
    assert (searched.tokens_of(requests) < 4 * _ENGINE.tokens_of(requests)).all()
    tight = replace(searched, cache_tokens=float(searched.tokens_of(requests).max()) - 1)
    with pytest.raises(InvalidInputError, match="does not fit the cache"):
        run_steps(requests, _TIMES, tight)


@pytest.mark.parametrize("output", [150, 2000, 6000])
def test_capacity_is_that_of_a_long_backlog_however_much_answers_grow(output: int) -> None:
    """Prompts of 100 tokens are admitted long before the cache has room for their answers."""
    load = Load(
        arrivals="at-once", prompt=Lengths(mean=100), output=Lengths(mean=output), num_requests=2000
    )
    table = replace(_TABLE, batching=replace(_ENGINE, cache_tokens=20_000))
    seen = summed_up([_run(load, table.batching)])
    assert saturation(table, load).requests_per_s == pytest.approx(seen.requests_per_s, rel=0.2)
