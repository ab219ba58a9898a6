"""What makes two steps alike: the workload, how it runs, and the kernels that fill its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray
from paceline.values import dataclass

#: Signatures with shares of the time.
Kernels: TypeAlias = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFeatures:
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
    kernels: Kernels = ()


def similarity(one: Sequence[StepFeatures], other: Sequence[StepFeatures]) -> FloatArray:
    """What share of their kernels two steps have in common, (len(one), len(other)).

    The Bhattacharyya coefficient of the shares of time: 1 where both spend their time alike, 0
    where no kernel of one is found in the other, and of a step whose kernels are unknown.
    """
    first, rows = _distinct(one)
    second, columns = _distinct(other)
    return _alike(first, second)[np.ix_(rows, columns)]


def _distinct(steps: Sequence[StepFeatures]) -> tuple[list[Kernels], list[int]]:
    """Each different set of kernels once, and the place of each step's among them."""
    places: dict[Kernels, int] = {}
    found = [places.setdefault(step.kernels, len(places)) for step in steps]
    return list(places), found


def _alike(one: Sequence[Kernels], other: Sequence[Kernels]) -> FloatArray:
    rows, signatures, weights = _entries(one)
    known, columns = np.unique(signatures, return_inverse=True)
    found = np.zeros((len(one), len(other)))
    for index, kernels in enumerate(other):
        _, wanted, shares = _entries([kernels])
        _, here, there = np.intersect1d(known, wanted, return_indices=True)
        dense = np.zeros(len(known))
        dense[here] = shares[there]
        found[:, index] = np.bincount(rows, weights * dense[columns], len(one))
    return found


def _entries(
    steps: Sequence[Kernels],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint64], FloatArray]:
    """Kernels of all steps, flat: step and signature of each, and the root of its share."""
    rows = np.repeat(np.arange(len(steps)), [len(step) for step in steps])
    signatures = np.array([one for step in steps for one, _ in step], dtype=np.uint64)
    shares = np.array([share for step in steps for _, share in step], dtype=np.float64)
    total = np.bincount(rows, shares, len(steps))
    return rows, signatures, np.sqrt(shares / total[rows])
