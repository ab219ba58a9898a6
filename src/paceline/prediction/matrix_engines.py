"""Ops on devices of which no kernel was measured: matrix engines, and all that is not theirs.

Matrix engines do all that is products of matrices: layers, convolutions, attention. Compilers bring
operands from memory while the engine computes, so that an op takes the longer of its arithmetic, at
the best rate that is published of the device, and of its bytes, at the share of the listed
bandwidth that copies reach. Whatever else runs takes so many times its physical bound.

Source:
    Intel, Gaudi Architecture and Software Suite, docs.habana.ai, read 2026-11-27.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.model.graph.distinct import among
from paceline.model.ops.registry import kinds_where
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array, Bounds

#: Sorts of devices with such an engine, and what it does.
_SORTS = ("npu", "tpu")
_OF_MATRICES = kinds_where(
    lambda facts: facts.efficiency in ("product", "convolution", "attention", "attention_backward")
)
#: No op takes less, so that the ratio of two times is known.
_TINY_S = np.float32(1e-30)


def with_unmeasured(
    learned: Array, kind: npt.NDArray[np.int16], bounds: Bounds, devices: DeviceTable,
    calibration: Calibration,
) -> Array:  # fmt: skip
    """Log10 of the time of each op over its physical bound, (D, P, R).

    Args:
        learned: What kernels that are scheduled in waves take, (D, P, R).
        kind: Of each op, (R,).
        bounds: Of the ops, (D, P, R).
        devices: Where they would run, D of them.
        calibration: What is taken of unknown kernels.
    """
    is_gpu = devices.is_gpu[:, None, None] > 0
    if is_gpu.all():
        return learned
    generic = np.float32(calibration.constant("device", "generic_log10_slowdown"))
    reached = np.float32(calibration.constant("device", "streamed_memory_frac"))
    has_engine = np.array([sort in _SORTS for _, sort in devices.kinds])[:, None, None]
    slower = np.fmin(1.0 / devices.product_frac, 10**generic)[:, None, None].astype(np.float32)
    engine_s = np.maximum(bounds.compute_s * slower, bounds.memory_s / reached)
    streamed = np.log10(np.maximum(engine_s, _TINY_S) / np.maximum(bounds.roofline_s, _TINY_S))
    others = np.where(has_engine & among(kind, _OF_MATRICES), streamed, generic)
    return np.where(is_gpu, learned, others)
