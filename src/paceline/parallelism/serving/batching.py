"""What requests see of an engine's steps: time to the first token, per token, and in all.

A token waits for the step that writes it, and for its share of the prompts of others that are read
meanwhile: as many as requests end. A step that reads a prompt too reads the weights once for both.
Prompts of requests that come together are read in one step, up to its limit of tokens. A prompt
waits for the step that is running and, of the first round, for half of the others, beside the way
of its request; while it waits it is not written for. The host of an engine works for each request
of a step, beside the device or between its steps.

Ranks whose attention is data parallel, and batches that follow one another through the stages of a
pipeline, are groups with requests of their own that take each step together: it lasts as long as
that of the group that reads most.

Shape legend: R runs; figures of passes may have more dimensions before it.

Sources:
    Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", OSDI
    2024, section 3 (prompts and tokens share the device's time); Little, "A Proof for the Queuing
    Formula L = λW", Operations Research 9(3), 1961.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.parallelism.steps import Steps
from paceline.stack.engines import EngineProfile
from paceline.values import dataclass

#: Standard deviations above a mean beyond which no largest number lies.
_FAR = 8.0
#: Numbers that are smaller in the mean are as good as none.
_RARE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingRuns:
    """Runs in which a client keeps a number of equal requests in flight; (R,) each.

    Attributes:
        concurrency: Requests in flight.
        input_tokens: Of a prompt.
        output_tokens: Written for each.
        rounds: Requests that follow one another in each place: of the first, all prompts come at
            once and wait for each other; later they come one by one.
        prefix_share: Of a prompt, what the engine finds in its cache.
        tokens_per_step: Written of each answer in a step, in the mean: more than one with guesses.
        tokens_checked: Read of each answer in a step: its guesses and the token before them.
        groups: That take each step together, each with ``concurrency`` requests of its own.
    """

    concurrency: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    rounds: FloatArray
    prefix_share: float = 0.0
    tokens_per_step: float = 1.0
    tokens_checked: float = 1.0
    groups: int = 1

    @classmethod
    def of(
        cls, concurrency: FloatArray, input_tokens: float, output_tokens: float, rounds: float = 1.0
    ) -> ServingRuns:
        """Runs of equal lengths that differ in how many requests are in flight."""
        alike = np.ones_like(concurrency)
        return cls(
            concurrency=concurrency,
            input_tokens=input_tokens * alike,
            output_tokens=output_tokens * alike,
            rounds=rounds * alike,
        )

    @property
    def found_tokens(self) -> FloatArray:
        """Of a prompt, those that are in the cache: all but one at most."""
        found = np.floor(self.prefix_share * self.input_tokens)
        return np.clip(found, 0.0, np.maximum(self.input_tokens - 1.0, 0.0))

    @property
    def read_tokens(self) -> FloatArray:
        """Of a prompt, those that are read."""
        return self.input_tokens - self.found_tokens

    @property
    def steps(self) -> FloatArray:
        """Steps that write an answer."""
        return self.output_tokens / self.tokens_per_step

    @property
    def mean_context(self) -> FloatArray:
        """Tokens that a step looks back on, halfway through a request."""
        return self.input_tokens + self.output_tokens / 2.0

    @property
    def others(self) -> FloatArray:
        """Requests in flight beside one, in all groups."""
        return self.groups * self.concurrency - 1.0

    @property
    def waited_prompts(self) -> FloatArray:
        """Prompts of other groups that a step waits for, beyond those that its own group reads.

        Requests end by themselves, so that the prompts of a step are Poisson numbers. The first
        round comes to all groups at once.
        """
        mean = self.concurrency / self.steps
        later = 1.0 - 1.0 / self.rounds
        return np.asarray((expected_largest(mean, self.groups) - mean) * later)

    def prompts_together(self, step_tokens: float) -> FloatArray:
        """Prompts that a step reads, in the harmonic mean over all requests.

        Of the first round as many as a step has room for; later those that come in one step, as
        requests end. Where steps read weights for most of their time, the mean step is right.

        Args:
            step_tokens: Tokens of a step at most.
        """
        room = np.maximum(np.floor(step_tokens / self.read_tokens), 1.0)
        first = np.minimum(room, self.concurrency)
        later = np.clip((self.concurrency - 1.0) / self.steps, 1.0, first)
        return np.asarray(1.0 / (1.0 / later + (1.0 / first - 1.0 / later) / self.rounds))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EnginePasses:
    """What the passes of an engine take; (…, R) each.

    Attributes:
        prompt_s: Reading one prompt, what ranks exchange included: its part of the step where
            others are read with it.
        step_s: Writing a token for every request, likewise.
        weights_s: Of it, all but what grows with the context and what ranks exchange.
        collective_s: Of it, what ranks exchange.
        draft_s: Guessing the tokens that the step then checks.
        joint_s: Of reading one prompt, what groups do for each other: a prompt of another group
            takes no longer for it.
    """

    prompt_s: FloatArray
    step_s: FloatArray
    weights_s: FloatArray
    collective_s: FloatArray | float = 0.0
    draft_s: FloatArray | float = 0.0
    joint_s: FloatArray | float = 0.0

    @classmethod
    def of(cls, steps: Steps) -> EnginePasses:
        """Those of an engine's steps."""
        alone = cls.alone(steps)
        return alone.exchanging(steps.prompt_exchange_s, steps.token_exchange_s)

    @classmethod
    def alone(cls, steps: Steps) -> EnginePasses:
        """The same without what ranks exchange."""
        return cls(
            prompt_s=steps.prompt_s, step_s=steps.token_s, weights_s=steps.weights_s,
            draft_s=steps.draft_s, joint_s=steps.prompt_joint_s,
        )  # fmt: skip

    def exchanging(self, prompt_s: FloatArray, step_s: FloatArray) -> EnginePasses:
        """These passes with what ranks exchange in each, which nothing hides."""
        return replace(
            self,
            prompt_s=self.prompt_s + prompt_s,
            step_s=self.step_s + step_s,
            collective_s=self.collective_s + step_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServingTimes:
    """What requests see; (…, R) each.

    Attributes:
        first_token_s: From sending a prompt to its first token, on average.
        per_token_s: From one token to the next, on average: what is left of ``request_s``.
        request_s: In the engine, its prompt and all of its tokens: by Little's law requests in
            flight over requests per second.
        prompt_s: Of it, reading one prompt takes the device so long.
        step_s: One step that writes a token for every request.
        collective_s: Of a step, sums over ranks.
        weights_s: Of a step, all but those and what grows with the context.
    """

    first_token_s: FloatArray
    per_token_s: FloatArray
    request_s: FloatArray
    prompt_s: FloatArray
    step_s: FloatArray
    collective_s: FloatArray | float
    weights_s: FloatArray


def request_times(runs: ServingRuns, passes: EnginePasses, engine: EngineProfile) -> ServingTimes:
    """Times of requests from those of passes.

    Args:
        runs: What is asked.
        passes: Of the engine.
        engine: Its habits; without a known way of requests the first token is not told (NaN).
    """
    together = runs.prompts_together(engine.chunk_tokens)
    path_s = np.nan if engine.path_s is None else engine.path_s
    running_s = np.minimum(runs.others, 1.0) * (passes.step_s + passes.draft_s) / 2.0
    request_s = together * passes.prompt_s + runs.steps * _pace_s(runs, passes, engine, together)
    read_s = _until_read_s(runs, passes, together)
    return ServingTimes(
        first_token_s=path_s + running_s + read_s,
        per_token_s=(request_s - read_s) / runs.output_tokens,
        request_s=request_s,
        prompt_s=passes.prompt_s,
        step_s=passes.step_s,
        collective_s=passes.collective_s,
        weights_s=passes.weights_s,
    )


def expected_largest(mean: FloatArray, num_groups: int) -> FloatArray:
    """The largest of so many Poisson numbers, in the mean.

    It exceeds ``j`` unless all of them are at most ``j``. Few are the sum of all at most, as hardly
    two come together; many are little above their mean.

    Args:
        mean: Of each number, (R,).
        num_groups: How many.

    >>> expected_largest(np.array([0.001, 1000.0]), 8).round(3).tolist()
    [0.008, 1045.248]
    """
    if num_groups == 1:
        return mean
    most = float(np.max(mean, initial=0.0))
    counts = np.arange(math.ceil(most + _FAR * math.sqrt(most) + _FAR))
    logs = np.cumsum(np.log(np.maximum(counts, 1)))
    rates = np.maximum(mean, _RARE)[..., np.newaxis]
    at_most = np.cumsum(np.exp(counts * np.log(rates) - rates - logs), axis=-1)
    return np.asarray((1.0 - np.minimum(at_most, 1.0) ** num_groups).sum(axis=-1))


def hosted_step_s(step_s: FloatArray, host_s: FloatArray, *, overlaps: bool) -> FloatArray:
    """Seconds from one step to the next with the host's work for it.

    Beside the device the slower of both sets the pace; a host that waits for the tokens of a step
    before it schedules the next takes its time in between.

    Args:
        step_s: On the device.
        host_s: Of the host.
        overlaps: Whether it works beside the device.

    >>> [float(hosted_step_s(np.array(0.01), np.array(0.005), overlaps=b)) for b in (1, 0)]
    [0.01, 0.015]
    """
    paced: FloatArray = np.maximum(step_s, host_s) if overlaps else step_s + host_s
    return paced


def _until_read_s(runs: ServingRuns, passes: EnginePasses, together: FloatArray) -> FloatArray:
    """Until a prompt is read: with those of its step, and after half of the first round."""
    before = (runs.concurrency - together) / 2.0 / runs.rounds
    return np.asarray((before + together) * passes.prompt_s)


def _pace_s(
    runs: ServingRuns, passes: EnginePasses, engine: EngineProfile, together: FloatArray
) -> FloatArray:
    """From one step that writes to the next, in the mean of those that read prompts and others.

    Args:
        runs: What is asked.
        passes: Of the engine.
        engine: Its habits.
        together: Prompts of a step that reads some; those of one's own come before all others.
    """
    waited = runs.waited_prompts
    prompts = (runs.concurrency - together) / runs.steps + waited
    reads = np.minimum(prompts / together, 1.0)
    write_s = passes.step_s + passes.draft_s
    prompt_s = passes.prompt_s - passes.joint_s * waited / np.maximum(prompts, _RARE)
    read_s = write_s + np.maximum(prompts, together) * prompt_s
    if engine.mixes:
        beside_s = passes.prompt_s * runs.tokens_checked * runs.concurrency / runs.read_tokens
        read_s = read_s - np.maximum(passes.weights_s - beside_s, 0.0)
    paced_s = (_hosted_s(one, runs.concurrency, engine) for one in (read_s, write_s))
    of_reading, of_writing = paced_s
    return np.asarray(reads * of_reading + (1.0 - reads) * of_writing)


def _hosted_s(step_s: FloatArray, num_requests: FloatArray, engine: EngineProfile) -> FloatArray:
    host_s = (engine.step_s or 0.0) + num_requests * (engine.request_s or 0.0)
    return hosted_step_s(step_s, host_s, overlaps=engine.overlaps)
