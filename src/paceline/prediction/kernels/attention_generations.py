"""Generations of fused attention: how much slower older kernels are than those that were measured.

The op rows were measured with the kernels that engines and vendors' libraries bring on each
architecture. PyTorch's own (``flash``: FlashAttention 2) are those on Ampere, and use Ampere's
matrix instructions on what came after it. Those before them (the first FlashAttention, its Triton
version, xFormers), called ``memory-efficient``, split work otherwise.
"""

from __future__ import annotations

import numpy as np

from paceline.catalog.architectures import Generation
from paceline.model.graph.costs import Configuration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array


def log10_slower(devices: DeviceTable, configuration: Configuration, own: str) -> Array:
    """Log10 of the time of attention over that of the measured kernels, (num_devices,).

    NaN where nothing is known of a family of kernels on a device. ``math`` is no fused kernel: an
    op that stands for it takes as long as with the slowest family.

    Args:
        devices: Where it runs.
        configuration: Says the family of kernels, and whether an engine brings its own.
        own: Family of the kernels that the framework brings as ``flash``.

    >>> from paceline.catalog.lookup import find_device
    >>> from paceline.catalog.load import load_catalog
    >>> names = ("A100 SXM4 80GB", "H100 SXM5 80GB")
    >>> devices = DeviceTable.from_devices([find_device(load_catalog(), name) for name in names])
    >>> for kernels in ("vendor", "flash", "memory-efficient", "math"):
    ...     slower = log10_slower(devices, Configuration(attention=kernels), "flash")
    ...     print(kernels, [round(float(10**one), 2) for one in slower])
    vendor [1.0, 1.0]
    flash [1.0, 1.6]
    memory-efficient [2.0, 3.5]
    math [2.0, 3.5]
    """
    kernels = own if configuration.attention == "flash" else configuration.attention
    if configuration.is_served:
        kernels = "vendor"
    slowdown = [_slowdown(kernels, one) for one in devices.generations]
    return np.log10(np.array(slowdown, dtype=np.float32))


def _slowdown(kernels: str, generation: Generation) -> float:
    known = generation.attention_slowdown
    slowest = max(known.values(), default=np.nan)
    return slowest if kernels == "math" else known.get(kernels, np.nan)
