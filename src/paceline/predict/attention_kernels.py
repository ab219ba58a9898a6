"""Generations of fused attention: how much slower older kernels are than those that were measured.

The op rows were measured with the kernels that engines and vendors' libraries bring on each
architecture. PyTorch's own (``flash``: FlashAttention 2) are those on Ampere, and use Ampere's
matrix instructions on what came after it. Those before them (the first FlashAttention, its Triton
version, xFormers), called ``memory-efficient``, split work otherwise.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from paceline.predict.devices import DeviceTable
from paceline.predict.features import Array
from paceline.shipped import shipped_rows
from paceline.trace.costs import Configuration


def log10_slower(devices: DeviceTable, configuration: Configuration, framework: str) -> Array:
    """Log10 of the time of attention over that of the measured kernels, (num_devices,).

    Args:
        devices: Where it runs.
        configuration: Says the family of kernels, and whether an engine brings its own; families
            without a row are those measured.
        framework: Whose kernels run.

    >>> from paceline.catalog import find_device, load_catalog
    >>> names = ("A100 SXM4 80GB", "H100 SXM5 80GB")
    >>> devices = DeviceTable.from_devices([find_device(load_catalog(), name) for name in names])
    >>> for kernels in ("vendor", "flash", "memory-efficient"):
    ...     slower = log10_slower(devices, Configuration(attention=kernels), "torch")
    ...     print(kernels, [round(float(10**one), 2) for one in slower])
    vendor [1.0, 1.0]
    flash [1.0, 1.6]
    memory-efficient [2.0, 3.5]
    """
    if configuration.is_served:
        return np.zeros(len(devices.compute_capabilities), dtype=np.float32)
    slowdown = [
        _slowdown(configuration.attention, framework, generation)
        for generation in _generations(devices)
    ]
    return np.log10(np.array(slowdown, dtype=np.float32))


def _generations(devices: DeviceTable) -> list[str]:
    """Major compute capability of each device; empty where it has none."""
    return [str(one).partition(".")[0] for one in devices.compute_capabilities]


@cache
def _slowdown(kernels: str, framework: str, generation: str) -> float:
    """Of the most particular row: of this generation, else of any."""
    for asked in (generation, "*"):
        for row in shipped_rows("predict", "attention_kernels.csv"):
            is_family = row["kernels"] == kernels and row["framework"] in (framework, "*")
            if is_family and row["compute_capability"] == asked:
                return float(row["slowdown"])
    return 1.0
