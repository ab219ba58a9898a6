"""An inference engine's passes on one rank: a prompt, and a token for every request.

Shape legend: D devices, R runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.parallelism.serving.batching import (
    EnginePasses,
    ServingRuns,
)
from paceline.prediction.prediction import PassPrediction, Points
from paceline.values import dataclass

#: The pass that reads a prompt, and the one that writes a token for every request.
PROMPT, TOKEN = "prefill", "decode"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictedPasses:
    """An engine's passes as one rank runs them, without what ranks exchange; (D, R) each.

    Attributes:
        prompt: One prompt.
        token: A token for every request, halfway through their answers.
        weights_s: Of it, all but what grows with the context.
    """

    prompt: PassPrediction
    token: PassPrediction
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
    halfway_and_empty = Points(
        batch=np.tile(runs.concurrency, 2), seq=np.concatenate([runs.mean_context, one])
    )
    return (
        (PROMPT, Points(batch=np.ones_like(prompts), seq=prompts)),
        (TOKEN, halfway_and_empty),
    )


def predicted_passes(runs: ServingRuns, found: Sequence[PassPrediction]) -> PredictedPasses:
    """The passes of an engine from the predictions of `asked_passes`, in that order."""
    prompt, written = found
    halfway = np.arange(len(runs.concurrency))
    token, empty = written.at(halfway), written.at(halfway + len(halfway))
    _, which = np.unique(runs.input_tokens, return_inverse=True)
    return PredictedPasses(prompt=prompt.at(which.reshape(-1)), token=token, weights_s=empty.mid_s)
