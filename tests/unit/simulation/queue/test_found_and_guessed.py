"""Found prefixes, guessed tokens and adapters in the queue: limits, monotony, what stays."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from paceline.simulation.queue.adapter_slots import AdapterSlots
from paceline.simulation.queue.engine_tables import EngineTable
from paceline.simulation.queue.load import Lengths, Load, Requests
from paceline.simulation.queue.percentiles import summed_up
from paceline.simulation.queue.service import saturation
from paceline.simulation.queue.step_loop import Batching, StepTimes, Timeline, run_steps

_SIZES = np.arange(257.0)
_TIMES = StepTimes(
    write_s=0.01 + 2e-5 * _SIZES,
    context_s=np.full(257, 1e-8),
    read_s=np.maximum(0.01, 3e-6 * np.arange(8193.0)),
    attention_s=1e-12,
)
_ENGINE = Batching(max_requests=256, chunk_tokens=8192, cache_tokens=200_000)
_LOAD = Load(
    arrivals="poisson", prompt=Lengths(mean=1500, spread=1.0), output=Lengths(mean=150, spread=1.0),
    rate_per_s=10.0, num_requests=600,
)  # fmt: skip


def _run(batching: Batching, times: StepTimes = _TIMES, load: Load = _LOAD) -> Timeline:
    return run_steps(load.requests(), times, batching)


def _table(batching: Batching, times: StepTimes = _TIMES) -> EngineTable:
    return EngineTable(
        times=times, batching=batching, path_s=0.0, log_sigma=0.1, memory_bytes=1.0,
        capacity_bytes=2.0, knowledge=0,
    )  # fmt: skip


def _one(prompt: int, output: int) -> Requests:
    return Requests(
        arrival_s=np.zeros(1), prompt_tokens=np.array([prompt]), output_tokens=np.array([output])
    )


def test_what_is_found_is_not_read_and_first_tokens_come_sooner() -> None:
    times = replace(_TIMES, read_s=0.005 + 3e-6 * np.arange(8193.0))
    firsts = [
        summed_up([_run(replace(_ENGINE, prefix_share=share), times)]).first_token.mean_s
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    assert all(more < less for less, more in itertools.pairwise(firsts))


def test_a_prompt_that_is_found_whole_leaves_one_token_to_read() -> None:
    whole = replace(_ENGINE, prefix_share=1.0)
    times = replace(_TIMES, read_s=np.arange(8193.0), attention_s=1e-3)
    run = run_steps(_one(1000, 1), times, whole)
    assert run.finish_s[0] == pytest.approx(1.0 + 1e-3 * (1000**2 - 999**2))


def test_attention_looks_back_on_what_was_found() -> None:
    """The part that is found and the part that is read take together what the whole takes."""
    times = StepTimes(
        write_s=np.zeros(2), context_s=np.zeros(2), read_s=np.zeros(8193), attention_s=1e-6
    )
    took = [
        run_steps(_one(1000, 1), times, replace(_ENGINE, prefix_share=share)).finish_s[0]
        for share in (0.0, 0.4)
    ]
    assert took[0] - took[1] == pytest.approx(1e-6 * 400**2)


def test_found_prefixes_take_their_room_all_the_same() -> None:
    """Where the cache is what limits, and reading costs nothing, they gain nothing."""
    times = replace(_TIMES, read_s=np.zeros(8193), attention_s=0.0)
    tight = replace(_ENGINE, cache_tokens=12_000)
    rates = [
        saturation(_table(replace(tight, prefix_share=share), times), _LOAD).requests_per_s
        for share in (0.0, 0.9)
    ]
    assert rates[1] == pytest.approx(rates[0], rel=0.01)


def test_an_answer_takes_as_many_steps_as_its_tokens_over_those_of_a_step() -> None:
    flat = StepTimes(
        write_s=np.full(2, 0.01), context_s=np.zeros(2), read_s=np.full(8193, 0.02),
        draft_s=np.full(2, 0.005),
    )  # fmt: skip
    guessing = replace(_ENGINE, max_requests=1, tokens_per_step=2.5, tokens_checked=4)
    run = run_steps(_one(100, 101), flat, guessing)
    assert run.finish_s[0] == pytest.approx(0.02 + 40 * 0.015)


def test_guesses_that_are_never_kept_cost_their_time() -> None:
    times = replace(_TIMES, draft_s=np.full(257, 0.002))
    guessing = replace(_ENGINE, tokens_checked=4)
    plain, slow = (summed_up([_run(*how)]) for how in ((_ENGINE,), (guessing, times)))
    assert slow.per_token.mean_s > plain.per_token.mean_s
    assert slow.first_token.mean_s > plain.first_token.mean_s


@pytest.mark.parametrize("cache_tokens", [200_000, 12_000])
def test_every_token_of_an_answer_takes_room_while_guesses_are_kept(cache_tokens: int) -> None:
    """Whoever runs fills the cache by all of its tokens and leaves it empty, evictions or not."""
    guessing = replace(
        _ENGINE, tokens_per_step=2.31, tokens_checked=5, cache_tokens=float(cache_tokens)
    )
    run = _run(guessing)
    assert np.isfinite(run.finish_s).all()
    assert (run.num_preempted > 0) == (cache_tokens == 12_000)
    late = replace(_LOAD, rate_per_s=1e-3, num_requests=50)
    alone = _run(guessing, load=late)
    assert alone.num_preempted == 0


def test_as_many_adapters_as_are_held_change_nothing() -> None:
    plain, held = (
        _run(replace(_ENGINE, num_adapters=count, held_adapters=count, load_s=1.0))
        for count in (0, 32)
    )
    np.testing.assert_array_equal(plain.finish_s, held.finish_s)


def test_fewer_adapters_at_once_make_requests_wait() -> None:
    firsts = [
        summed_up([_run(replace(_ENGINE, num_adapters=64, held_adapters=held))]).first_token.mean_s
        for held in (1, 4, 16, 64)
    ]
    assert all(more < less for less, more in itertools.pairwise(firsts))
    slow = replace(_ENGINE, num_adapters=64, held_adapters=16, load_s=0.05)
    assert summed_up([_run(slow)]).first_token.mean_s > firsts[2]


@pytest.mark.parametrize("held", [1, 3])
def test_requests_in_flight_never_have_more_adapters_than_are_held(held: int) -> None:
    slots = AdapterSlots(400, num_adapters=10, num_held=held, load_s=0.5)
    for number in range(400):
        slots.append(number)
    running: list[int] = []
    done: list[int] = []
    brought_s = 0.0
    rng = np.random.default_rng(1)
    while len(slots) or running:
        first = slots.first()
        if first is not None:
            brought_s += slots.take(first)
            running.append(first)
        if running and (first is None or rng.random() < 0.4):
            done.append(running.pop(int(rng.integers(len(running)))))
            slots.give(done[-1])
        asked = {slots._of[one] for one in running}
        assert len(asked) <= held
        assert asked <= set(slots._there)
    assert sorted(done) == list(range(400))
    assert brought_s > 0.0


def test_the_first_that_may_run_goes_before_those_that_came_later() -> None:
    slots = AdapterSlots(50, num_adapters=5, num_held=1, load_s=0.0)
    for number in range(50):
        slots.append(number)
    assert slots.first() == 0
    slots.take(0)
    alike = [one for one in range(1, 50) if slots._of[one] == slots._of[0]]
    assert slots.first() == alike[0]
    slots.give(0)
    assert slots.first() == 1
    slots.appendleft(0)
    assert slots.first() == 0
