"""Passes whose layers keep and read a window of tokens, where texts are longer than it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import FloatArray
from paceline.model.graph.rows import in_window
from paceline.model.graph.workload import Workload
from paceline.model.lowering import lower
from paceline.model.rewrite.master_weights import with_weight_format
from paceline.parallelism.serving.engine import PROMPT, TOKEN
from paceline.parallelism.split import split
from paceline.parallelism.split.shape import SplitShape
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.memory.peak import allocator_of, peak_memory_bytes
from paceline.prediction.prediction import PassPrediction, Points
from paceline.prediction.step.one_pass import predict_pass
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

    def predict(
        self,
        devices: DeviceTable,
        points: Points,
        *,
        calibration: Calibration | None,
        framework: str,
    ) -> PassPrediction:
        """As `predict_pass`, each point by its length."""
        near = predict_pass(
            self.near, devices, points, calibration=calibration, framework=framework
        )
        is_far = points.seq >= self.far_from
        if self.far is None or not is_far.any():
            return near
        far = predict_pass(self.far, devices, points, calibration=calibration, framework=framework)
        return near.where(is_far, far)

    def peak_bytes(self, batch: FloatArray, seq: FloatArray) -> FloatArray:
        """As `peak_memory_bytes`, each point by its length, (3, P)."""
        points = Points(batch=batch, seq=seq)
        near, *far = (
            np.stack(
                peak_memory_bytes(one.memory, points, platform=allocator_of(one.configuration))
            )
            for one in (self.near, self.far)
            if one is not None
        )
        return np.where(seq >= self.far_from, far[0], near) if far else near


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
