"""How ripe the kernels of a device are: libraries get faster for some years after it appears.

A release that comes out with an architecture has few kernels for its matrix units and rough rules
for choosing among them; later ones have more and better. What streams through memory or runs on
vector units needs no such kernels. So products on matrix units gain a share for every year between
the first device of an architecture and the release that runs, up to a limit. Both dates are known
beforehand; the share is fitted (`paceline.prediction.kernels.device_effects`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paceline.catalog.architectures import Generation
from paceline.model.graph.graph import FloatArray

#: Years after which kernels are ripe, and years at which they change nothing.
_RIPE_YEARS, _REFERENCE_YEARS = 4.0, 3.0


def maturity_years(generations: Sequence[Generation], kernels_year: npt.ArrayLike) -> FloatArray:
    """Years that kernels had to ripen beyond a reference.

    Zero where the release or the first device of the architecture is not known.

    Args:
        generations: Of each device.
        kernels_year: Year of the release that runs, NaN where not told; of all devices, or one
            for each of any number of releases.

    Returns:
        Years, (num_devices,), or (num_devices, num_releases).
    """
    released = np.asarray(kernels_year, dtype=np.float64)
    started = first_years(generations).reshape(-1, *(1,) * released.ndim)
    years = np.clip(released - started, 0.0, _RIPE_YEARS) - _REFERENCE_YEARS
    return np.where(np.isnan(years), 0.0, years)


def first_years(generations: Sequence[Generation]) -> FloatArray:
    """When the first device of each generation came out, (num_devices,); NaN where unknown."""
    return np.array([one.first_device_year or np.nan for one in generations])
