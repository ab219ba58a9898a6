"""Memory of a device that serves: caches of all requests, and what reading prompts adds.

Shape legend: R runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.graph import FloatArray
from paceline.model.served_items import DRAFT_TOKEN
from paceline.parallelism.serving.batching import ServingRuns
from paceline.parallelism.serving.engine import PROMPT, TOKEN

#: Peak of a named pass at batches and lengths: low, median and the bound at 95 %, (3, R).
Peaks: TypeAlias = Callable[[str, FloatArray, FloatArray], FloatArray]


def answers_memory_bytes(
    peaks: Peaks, lowered: Mapping[str, LoweredPass], runs: ServingRuns, together: FloatArray
) -> FloatArray:
    """Peak memory of a rank's process: the caches of all requests, and what reading prompts adds.

    Args:
        peaks: Of its passes, lowered as served.
        lowered: These, by name.
        runs: What is asked.
        together: Prompts of a step, (R,).

    Returns:
        Lower end of the 80 % interval, median, and the bound that holds at a chance of 95 %,
        (3, R).
    """
    length = runs.input_tokens + runs.output_tokens
    held, read, idle = (
        peaks(name, batch, seq)
        for name, batch, seq in (
            (TOKEN, runs.concurrency, length),
            (PROMPT, together, runs.read_tokens),
            (TOKEN, together, runs.read_tokens),
        )
    )
    guesser_bytes = _guesser_bytes(peaks, lowered, runs.concurrency, length)
    return np.asarray(held + np.maximum(read - idle, 0.0) + guesser_bytes)


def in_turn_memory_bytes(
    peaks: Peaks, whole_bytes: FloatArray, token: LoweredPass, stages: int
) -> FloatArray:
    """Peak of a device that holds a part of the layers; what any process has is not shared.

    Args:
        peaks: Of the passes of one that held all of them.
        whole_bytes: Of one that held all of them.
        token: The pass that writes, as it does.
        stages: Such devices, which work in turn.
    """
    nothing = np.zeros(1)
    empty = peaks(TOKEN, nothing, nothing + 1.0)[1]
    own_bytes = max(float(empty[0]) - token.parameter_bytes, 0.0)
    return own_bytes + (whole_bytes - own_bytes) / stages


def stage_memory_bytes(
    peaks: Peaks, lowered: Mapping[str, LoweredPass], runs: ServingRuns, together: FloatArray, *,
    in_flight: int, fullest_frac: float,
) -> FloatArray:  # fmt: skip
    """Peak of the fullest stage: its layers' caches of all batches, and what reading one adds.

    Args:
        peaks: Of passes of all layers.
        lowered: These, by name.
        runs: Of one batch.
        together: Prompts of a step, (R,).
        in_flight: Batches that follow one another through the stages.
        fullest_frac: Of all layers, what this stage has.
    """
    every = replace(runs, concurrency=runs.concurrency * in_flight)
    none = replace(runs, concurrency=np.zeros_like(runs.concurrency))
    whole, empty = (answers_memory_bytes(peaks, lowered, one, together) for one in (every, none))
    layers_bytes = lowered[TOKEN].parameter_bytes + np.maximum(whole - empty, 0.0)
    return np.asarray(whole - (1.0 - fullest_frac) * layers_bytes)


def _guesser_bytes(
    peaks: Peaks, lowered: Mapping[str, LoweredPass], concurrency: FloatArray, length: FloatArray
) -> FloatArray:
    """Weights and caches of the model that guesses; nothing without."""
    guesses = lowered.get(DRAFT_TOKEN)
    if guesses is None:
        return np.zeros_like(concurrency)
    one = np.ones_like(concurrency)
    all_caches, none = (peaks(DRAFT_TOKEN, *at)[1] for at in ((concurrency, length), (one, one)))
    return np.asarray(guesses.parameter_bytes + np.maximum(all_caches - none, 0.0))
