"""Serving a language model on ranks that share every layer: time to the first token, and per token.

Shape legend: R runs. All ranks hold the same requests; each has its share of heads, of widths and
of the experts' widths, and sums what it made twice a layer. Ranks beyond the heads of keys and
values keep copies of them.

Sources:
    Shoeybi et al., arXiv 1909.08053 (the split); Agrawal et al., "Taming Throughput-Latency
    Tradeoff in LLM Inference with Sarathi-Serve", OSDI 2024, section 3 (prompts and tokens share
    the device's time); vLLM, ``csrc/custom_all_reduce.cuh`` (sums of one or of two steps).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.catalog import Link
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.errors import InvalidInputError
from paceline.parallel.split.serving_ranks import ServedRanks, exchange_s, rank_pass
from paceline.predict import Calibration, DeviceTable, Points, predict_pass
from paceline.trace.costs import Configuration
from paceline.trace.graph import FloatArray, Graph
from paceline.trace.lowering import lower
from paceline.trace.workload import Workload

#: Whose host dispatch applies.
_ENGINE = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingRuns:
    """Runs in which a client keeps a number of equal requests in flight; (R,) each.

    Attributes:
        concurrency: Requests in flight.
        input_tokens: Of a prompt.
        output_tokens: Written for each.
        rounds: Requests that follow one another in each place: of the first, all prompts come at
            once and wait for each other; later they come one by one.
        mixes: Whether the engine reads a prompt in the step that writes tokens.
        path_s: Way of a request from its client to the engine and of its first token back; nothing
            for an engine that is called in its own process.
    """

    concurrency: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    rounds: FloatArray
    mixes: bool = True
    path_s: float | FloatArray = 0.0

    @property
    def mean_context(self) -> FloatArray:
        """Tokens that a step looks back on, halfway through a request."""
        return self.input_tokens + self.output_tokens / 2.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingTimes:
    """What requests see; (R,) each.

    Attributes:
        first_token_s: From sending a prompt to its first token, on average.
        per_token_s: From one token to the next, on average.
        prompt_s: Of it, reading one prompt takes the device so long.
        step_s: One step that writes a token for every request.
        collective_s: Of a step, sums over ranks.
        weights_s: Of a step, all but those and what grows with the context.
    """

    first_token_s: FloatArray
    per_token_s: FloatArray
    prompt_s: FloatArray
    step_s: FloatArray
    collective_s: FloatArray
    weights_s: FloatArray


def serving_times(
    workload: Workload, configuration: Configuration, device: DeviceTable, runs: ServingRuns, *,
    calibration: Calibration, num_ranks: int = 1, link: Link | None = None,
) -> ServingTimes:  # fmt: skip
    """Times of ``runs`` on ``num_ranks`` devices of one node.

    A token waits for the step that writes it, and for its share of the prompts that are read
    meanwhile: as many as requests end. A step that reads a prompt too reads weights once for both
    (Sarathi-Serve). A prompt waits for the step that is running and, in the first round, for half
    of the others, beside the way of its request.

    Args:
        workload: Inference with the passes prefill and decode.
        configuration: How ranks run it.
        device: A table of one device.
        runs: What is asked of it.
        calibration: Of the predictor.
        num_ranks: Tensor-parallel ranks.
        link: Between them; None where it is unknown.

    Raises:
        InvalidInputError: The workload does not generate, or cannot be split so many ways.
    """
    passes = {one.name: one.graph for one in workload.passes}
    if not {"prefill", "decode"} <= passes.keys():
        raise InvalidInputError(
            f"{workload.name} does not generate tokens", hint="serve a causal language model"
        )
    engine = replace(configuration, is_served=True)
    one = np.ones_like(runs.concurrency)
    tokens = Points(
        batch=np.tile(runs.concurrency, 2), seq=np.concatenate((runs.mean_context, one))
    )
    times = {}
    for name, points in (
        ("prefill", Points(batch=one, seq=runs.input_tokens)),
        ("decode", tokens),
    ):
        times[name] = _pass_s(
            passes[name], engine, device, points, calibration=calibration, num_ranks=num_ranks,
            link=link,
        )  # fmt: skip
    (_, prompt_s, sums_s), (step_s, _, collective_s) = times["prefill"], times["decode"]
    (step_s, weights_s), (collective_s, _) = (np.split(s, 2) for s in (step_s, collective_s))
    return _seen(runs, prompt_s + sums_s, step_s + collective_s, collective_s, weights_s)


def fastest(runs: ServingRuns, ways: Sequence[ServingTimes]) -> ServingTimes:
    """What requests see where each pass takes the fastest of some ways.

    Kernels with weights and arithmetic in four bits are no slower than those with either alone.

    Args:
        runs: What is asked.
        ways: Their times, each way for itself.
    """
    step_s = np.stack([way.step_s for way in ways])
    chosen = step_s.argmin(axis=0), np.arange(step_s.shape[1])
    sums_s, weights_s = (
        np.stack([getattr(way, name) for way in ways])[chosen]
        for name in ("collective_s", "weights_s")
    )
    prompt_s = np.min([way.prompt_s for way in ways], axis=0)
    return _seen(runs, prompt_s, step_s[chosen], sums_s, weights_s)


def _seen(
    runs: ServingRuns, prompt_s: FloatArray, step_s: FloatArray, collective_s: FloatArray,
    weights_s: FloatArray,
) -> ServingTimes:  # fmt: skip
    """Times of requests from those of passes."""
    first_round_s = (runs.concurrency - 1.0) / 2.0 * prompt_s / runs.rounds
    prompts = runs.concurrency / runs.output_tokens
    apart_s = step_s + prompts * prompt_s
    beside_s = prompt_s * runs.concurrency / runs.input_tokens
    saved_s = np.minimum(prompts, 1.0) * np.maximum(weights_s - beside_s, 0.0)
    return ServingTimes(
        first_token_s=runs.path_s + prompt_s + step_s / 2.0 + first_round_s,
        per_token_s=apart_s - saved_s if runs.mixes else apart_s,
        prompt_s=prompt_s,
        step_s=step_s,
        collective_s=collective_s,
        weights_s=weights_s,
    )


def _pass_s(
    graph: Graph, configuration: Configuration, device: DeviceTable, points: Points, *,
    calibration: Calibration, num_ranks: int, link: Link | None,
) -> tuple[FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """Seconds of a pass without its sums, of the device alone, and of its sums."""
    one = rank_pass(graph, ServedRanks(tensor=num_ranks))
    predicted = predict_pass(
        lower(one.graph, configuration), device, points, calibration=calibration,
        framework=_ENGINE,
    )  # fmt: skip
    width = ELEMENT_BYTES[find_precision(configuration.precision).activation_dtype]
    return predicted.mid_s[0], predicted.device_s[0], exchange_s(one, points, link, width)
