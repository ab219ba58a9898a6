"""How much arithmetic the multiprocessors of each device have, for the law of device effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from paceline.catalog.entities import Device
from paceline.predict import builtin_calibration
from paceline.predict.device_effects import log_traits
from paceline.predict.devices import DeviceTable
from paceline.predict.power import sustained_clock_frac


def device_traits(devices: Iterable[Device]) -> Mapping[str, np.ndarray]:
    """Log traits of each device by name, (number of laws, number of effects)."""
    table = DeviceTable.from_devices(tuple(devices))
    values = log_traits(table, sustained_clock_frac(table, builtin_calibration()))
    return dict(zip(table.names, values, strict=True))
