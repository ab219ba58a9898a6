"""An inference engine's passes on one rank: a prompt, and a token for every request.

Shape legend: D devices, R runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.model.served_items import DRAFT_PROMPT, DRAFT_TOKEN
from paceline.parallelism.serving.batching import (
    EnginePasses,
    ServingRuns,
)
from paceline.prediction.prediction import PassPrediction, Points
from paceline.values import dataclass

#: The pass that reads a prompt, and the one that writes a token for every request.
PROMPT, TOKEN = "prefill", "decode"
#: Tokens of the longer of two prompts, of which one is half, that tell what attention takes.
_LONG = 8192.0
#: What takes as much longer as the device does.
_TIMES = ("low_s", "mid_s", "high_s", "device_s", "energy_j")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictedPasses:
    """An engine's passes as one rank runs them, without what ranks exchange; (D, R) each.

    Attributes:
        prompt: One prompt.
        token: A token for every request, halfway through their answers.
        weights_s: Of it, all but what grows with the context.
        draft_prompt: The same prompt by the model that guesses; None without, as the next.
        draft_token: One guess for every request.
        num_guesses: Of each request in a step.
    """

    prompt: PassPrediction
    token: PassPrediction
    weights_s: FloatArray
    draft_prompt: PassPrediction | None = None
    draft_token: PassPrediction | None = None
    num_guesses: float = 0.0

    def passes(self, name: str = "mid_s") -> EnginePasses:
        """Their medians, or an end of their interval: ``low_s``, ``high_s``.

        Prompts of one request after the other keep the device busy, so that their dispatch, which
        runs ahead, does not count.
        """
        widths = [getattr(one, name) / one.mid_s for one in (self.prompt, self.token)]
        passes = EnginePasses(
            prompt_s=self.prompt.device_s * widths[0],
            step_s=getattr(self.token, name),
            weights_s=self.weights_s * widths[1],
        )
        if self.draft_prompt is None or self.draft_token is None:
            return passes
        read, guessed = self.draft_prompt, self.draft_token
        return replace(
            passes,
            prompt_s=passes.prompt_s + read.device_s * getattr(read, name) / read.mid_s,
            draft_s=self.num_guesses * getattr(guessed, name),
        )

    def summed(self, name: str) -> tuple[FloatArray, FloatArray]:
        """A figure of reading a prompt and of a step, each with what guessing adds."""
        read, written = (np.asarray(getattr(one, name)) for one in (self.prompt, self.token))
        if self.draft_prompt is None or self.draft_token is None:
            return read, written
        guesses = self.num_guesses * np.asarray(getattr(self.draft_token, name))
        return read + getattr(self.draft_prompt, name), written + guesses


def asked_passes(runs: ServingRuns, *, guesses: bool = False) -> tuple[tuple[str, Points], ...]:
    """What is predicted of an engine: passes by name, with the points at which they are.

    Each prompt that differs once, and two long ones where parts of prompts look back on what was
    found; a step halfway through the answers, and with no context.
    """
    one = np.ones_like(runs.concurrency)
    prompts = _prompts(runs)
    halfway_and_empty = Points(
        batch=np.tile(runs.concurrency, 2), seq=np.concatenate([runs.mean_context, one])
    )
    own = (
        (PROMPT, Points(batch=np.ones_like(prompts), seq=prompts)),
        (TOKEN, halfway_and_empty),
    )
    if not guesses:
        return own
    halfway = Points(batch=runs.concurrency, seq=runs.mean_context)
    return (*own, (DRAFT_PROMPT, own[0][1]), (DRAFT_TOKEN, halfway))


def predicted_passes(
    runs: ServingRuns, found: Sequence[PassPrediction], *, num_guesses: float = 0.0
) -> PredictedPasses:
    """The passes of an engine from the predictions of `asked_passes`, in that order."""
    prompt, written, *draft = found
    halfway = np.arange(len(runs.concurrency))
    token, empty = written.at(halfway), written.at(halfway + len(halfway))
    which = np.searchsorted(_prompts(runs), runs.read_tokens)
    read = prompt.at(which)
    if runs.prefix_share:
        read = _looking_back(read, prompt, runs)
    passes = PredictedPasses(prompt=read, token=token, weights_s=empty.mid_s)
    if not draft:
        return passes
    return replace(
        passes, draft_prompt=draft[0].at(which), draft_token=draft[1], num_guesses=num_guesses
    )


def _prompts(runs: ServingRuns) -> FloatArray:
    """Lengths that are predicted, rising."""
    long = [_LONG / 2.0, _LONG] if runs.prefix_share else []
    return np.unique(np.append(runs.read_tokens, long))


def _looking_back(read: PassPrediction, known: PassPrediction, runs: ServingRuns) -> PassPrediction:
    """What is read of prompts, with attention to what was found of them.

    Attention of a whole prompt of p tokens takes ``a p^2``, of a part of r after f others that of
    ``(f + r)^2 - f^2``: ``2 a f r`` more than of the part alone.
    """
    half, whole = (int(np.searchsorted(_prompts(runs), length)) for length in (_LONG / 2.0, _LONG))
    pairs = 2.0 * runs.found_tokens * runs.read_tokens

    def more(values: FloatArray) -> FloatArray:
        square = values[..., whole] - 2.0 * values[..., half]
        return np.multiply.outer(np.maximum(square, 0.0) / (2.0 * (_LONG / 2.0) ** 2), pairs)

    longer = 1.0 + more(known.device_s) / read.device_s
    return replace(
        read,
        flop=read.flop + more(known.flop),
        **{name: getattr(read, name) * longer for name in _TIMES},
    )
