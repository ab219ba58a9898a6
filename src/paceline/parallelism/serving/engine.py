"""An inference engine's passes on one rank: a step of prompts, and a token for every request.

Shape legend: D devices, R runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.served_items import DRAFT_PROMPT, DRAFT_TOKEN
from paceline.parallelism.serving.batching import (
    EnginePasses,
    ServingRuns,
)
from paceline.prediction.prediction import PassPrediction, Points
from paceline.stack.engines import EngineProfile
from paceline.values import dataclass

#: The pass that reads prompts, and the one that writes a token for every request.
PROMPT, TOKEN = "prefill", "decode"
#: Tokens of the longer of two prompts, of which one is half, that tell what attention takes.
_LONG = 8192.0
#: What takes as much longer as the device does.
_TIMES = ("low_s", "mid_s", "high_s", "device_s", "energy_j")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictedPasses:
    """An engine's passes as one rank runs them, without what ranks exchange; (D, R) each.

    Attributes:
        prompt: The prompts that a step reads.
        prompts: How many those are, (R,).
        token: A token for every request, halfway through their answers.
        weights_s: Of it, all but what grows with the context.
        draft_prompt: The same prompts by the model that guesses; None without, as the next.
        draft_token: One guess for every request.
        num_guesses: Of each request in a step.
    """

    prompt: PassPrediction
    prompts: FloatArray
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
            prompt_s=self.prompt.device_s * widths[0] / self.prompts,
            step_s=getattr(self.token, name),
            weights_s=self.weights_s * widths[1],
        )
        if self.draft_prompt is None or self.draft_token is None:
            return passes
        read, guessed = self.draft_prompt, self.draft_token
        draft_s = read.device_s * getattr(read, name) / read.mid_s
        return replace(
            passes,
            prompt_s=passes.prompt_s + draft_s / self.prompts,
            draft_s=self.num_guesses * getattr(guessed, name),
        )

    def summed(self, name: str) -> tuple[FloatArray, FloatArray]:
        """A figure of reading a prompt and of a step, each with what guessing adds."""
        read, written = (np.asarray(getattr(one, name)) for one in (self.prompt, self.token))
        if self.draft_prompt is None or self.draft_token is None:
            return read / self.prompts, written
        guesses = self.num_guesses * np.asarray(getattr(self.draft_token, name))
        return (read + getattr(self.draft_prompt, name)) / self.prompts, written + guesses


def asked_passes(
    runs: ServingRuns, engine: EngineProfile, *, guesses: bool = False
) -> tuple[tuple[str, Points], ...]:
    """What is predicted of an engine: passes by name, with the points at which they are.

    Each step of prompts that differs once, and two long prompts where parts of prompts look back on
    what was found; a step halfway through the answers, and with no context.
    """
    one = np.ones_like(runs.concurrency)
    prompts, together = _prompts(runs, engine)[0].T
    halfway_and_empty = Points(
        batch=np.tile(runs.concurrency, 2), seq=np.concatenate([runs.mean_context, one])
    )
    own = (
        (PROMPT, Points(batch=together, seq=prompts)),
        (TOKEN, halfway_and_empty),
    )
    if not guesses:
        return own
    halfway = Points(batch=runs.concurrency, seq=runs.mean_context)
    return (*own, (DRAFT_PROMPT, own[0][1]), (DRAFT_TOKEN, halfway))


def predicted_passes(
    runs: ServingRuns, found: Sequence[PassPrediction], engine: EngineProfile, *,
    num_guesses: float = 0.0,
) -> PredictedPasses:  # fmt: skip
    """The passes of an engine from the predictions of `asked_passes`, in that order."""
    prompt, written, *draft = found
    halfway = np.arange(len(runs.concurrency))
    token, empty = written.at(halfway), written.at(halfway + len(halfway))
    which = _prompts(runs, engine)[1]
    which, long = which[: len(halfway)], which[len(halfway) :]
    together = runs.prompts_together(engine.chunk_tokens)
    read = prompt.at(which)
    if runs.prefix_share:
        read = _looking_back(read, [prompt.at(long[end:][:1]) for end in (0, 1)], runs, together)
    passes = PredictedPasses(prompt=read, prompts=together, token=token, weights_s=empty.mid_s)
    if not draft:
        return passes
    return replace(
        passes, draft_prompt=draft[0].at(which), draft_token=draft[1], num_guesses=num_guesses
    )


def _prompts(runs: ServingRuns, engine: EngineProfile) -> tuple[FloatArray, IntArray]:
    """Tokens of a prompt and prompts of a step, each pair once, and the pair of each run.

    The pairs of two long prompts follow those of the runs where prompts look back.
    """
    together = runs.prompts_together(engine.chunk_tokens)
    long = [[_LONG / 2.0, 1.0], [_LONG, 1.0]] if runs.prefix_share else np.zeros((0, 2))
    pairs = np.concatenate([np.stack([runs.read_tokens, together], axis=1), long])
    unlike, which = np.unique(pairs, axis=0, return_inverse=True)
    return unlike, which.ravel()


def _looking_back(
    read: PassPrediction, long: Sequence[PassPrediction], runs: ServingRuns, together: FloatArray
) -> PassPrediction:
    """What is read of prompts, with attention to what was found of them.

    Attention of a whole prompt of p tokens takes ``a p^2``, of a part of r after f others that of
    ``(f + r)^2 - f^2``: ``2 a f r`` more than of the part alone.

    Args:
        read: Steps of ``together`` prompts.
        long: A long prompt of which one is half, and the whole.
        runs: What is asked.
        together: Prompts of a step, (R,).
    """
    pairs = 2.0 * runs.found_tokens * runs.read_tokens * together

    def more(name: str) -> FloatArray:
        """What a term grows by with the square of the prompt."""
        half, whole = (np.asarray(getattr(one, name))[..., 0] for one in long)
        square = np.maximum(whole - 2.0 * half, 0.0) / (2.0 * (_LONG / 2.0) ** 2)
        return np.multiply.outer(square, pairs)

    longer = 1.0 + more("device_s") / read.device_s
    return replace(
        read,
        flop=read.flop + more("flop"),
        **{name: getattr(read, name) * longer for name in _TIMES},
    )
