from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.catalog import Link, find_device, load_catalog
from paceline.errors import InvalidInputError
from paceline.parallel.collectives import RankGroup, all_gather_s
from paceline.parallel.links import LinkTable
from paceline.parallel.serving import (
    ServingRuns,
    ServingTimes,
    fastest,
    serving_times,
)
from paceline.parallel.split.serving_ranks import engine_all_reduce_s
from paceline.predict import DeviceTable, builtin_calibration
from paceline.trace import Configuration, load_workload

CATALOG = load_catalog()
NVLINK4 = next(link for link in CATALOG.links if link.name == "nvlink4")


def runs(**changes: float) -> ServingRuns:
    asked = {"concurrency": 16.0, "input_tokens": 1024.0, "output_tokens": 512.0, "rounds": 10.0}
    return ServingRuns(**{name: np.array([value]) for name, value in (asked | changes).items()})


def times(
    name: str = "llama-3-8b", num_ranks: int = 1, link: Link | None = NVLINK4, **changes: float
) -> ServingTimes:
    return serving_times(
        load_workload(name, task="infer"),
        Configuration(precision="bf16", compiler="compiled"),
        DeviceTable.from_devices([find_device(CATALOG, "H100 SXM5 80GB")]),
        runs(**changes),
        calibration=builtin_calibration(),
        num_ranks=num_ranks,
        link=link,
    )


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
    got = times()
    apart = float(got.step_s[0] + got.prompt_s[0] * 16.0 / 512.0)
    assert got.per_token_s[0] < apart
    assert got.per_token_s[0] > apart - float(got.weights_s[0]) * 16.0 / 512.0


def test_a_prompt_waits_for_half_of_the_first_round() -> None:
    once, often = times(rounds=1.0), times(rounds=1e9)
    waited = once.first_token_s[0] - often.first_token_s[0]
    assert waited == pytest.approx(7.5 * float(once.prompt_s[0]))


def test_ranks_share_a_step_and_sum_twice_a_layer_and_gather_logits() -> None:
    one, four = times(), times(num_ranks=4)
    assert one.collective_s[0] == 0.0
    assert four.step_s[0] < one.step_s[0]
    message = np.array([16 * 4096 * 2.0])
    each = float(engine_all_reduce_s(message, 4, NVLINK4)[0])
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
    own, library = (engine_all_reduce_s(sizes, 8, link) for link in (NVLINK4, unknown))
    assert own[0] < 0.5 * library[0]
    assert np.all(np.diff(own) > 0)


def test_without_a_link_ranks_never_finish() -> None:
    assert np.isinf(times(num_ranks=2, link=None).per_token_s[0])


def test_what_does_not_generate_is_not_served() -> None:
    with pytest.raises(InvalidInputError, match="does not generate"):
        times("resnet50")


def test_the_fastest_way_of_each_pass_is_taken() -> None:
    one = times()
    other = replace(one, prompt_s=one.prompt_s / 2, step_s=one.step_s * 2)
    got = fastest(runs(), (one, other))
    assert got.step_s == one.step_s
    assert got.prompt_s == other.prompt_s
    assert got.per_token_s[0] < one.per_token_s[0]


def made(prompt_s: float, step_s: float, weights_s: float) -> ServingTimes:
    names = ("first_token_s", "per_token_s", "prompt_s", "step_s", "collective_s", "weights_s")
    seconds = (0.0, 0.0, prompt_s, step_s, 0.0, weights_s)
    return ServingTimes(**{n: np.array([s]) for n, s in zip(names, seconds, strict=True)})


def test_a_first_token_waits_for_its_way_its_prompt_half_a_step_and_half_of_the_first_round():
    """Of 9 requests in 4 rounds, those before one in the queue are 4 on average, once in four."""
    asked = runs(concurrency=9.0, rounds=4.0, path_s=0.5)
    got = fastest(asked, [made(prompt_s=2.0, step_s=0.25, weights_s=0.0)])
    assert got.first_token_s[0] == pytest.approx(0.5 + 2.0 + 0.125 + 4 * 2.0 / 4)


@pytest.mark.parametrize(
    ("output_tokens", "prompts", "reads"), [(16.0, 0.5, 0.5), (8.0, 1.0, 1.0), (2.0, 4.0, 1.0)]
)
def test_weights_that_a_prompt_reads_beside_tokens_are_read_once(output_tokens, prompts, reads):
    """A step reads them once, however many prompts go with it; tokens of a prompt take their own.

    Of a prompt of 64 tokens in 0.8 s, eight requests' own tokens take 0.1 s beside the weights.
    """
    asked = runs(concurrency=8.0, input_tokens=64.0, output_tokens=output_tokens)
    got = fastest(asked, [made(prompt_s=0.8, step_s=0.3, weights_s=0.25)])
    assert got.per_token_s[0] == pytest.approx(0.3 + prompts * 0.8 - reads * (0.25 - 0.1))
    apart = fastest(replace(asked, mixes=False), [made(0.8, 0.3, 0.25)])
    assert apart.per_token_s[0] == pytest.approx(0.3 + prompts * 0.8)


def test_experts_of_a_layer_are_added_before_they_are_sent() -> None:
    """Mixtral sends each token to two experts; one row a token is summed, twice a layer."""
    got = times("mixtral-8x7b", num_ranks=4)
    each = float(engine_all_reduce_s(np.array([16 * 4096 * 2.0]), 4, NVLINK4)[0])
    expected_s = 65 * each + gathered_logits_s(4, 32_000)
    assert got.collective_s[0] == pytest.approx(expected_s, rel=1e-6)


def test_the_way_of_a_request_delays_its_first_token_and_no_other() -> None:
    """Of an engine that is called in its own process there is no way."""
    behind_http, in_process = times(path_s=0.025), times()
    assert behind_http.first_token_s[0] == pytest.approx(in_process.first_token_s[0] + 0.025)
    assert behind_http.per_token_s[0] == in_process.per_token_s[0]
