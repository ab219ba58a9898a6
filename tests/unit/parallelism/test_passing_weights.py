"""Weights and gradients that are whole for a while, counted by hand on GPT-2."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Phase
from paceline.model.lowering import lifetimes_of, rewritten
from paceline.model.reading.load import load_workload
from paceline.parallelism.memory.passing_weights import PassingWeights, passing_weights
from paceline.prediction.memory.allocator import replay

HOW = Configuration(precision="bf16", training_format="half-weights")
GPT2 = load_workload("gpt2")
PROGRAM = rewritten(GPT2.passes[0].graph, HOW)
#: Of 768 wide layers: attention and feed-forward with biases, and two norms; in 16 bits.
BLOCK_BYTES = 2 * (12 * 768**2 + 13 * 768)
WHOLE_BYTES = 2 * GPT2.num_parameters
ROOT_BYTES = WHOLE_BYTES - 12 * BLOCK_BYTES


def passing(*, wraps_each: bool = False) -> tuple[PassingWeights, PassingWeights]:
    """What is gathered, and gradients."""
    found = passing_weights(PROGRAM, HOW, wraps_each=wraps_each)
    of_gathers = found.stream > 0
    return tuple(
        PassingWeights(**{name: getattr(found, name)[rows] for name in PassingWeights.__slots__})
        for rows in (of_gathers, ~of_gathers)
    )  # type: ignore[return-value]


def whole_bytes(found: PassingWeights) -> list[float]:
    """Bytes that are whole at each op."""
    ops = np.arange(len(PROGRAM.ops))[:, None]
    return list(((found.birth <= ops) & (ops <= found.death)) @ found.num_bytes)


def test_a_unit_runs_while_the_next_is_gathered_and_the_root_stays() -> None:
    gathers, _ = passing()
    assert max(whole_bytes(gathers)) == ROOT_BYTES + 2 * BLOCK_BYTES
    assert gathers.num_bytes.sum() == WHOLE_BYTES + 12 * BLOCK_BYTES
    assert whole_bytes(gathers)[-1] == 0.0


def test_module_by_module_the_root_goes_with_its_parts() -> None:
    gathers, _ = passing(wraps_each=True)
    assert min(whole_bytes(gathers)[: len(PROGRAM.ops) // 2]) < ROOT_BYTES


@pytest.mark.parametrize(("wraps_each", "times"), [(False, 2), (True, 1)])
def test_gradients_are_whole_once_and_joined_per_unit(wraps_each: bool, times: int) -> None:
    _, gradients = passing(wraps_each=wraps_each)
    assert gradients.num_bytes.sum() == times * WHOLE_BYTES
    assert gradients.death.max() < np.flatnonzero(PROGRAM.ops.phase == Phase.OPTIMIZER).min()


def test_what_is_gathered_takes_memory_that_activations_had() -> None:
    """On a stream of their own they need segments of their own."""
    lived = lifetimes_of(PROGRAM)
    alone = replay(lived, batch=4.0, seq=512.0)
    gathers, _ = passing()
    joined, streams = gathers.beside(lived, [0] * len(lived.birth))
    apart = replay(joined, batch=4.0, seq=512.0, streams=streams)
    assert apart.reserved_bytes >= alone.reserved_bytes + ROOT_BYTES + 2 * BLOCK_BYTES
