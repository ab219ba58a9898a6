"""Passes whose layers keep and read a window of tokens, where texts are longer than it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import FloatArray
from paceline.model.graph.rows import in_window
from paceline.model.graph.workload import Workload
from paceline.model.lowering import lower
from paceline.model.rewrite.master_weights import with_weight_format
from paceline.parallelism.serving.engine import PROMPT, TOKEN
from paceline.parallelism.split import split
from paceline.parallelism.split.shape import SplitShape
from paceline.prediction.memory.peak import allocator_of, peak_memory_bytes
from paceline.prediction.prediction import PassPrediction, Points
from paceline.stack.engines import EngineProfile
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassByLength:
    """A pass in one configuration, and as it is where sequences are longer than a window.

    Attributes:
        near: Up to the window, or at all lengths.
        far: Beyond it (`paceline.model.graph.rows.in_window`); None where no layer has one.
        far_from: The shortest length at which ``far`` is what runs.
    """

    near: LoweredPass
    far: LoweredPass | None = None
    far_from: float = np.inf

    def is_far(self, seq: FloatArray) -> npt.NDArray[np.bool_]:
        """Whether sequences are so long that the pass beyond the window runs."""
        return np.asarray(seq >= (self.far_from if self.far is not None else np.inf))

    def peak_bytes(self, batch: FloatArray, seq: FloatArray) -> FloatArray:
        """As `peak_memory_bytes`, each point by its length, (3, P)."""
        near = _peak_bytes(self.near, batch, seq)
        is_far = self.is_far(seq)
        if self.far is None or not is_far.any():
            return near
        return np.where(is_far, _peak_bytes(self.far, batch, seq), near)


def _peak_bytes(lowered: LoweredPass, batch: FloatArray, seq: FloatArray) -> FloatArray:
    platform = allocator_of(lowered.configuration)
    points = Points(batch=batch, seq=seq)
    return np.stack(peak_memory_bytes(lowered.memory, points, platform=platform))


#: Passes with the points at which each is asked.
Asked = Sequence[tuple[PassByLength, Points]]


def tables_of(asked: Asked) -> list[tuple[LoweredPass, Points]]:
    """What is predicted of each: near, and far where one of its points is."""
    tables = []
    for one, points in asked:
        tables.append((one.near, points))
        if one.far is not None and one.is_far(points.seq).any():
            tables.append((one.far, points))
    return tables


def joined(asked: Asked, predicted: Sequence[PassPrediction]) -> list[PassPrediction]:
    """Predictions of `tables_of` as one of each, every point by its length."""
    rest = iter(predicted)
    found = []
    for one, points in asked:
        near, is_far = next(rest), one.is_far(points.seq)
        found.append(near.where(is_far, next(rest)) if is_far.any() else near)
    return found


def check_prompts(workload: Workload, prompts: FloatArray) -> None:
    """Refuse prompts of lengths at which a model that writes was not traced.

    Raises:
        InvalidInputError: There is one.
    """
    answers_here = workload.generates and not workload.encodes
    unknown = prompts[prompts != workload.default_seq]
    if answers_here and workload.has_fixed_length and unknown.size:
        raise InvalidInputError(
            f"the operators of `{workload.name}` change with the length, and its passes are known "
            f"for prompts of {workload.default_seq} tokens",
            hint=f"trace it there: --seq {unknown[0]:.0f} --prompt-tokens {unknown[0]:.0f}",
        )


@lru_cache(maxsize=64)
def beyond_window(
    workload: Workload, shape: SplitShape, how: Configuration, engine: EngineProfile | None
) -> dict[str, LoweredPass]:
    """The passes of requests that are longer than the window; none where all tokens are kept.

    Engines read prompts with kernels that know a window. In a library's loop its cache does, since
    transformers 4.56, and prompts are read under a mask.

    Args:
        workload: Passes by name, and the window.
        shape: How ranks share them.
        how: As they run.
        engine: That serves; None of a loop.
    """
    window = workload.window
    if window is None or not (workload.generates if engine is None else engine.rolls):
        return {}
    return {
        one.name: lower(
            split(in_window(one.graph, window), shape).graph, with_weight_format(one.graph, how)
        )
        for one in workload.passes
        if one.name == TOKEN or (one.name == PROMPT and engine is not None)
    }
