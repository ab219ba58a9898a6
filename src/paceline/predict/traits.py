"""What makes two steps alike: the workload, how it runs, and the kernels that fill its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.trace.graph import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTraits:
    """One step as others are compared with it.

    Attributes:
        workload: Name of the model and the pass.
        setting: Framework, precision, compiler and whether it trains; empty where unknown.
        kernels: Signatures of the kernels that fill most of the device's time before the
            optimizer's update, with their shares of it, largest first. Two kernels of one signature
            do the same work.
    """

    workload: str
    setting: str = ""
    kernels: tuple[tuple[int, float], ...] = ()


def likeness(one: Sequence[StepTraits], other: Sequence[StepTraits]) -> FloatArray:
    """What share of their kernels two steps have in common, (len(one), len(other)).

    The Bhattacharyya coefficient of the shares of time: 1 where both spend their time alike, 0
    where no kernel of one is found in the other, and of a step whose kernels are unknown.
    """
    rows, signatures, weights = _entries(one)
    known, columns = np.unique(signatures, return_inverse=True)
    found = np.zeros((len(one), len(other)))
    for index, traits in enumerate(other):
        _, wanted, shares = _entries([traits])
        _, here, there = np.intersect1d(known, wanted, return_indices=True)
        dense = np.zeros(len(known))
        dense[here] = shares[there]
        found[:, index] = np.bincount(rows, weights * dense[columns], len(one))
    return found


def _entries(
    steps: Sequence[StepTraits],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint64], FloatArray]:
    """Kernels of all steps, flat: step and signature of each, and the root of its share."""
    rows = np.repeat(np.arange(len(steps)), [len(step.kernels) for step in steps])
    signatures = np.array([s for step in steps for s, _ in step.kernels], dtype=np.uint64)
    shares = np.array([share for step in steps for _, share in step.kernels], dtype=np.float64)
    total = np.bincount(rows, shares, len(steps))
    return rows, signatures, np.sqrt(shares / total[rows])
