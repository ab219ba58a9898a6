"""How much arithmetic the multiprocessors of each device have, for the law of device effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from paceline.catalog.entities import Device
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.device_effects import log_traits
from paceline.prediction.kernels.power import sustained_clock_frac


def device_traits(devices: Iterable[Device]) -> Mapping[str, np.ndarray]:
    """Log traits of each device by name, (number of laws, number of effects)."""
    table = DeviceTable.from_devices(tuple(devices))
    values = log_traits(table, sustained_clock_frac(table, builtin_calibration()))
    return dict(zip(table.names, values, strict=True))
