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

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from paceline.catalog import Link
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.errors import InvalidInputError
from paceline.parallel.collectives import RankGroup, all_reduce_s
from paceline.parallel.links import LinkTable
from paceline.parallel.tensor_parallel import CollectiveTable, split_graph
from paceline.predict import Calibration, DeviceTable, Points, predict_pass
from paceline.shipped import shipped_rows
from paceline.trace.costs import Configuration
from paceline.trace.graph import FloatArray, Graph, OpKind, monomials
from paceline.trace.lowering import lower
from paceline.trace.workload import Workload

_KV_HEADS = 2
#: Where the path of a module leaves its layer for its experts.
_EXPERTS = re.compile(r"\.(?:shared_)?experts?(?=\.|$)")
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
    split = split_graph(_with_copied_heads(graph, num_ranks), num_ranks)
    predicted = predict_pass(
        lower(split.graph, configuration), device, points, calibration=calibration,
        framework=_ENGINE,
    )  # fmt: skip
    sums_s = np.zeros_like(points.batch)
    if num_ranks > 1:
        width = ELEMENT_BYTES[find_precision(configuration.precision).activation_dtype]
        calls = _without_partial_sums(split.collectives, graph)
        sums_s = _sums_s(calls, points, num_ranks, link, width)
    return predicted.mid_s[0], predicted.device_s[0], sums_s


def _with_copied_heads(graph: Graph, num_ranks: int) -> Graph:
    """The graph with as many heads of keys and values as ranks, where it has fewer."""
    ops = graph.ops
    few = np.flatnonzero((ops.kind == OpKind.ATTENTION) & (ops.dims[:, _KV_HEADS, 0] < num_ranks))
    if not few.size:
        return graph
    dims, elements = ops.dims.copy(), graph.tensors.elements.copy()
    for op in few:
        copies = num_ranks / dims[op, _KV_HEADS, 0]
        dims[op, _KV_HEADS] *= copies
        elements[ops.input_tensor[ops.input_start[op] + 1 : ops.input_start[op + 1]]] *= copies
    return replace(
        graph, ops=replace(ops, dims=dims), tensors=replace(graph.tensors, elements=elements)
    )


def _without_partial_sums(calls: CollectiveTable, graph: Graph) -> CollectiveTable:
    """One sum a layer for all its experts, as large as that of its attention.

    Each rank adds what the experts of a token made, and what shared ones did, before it sends.
    """
    modules = [graph.modules[m] for m in graph.ops.module[calls.op]]
    kept, elements = np.ones(len(modules), dtype=np.bool_), calls.elements.copy()
    summed: set[str] = set()
    whole = 0
    for row, module in enumerate(modules):
        layer, *experts = _EXPERTS.split(module, maxsplit=1)
        if not experts:
            whole = row
            continue
        kept[row], elements[row] = layer not in summed, calls.elements[whole]
        summed.add(layer)
    return replace(calls, elements=elements).take(kept)


def _sums_s(
    calls: CollectiveTable, points: Points, num_ranks: int, link: Link | None, width: float
) -> FloatArray:
    """Seconds of all sums of a pass; equal ones are evaluated once."""
    sizes, count = np.unique(calls.elements * width, axis=0, return_counts=True)
    messages = monomials(points.batch, points.seq) @ sizes.T
    total = np.zeros(len(messages))
    for column, repeats in enumerate(count):
        total += repeats * engine_all_reduce_s(messages[:, column], num_ranks, link)
    return total


def engine_all_reduce_s(message_bytes: FloatArray, num_ranks: int, link: Link | None) -> FloatArray:
    """Seconds of the fastest of an engine's own sums and the library's.

    Small messages are read from all ranks at once, larger ones part by part. Where no engine was
    measured on the link, the library's sum is taken.

    Args:
        message_bytes: What each rank adds.
        num_ranks: Ranks of one node.
        link: Between them.
    """
    table = LinkTable.from_links([link])
    group = RankGroup.of(np.full(len(message_bytes), float(num_ranks)), num_ranks, table, table)
    best = all_reduce_s(message_bytes, group)
    known = _engine_sums().get((link.kind, link.bytes_per_s)) if link else None
    if known is None:
        return best
    others = num_ranks - 1
    direct = known["direct_s"] + others * message_bytes / (
        known["peak_bytes_per_s"] * known["direct_frac"]
    )
    parts = 2.0 * others / num_ranks * message_bytes
    split = known["split_s"] + parts / (known["peak_bytes_per_s"] * known["split_frac"])
    return np.minimum(best, np.minimum(direct, split) + others * known["rank_s"])


@cache
def _engine_sums() -> dict[tuple[str, float], dict[str, float]]:
    """Constants by kind and peak of the link."""
    return {
        (row["kind"], float(row["peak_bytes_per_s"])): {
            name: float(value) for name, value in row.items() if name not in ("kind", "source")
        }
        for row in shipped_rows("parallel", "engine_all_reduce.csv")
    }
