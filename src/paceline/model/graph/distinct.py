"""The distinct values of an array, without what ``numpy.unique`` imports for them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Kind = TypeVar("Kind", bound=np.generic)


def distinct(values: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
    """Each value once, in order, of an array of any shape, (num_values,).

    ``numpy.unique`` imports ``numpy.ma`` when it is asked for values alone, which takes as long as
    predicting a small model.

    >>> distinct(np.array([[3, 1], [1, 2]])).tolist()
    [1, 2, 3]
    """
    ordered: npt.NDArray[Any] = np.sort(values, axis=None)
    is_new = np.ones(len(ordered), dtype=np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]
