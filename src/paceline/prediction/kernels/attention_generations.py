"""Generations of fused attention: how much slower older kernels are than those that were measured.

The op rows were measured with the kernels that engines and vendors' libraries bring on each
architecture. PyTorch's own (FlashAttention 2) are those on Ampere, and use Ampere's matrix
instructions on what came after it, where newer releases therefore take the vendor's
(``data/frameworks.csv``). Those before them (the first FlashAttention, its Triton version,
xFormers), called ``memory-efficient``, split work otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from paceline.catalog.architectures import Generation
from paceline.model.graph.costs import Configuration
from paceline.model.libraries import runs_before
from paceline.model.rewrite.attention import UNFUSED
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array


def log10_slower(
    devices: DeviceTable, configuration: Configuration, software: Mapping[str, str]
) -> Array:
    """Log10 of the time of attention over that of the measured kernels, (num_devices,).

    NaN where nothing is known of a family of kernels on a device. ``math`` and ``eager`` are no
    fused kernels: an op that stands for them takes as long as with the slowest family.

    Args:
        devices: Where it runs.
        configuration: Says the family of kernels, and whether an engine brings its own.
        software: Facts of the framework: what it brings as ``flash``, and from which release on
            it takes the vendor's kernels on which compute capabilities.

    >>> from paceline.catalog.lookup import find_device
    >>> from paceline.catalog.load import load_catalog
    >>> names = ("A100 SXM4 80GB", "H100 SXM5 80GB")
    >>> devices = DeviceTable.from_devices([find_device(load_catalog(), name) for name in names])
    >>> torch = {"flash_kernels": "flash", "vendor_since": "2.11", "vendor_on": "9.0 10.0"}
    >>> for kernels in ("vendor", "flash", "flash-2", "memory-efficient", "math"):
    ...     slower = log10_slower(devices, Configuration(attention=kernels), torch)
    ...     print(kernels, [round(float(10**one), 2) for one in slower])
    vendor [1.0, 1.0]
    flash [1.0, 1.0]
    flash-2 [1.0, 1.6]
    memory-efficient [2.0, 3.5]
    math [2.0, 3.5]
    """
    since, codes = software["vendor_since"], software["vendor_on"].split()
    is_older = since and runs_before(configuration.libraries, "torch", since)
    slowdown = [
        _slowdown(_kernels(configuration, software, not is_older and one.code in codes), one)
        for one in devices.generations
    ]
    return np.log10(np.array(slowdown, dtype=np.float32))


def _kernels(
    configuration: Configuration, software: Mapping[str, str], prefers_vendor: bool
) -> str:
    """Family of kernels, of which FlashAttention 2 is known as ``flash``."""
    asked = configuration.attention
    if configuration.is_served or (asked == "flash" and prefers_vendor):
        return "vendor"
    return software["flash_kernels"] if asked == "flash" else asked.removesuffix("-2")


def _slowdown(kernels: str, generation: Generation) -> float:
    known = generation.attention_slowdown
    slowest = max(known.values(), default=np.nan)
    return slowest if kernels in UNFUSED else known.get(kernels, np.nan)
