"""How sure a prediction is: the case it is in, and the spread of log time in that case."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.predict.calibration import Calibration
from paceline.predict.devices import DeviceTable
from paceline.predict.nearness import distances
from paceline.predict.prediction import Knowledge
from paceline.trace.graph import FloatArray


def knowledge_of(devices: DeviceTable, calibration: Calibration) -> npt.NDArray[np.int8]:
    """`Knowledge` of each device, (num_devices,)."""
    measured = calibration.measured_devices | set(calibration.device_log_shift)
    cases = [
        _case(name, family, architecture, measured, calibration)
        for name, family, architecture in zip(
            devices.names, devices.families, devices.architectures, strict=True
        )
    ]
    return np.array(cases, dtype=np.int8)


def _case(
    name: str, family: str, architecture: str, measured: frozenset[str] | set[str],
    calibration: Calibration,
) -> Knowledge:  # fmt: skip
    if name in measured:
        return Knowledge.MEASURED
    if family in calibration.measured_families:
        return Knowledge.SIBLING
    if architecture in calibration.measured_architectures:
        return Knowledge.ARCHITECTURE
    return Knowledge.UNKNOWN


def log_sigma(
    devices: DeviceTable,
    knowledge: npt.NDArray[np.int8],
    unmeasured_frac: FloatArray,
    calibration: Calibration,
) -> FloatArray:
    """Standard deviation of log step time, (num_devices, num_points).

    Where neither a GPU nor its family was measured, it grows with the distance to the nearest one
    that was.

    Args:
        devices: The devices.
        knowledge: Case of each, (num_devices,).
        unmeasured_frac: Share of the step in op kinds without truth, (num_devices, num_points).
        calibration: Spread by case and per distance, and the spread of an unmeasured kind.
    """
    facts = calibration.constants["interval"]
    own = np.array(facts["log_sigma_by_knowledge"])[knowledge]
    is_alike = (knowledge < Knowledge.ARCHITECTURE) | (devices.is_gpu == 0)
    far = np.where(is_alike, 0.0, distances(devices, facts["measured_coordinates"]))
    level = np.hypot(own, facts["log_sigma_per_distance"] * far)
    unmeasured = facts["log_sigma_unmeasured_kind"]
    sigma: FloatArray = np.hypot(level[:, None], unmeasured * unmeasured_frac)
    return sigma
