"""Generations of fused attention: how much slower older kernels are than those that were measured.

The op rows were measured with the kernels of 2024 and later (FlashAttention 2 and 3). Those before
them (the first FlashAttention, its Triton version, xFormers), called ``memory-efficient``, split
work otherwise and use no asynchronous matrix units.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from paceline.predict.devices import DeviceTable
from paceline.predict.features import Array
from paceline.shipped import shipped_rows


def log10_slower(devices: DeviceTable, kernels: str) -> Array:
    """Log10 of the time of attention over that of the measured kernels, (num_devices,).

    Args:
        devices: Where it runs.
        kernels: `Configuration.attention`; families without a row are those measured.

    >>> from paceline.catalog import find_device, load_catalog
    >>> devices = DeviceTable.from_devices([find_device(load_catalog(), "A100 SXM4 80GB")])
    >>> [round(float(10 ** log10_slower(devices, k)[0]), 3) for k in ("flash", "memory-efficient")]
    [1.0, 2.0]
    """
    known = _slowdowns()
    anywhere = known.get((kernels, "*"), 1.0)
    slowdown = [known.get((kernels, one), anywhere) for one in devices.architectures]
    return np.log10(np.array(slowdown, dtype=np.float32))


@cache
def _slowdowns() -> dict[tuple[str, str], float]:
    return {
        (row["kernels"], row["architecture"]): float(row["slowdown"])
        for row in shipped_rows("predict", "attention_kernels.csv")
    }
