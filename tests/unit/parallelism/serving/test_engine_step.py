from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.catalog.entities import Link
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import PacelineError
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.engine_sums import (
    OWN_KERNEL,
    engine_all_reduce_s,
    engine_sums_of,
)
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.collectives.times import RankGroup, all_gather_s
from paceline.parallelism.serving.batching import (
    EnginePasses,
    ServingRuns,
    ServingTimes,
    request_times,
)
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate
from paceline.stack.engines import find_engine

CATALOG = load_catalog()
NVLINK4 = next(link for link in CATALOG.links if link.name == "nvlink4")


def runs(**changes: float | np.ndarray) -> ServingRuns:
    asked = {"concurrency": 16.0, "input_tokens": 1024.0, "output_tokens": 512.0, "rounds": 10.0}
    values = np.broadcast_arrays(*(np.atleast_1d(v) for v in (asked | changes).values()))
    return ServingRuns(**dict(zip(asked, values, strict=True)))


def times(
    name: str = "llama-3-8b",
    num_ranks: int = 1,
    link: Link | None = NVLINK4,
    *,
    splits_experts: bool = False,
    **changes: float | np.ndarray,
) -> ServingTimes:
    device = find_device(CATALOG, "H100 SXM5 80GB")
    asked, engine = runs(**changes), find_engine("vllm").on(device)
    columns = (asked.concurrency, asked.input_tokens, asked.output_tokens, asked.rounds)
    jobs = [
        Job(
            workload=load_workload(name, task="infer"),
            configuration=Configuration(precision="bf16"),
            strategy=Strategy.from_degrees(tp=num_ranks),
            batch=batch,
            prompt_tokens=int(prompt),
            output_tokens=int(output),
            rounds=each,
            profile=str(engine),
            habits=("whole",) if splits_experts else (),
        )
        for batch, prompt, output, each in zip(*columns, strict=True)
    ]
    machine = Machine.of(device, num_ranks, device_link=link)
    steps = simulate(jobs, [machine] * len(jobs))
    steps.check_known()
    return request_times(asked, EnginePasses.of(steps), engine)


def own_sums_s(message_bytes: np.ndarray, num_ranks: int, link: Link = NVLINK4) -> np.ndarray:
    table = LinkTable.from_links([link])
    group = RankGroup.of(np.full(len(message_bytes), num_ranks), num_ranks, table, table)
    return engine_all_reduce_s(message_bytes, group, engine_sums_of(table, kernel=OWN_KERNEL))


def gathered_logits_s(num_ranks: int, vocabulary: int) -> float:
    """Sixteen rows of a vocabulary that ranks share, once a step."""
    table = LinkTable.from_links([NVLINK4])
    group = RankGroup.of(np.array([float(num_ranks)]), num_ranks, table, table)
    return float(all_gather_s(16 * vocabulary * 2.0, group)[0])


def test_a_step_reads_all_weights_at_least_once() -> None:
    weights_s = 2 * 8.0e9 / 3.352e12
    assert float(times().step_s[0]) > 0.9 * weights_s


def test_more_requests_in_flight_wait_longer_for_each_token() -> None:
    few, many = times(concurrency=4.0), times(concurrency=128.0)
    assert many.per_token_s[0] > few.per_token_s[0]
    assert many.first_token_s[0] > few.first_token_s[0]


def test_prompts_are_read_in_the_time_of_the_tokens_of_others() -> None:
    """A step that does both reads the weights once, so that it takes less than one and one."""
    got = times(rounds=np.inf)
    others = 15.0 / 512.0
    apart = float(got.step_s[0] + got.prompt_s[0] * others)
    assert got.per_token_s[0] < apart
    assert got.per_token_s[0] > apart - float(got.weights_s[0]) * others


def test_one_request_on_one_rank_is_its_prompt_and_its_tokens() -> None:
    got = times(concurrency=1.0)
    assert got.per_token_s[0] == got.step_s[0]
    expected_s = float(got.prompt_s[0] + 512.0 * got.step_s[0])
    assert got.request_s[0] == pytest.approx(expected_s, rel=1e-12)
    assert got.first_token_s[0] == find_engine("vllm").path_s + got.prompt_s[0]


@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b"])
def test_more_concurrency_never_lowers_time_per_token_and_never_the_rate(name: str) -> None:
    levels = 2.0 ** np.arange(0, 10)
    got = times(name, concurrency=levels)
    assert np.all(np.diff(got.per_token_s) >= 0)
    assert np.all(np.diff(got.first_token_s) > 0)
    assert np.all(np.diff(levels / got.request_s) > 0)


def test_a_longer_prompt_waits_longer_for_its_first_token() -> None:
    lengths = 2.0 ** np.arange(6, 15)
    got = times(input_tokens=lengths)
    assert np.all(np.diff(got.first_token_s) > 0)
    assert np.all(np.diff(got.per_token_s) > 0)


@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b"])
def test_two_ranks_take_between_half_and_one_of_one_and_what_they_exchange(name: str) -> None:
    one, two = times(name), times(name, num_ranks=2)
    exchange_s = float(two.collective_s[0])
    assert one.per_token_s[0] / 2 < two.per_token_s[0]
    assert two.step_s[0] < one.step_s[0] + exchange_s


def test_ranks_that_keep_whole_experts_wait_for_the_busiest() -> None:
    thin = times("mixtral-8x7b", num_ranks=4, concurrency=1.0)
    whole = times("mixtral-8x7b", num_ranks=4, concurrency=1.0, splits_experts=True)
    assert whole.per_token_s[0] > thin.per_token_s[0]


def test_a_prompt_waits_for_half_of_the_first_round() -> None:
    once, often = (times(input_tokens=8192.0, rounds=rounds) for rounds in (1.0, 1e9))
    waited = once.first_token_s[0] - often.first_token_s[0]
    assert waited == pytest.approx(7.5 * float(once.prompt_s[0]))


@pytest.mark.parametrize("num_ranks", [1, 4])
@pytest.mark.parametrize("name", ["llama-3-8b", "mixtral-8x7b"])
def test_short_prompts_of_one_step_read_the_weights_once(name: str, num_ranks: int) -> None:
    """Between one prompt and as many after one another, and all weights at least once."""
    counts = 2.0 ** np.arange(7)
    asked = {"concurrency": counts, "input_tokens": 32.0, "rounds": 1.0}
    got = times(name, num_ranks, **asked)
    step_s = counts * got.prompt_s
    assert np.all(step_s <= counts * step_s[0] * (1.0 + 1e-9))
    assert np.all(np.diff(step_s) > 0)
    assert np.all(step_s > 2 * 8.0e9 / num_ranks / 3.352e12)
    assert step_s[-1] < 16 * step_s[0]


def test_ranks_share_a_step_and_sum_twice_a_layer_and_gather_logits() -> None:
    one, four = times(), times(num_ranks=4)
    assert one.collective_s[0] == 0.0
    assert four.step_s[0] < one.step_s[0]
    message = np.array([16 * 4096 * 2.0])
    each = float(own_sums_s(message, 4)[0])
    expected_s = 65 * each + gathered_logits_s(4, 128_256)
    assert four.collective_s[0] == pytest.approx(expected_s, rel=1e-6)


def test_ranks_beyond_the_heads_of_keys_and_values_keep_copies() -> None:
    """Where reading the cache takes most of a step, ranks that read the same heads save nothing."""
    four, eight, sixteen = (
        float(got.step_s[0] - got.collective_s[0])
        for got in (times(num_ranks=n, concurrency=256.0, input_tokens=16384.0) for n in (4, 8, 16))
    )
    assert eight < 0.6 * four
    assert sixteen > 0.75 * eight


def test_own_sums_of_engines_are_faster_where_messages_are_small() -> None:
    unknown = replace(NVLINK4, kind="unheard-of")
    sizes = np.array([16384.0, 1e9])
    own, library = (own_sums_s(sizes, 8, link) for link in (NVLINK4, unknown))
    assert own[0] < 0.5 * library[0]
    assert np.all(np.diff(own) > 0)


def test_ranks_without_a_link_are_refused() -> None:
    with pytest.raises(PacelineError, match="link"):
        times(num_ranks=2, link=None)


def test_experts_of_a_layer_are_added_before_they_are_sent() -> None:
    """Mixtral sends each token to two experts; one row a token is summed, twice a layer."""
    got = times("mixtral-8x7b", num_ranks=4)
    each = float(own_sums_s(np.array([16 * 4096 * 2.0]), 4)[0])
    expected_s = 65 * each + gathered_logits_s(4, 32_000)
    assert got.collective_s[0] == pytest.approx(expected_s, rel=1e-6)
