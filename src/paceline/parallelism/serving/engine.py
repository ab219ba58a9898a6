"""An inference engine's passes on one rank or several: a prompt, and a token for every request.

All ranks hold the same requests; each has its share of heads, of widths and of the experts, and
sums what it made twice a layer.

Shape legend: D devices, R runs.

Sources:
    Shoeybi et al., arXiv 1909.08053 (the split); vLLM, ``csrc/custom_all_reduce.cuh`` (sums of one
    or of two steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.catalog.entities import Link
from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import FloatArray
from paceline.model.graph.workload import Workload
from paceline.model.lowering import lower
from paceline.parallelism.collectives.engine_sums import OWN_KERNEL, engine_sums
from paceline.parallelism.serving.batching import (
    EnginePasses,
    ServingRuns,
    ServingTimes,
    request_times,
)
from paceline.parallelism.split import RankGraph, SplitShape, busiest_frac, calls_s, split
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points, StepPrediction
from paceline.prediction.step.one_pass import predict_pass
from paceline.stack.engines import EngineProfile

#: The pass that reads a prompt, and the one that writes a token for every request.
PROMPT, TOKEN = "prefill", "decode"
_ALONE = SplitShape.of_engine()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictedPasses:
    """An engine's passes as one rank runs them, without what ranks exchange; (D, R) each.

    Attributes:
        prompt: One prompt.
        token: A token for every request, halfway through their answers.
        weights_s: Of it, all but what grows with the context.
    """

    prompt: StepPrediction
    token: StepPrediction
    weights_s: FloatArray

    def passes(self, name: str = "mid_s") -> EnginePasses:
        """Their medians, or an end of their interval: ``low_s``, ``high_s``.

        Prompts of one request after the other keep the device busy, so that their dispatch, which
        runs ahead, does not count.
        """
        widths = [getattr(one, name) / one.mid_s for one in (self.prompt, self.token)]
        return EnginePasses(
            prompt_s=self.prompt.device_s * widths[0],
            step_s=getattr(self.token, name),
            weights_s=self.weights_s * widths[1],
        )


def asked_passes(runs: ServingRuns) -> tuple[tuple[str, Points], ...]:
    """What is predicted of an engine: passes by name, with the points at which they are.

    Each prompt that differs once; a step halfway through the answers, and with no context.
    """
    one = np.ones_like(runs.concurrency)
    prompts = np.unique(runs.input_tokens)
    return (
        (PROMPT, Points(batch=np.ones_like(prompts), seq=prompts)),
        (TOKEN, Points(batch=runs.concurrency, seq=runs.mean_context)),
        (TOKEN, Points(batch=runs.concurrency, seq=one)),
    )


def predicted_passes(runs: ServingRuns, found: Sequence[StepPrediction]) -> PredictedPasses:
    """The passes of an engine from the predictions of `asked_passes`, in that order."""
    prompt, token, empty = found
    _, which = np.unique(runs.input_tokens, return_inverse=True)
    return PredictedPasses(prompt=prompt.at(which.reshape(-1)), token=token, weights_s=empty.mid_s)


def predict_engine(
    lowered: Mapping[str, LoweredPass], devices: DeviceTable, runs: ServingRuns,
    engine: EngineProfile, *, calibration: Calibration | None,
) -> PredictedPasses:  # fmt: skip
    """Predict the passes of an engine for every device and run.

    Args:
        lowered: Passes by name, as one rank runs them, lowered as served.
        devices: D of them.
        runs: R of them.
        engine: Whose dispatch applies.
        calibration: Of the predictor; the built-in one if None.
    """
    found = [
        predict_pass(lowered[name], devices, points, calibration=calibration, framework=engine.host)
        for name, points in asked_passes(runs)
    ]
    return predicted_passes(runs, found)


def serving_times(
    workload: Workload, configuration: Configuration, device: DeviceTable, runs: ServingRuns, *,
    engine: EngineProfile, calibration: Calibration, ranks: SplitShape = _ALONE,
    link: Link | None = None,
) -> ServingTimes:  # fmt: skip
    """Times of ``runs`` on devices of one node, (R,) each.

    Args:
        workload: Inference with the passes prefill and decode.
        configuration: How ranks run it; it is served whatever that says.
        device: A table of one device.
        runs: What is asked of it.
        engine: That serves.
        calibration: Of the predictor.
        ranks: How devices share the model.
        link: Between them; None where it is unknown.

    Raises:
        InvalidInputError: The workload does not generate, or cannot be split so many ways.
    """
    passes = serving_passes(
        workload, configuration, device, runs, engine=engine, calibration=calibration,
        ranks=ranks, link=link,
    )  # fmt: skip
    return request_times(runs, passes, engine)


def serving_passes(
    workload: Workload, configuration: Configuration, device: DeviceTable, runs: ServingRuns, *,
    engine: EngineProfile, calibration: Calibration, ranks: SplitShape = _ALONE,
    link: Link | None = None,
) -> EnginePasses:  # fmt: skip
    """The passes behind `serving_times`, with what ranks exchange and wait for, (R,) each."""
    mine = engine_ranks(workload, ranks)
    served = replace(configuration, is_served=True)
    lowered = {name: lower(one.graph, served) for name, one in mine.items()}
    predicted = predict_engine(lowered, device, runs, engine, calibration=calibration).passes()
    alone = EnginePasses(
        prompt_s=predicted.prompt_s[0], step_s=predicted.step_s[0], weights_s=predicted.weights_s[0]
    )
    read = Points(batch=np.ones_like(runs.input_tokens), seq=runs.input_tokens)
    written = Points(batch=runs.concurrency, seq=runs.mean_context)
    width = ELEMENT_BYTES[find_precision(configuration.precision).activation_dtype]
    waiting_s = _waiting_s(mine[TOKEN], served, device, written, engine, calibration)
    read_s, written_s = (
        exchanged_s(one, points, link, width, kernel=engine.all_reduce)
        for one, points in ((mine[PROMPT], read), (mine[TOKEN], written))
    )
    return alone.exchanging(read_s, written_s + waiting_s)


def engine_ranks(workload: Workload, ranks: SplitShape) -> dict[str, RankGraph]:
    """The passes of an engine, by name, as one of its ranks runs them.

    Raises:
        InvalidInputError: The workload does not generate, or cannot be split so many ways.
    """
    graphs = {one.name: one.graph for one in workload.passes}
    if not {PROMPT, TOKEN} <= graphs.keys():
        raise InvalidInputError(
            f"{workload.name} does not generate tokens", hint="serve a causal language model"
        )
    return {name: split(graphs[name], ranks) for name in (PROMPT, TOKEN)}


def exchanged_s(
    rank: RankGraph, points: Points, link: Link | None, element_bytes: float, *,
    kernel: str | None = OWN_KERNEL,
) -> FloatArray:  # fmt: skip
    """Seconds of everything that the ranks of a node exchange in a pass, (num_points,).

    Args:
        rank: The pass as one of them runs it.
        points: Requests, and lengths.
        link: Between ranks; None where it is unknown.
        element_bytes: Of an activation.
        kernel: The engine's own one for sums; None leaves them to the library.
    """
    sums = engine_sums(link, kernel=kernel)
    wires = rank.shape.wires_in_node(len(points.batch), link, sums=sums)
    each_s = calls_s(rank.calls, points, wires, element_bytes=element_bytes)
    return np.asarray(each_s.sum(axis=1))


def _waiting_s(
    token: RankGraph, configuration: Configuration, device: DeviceTable, points: Points,
    engine: EngineProfile, calibration: Calibration,
) -> FloatArray:  # fmt: skip
    """Seconds in which ranks wait for the one whose experts more tokens happen to reach, (R,)."""
    more_frac = busiest_frac(token, points)
    if not more_frac.any():
        return np.zeros(len(points.batch))
    experts = lower(token.only(token.expert_products), configuration)
    predicted = predict_pass(
        experts, device, points, calibration=calibration, framework=engine.host
    )
    return np.asarray(more_frac * predicted.device_s[0])
