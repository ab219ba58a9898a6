"""How sure a prediction is: the case it is in, and the spread of log time in that case."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.device_kinds import kind_facts
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Coverage
from paceline.prediction.uncertainty.device_distance import clock_log_sigma, distances
from paceline.values import dataclass

#: Standard deviations to either end of the interval that holds in four of five cases, which is also
#: the bound that holds in nine of ten.
Z_80 = 1.2815515655446004


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UncertaintyTerms:
    """What makes a step less sure than others on its device.

    Attributes:
        framework: Whose host dispatch applies: a name in the calibration's ``host`` table.
        host_frac: Time of the host's dispatch over the step's, (num_devices, num_points).
        unmeasured_frac: Share of the step in op kinds without truth, same shape.
        device_frac: Time of the device's kernels over the step's, same shape.
        runs: Whose kernels, in the words of `device_kinds.runs_of`.
    """

    framework: str
    host_frac: FloatArray
    unmeasured_frac: FloatArray
    device_frac: FloatArray
    runs: tuple[str, ...] = ("",)


def knowledge_of(devices: DeviceTable, calibration: Calibration) -> npt.NDArray[np.int8]:
    """`Coverage` of each device that the built-in coefficients have, (num_devices,)."""
    cases = [
        _case(name, family, architecture, calibration)
        for name, family, architecture in zip(
            devices.names, devices.families, devices.architectures, strict=True
        )
    ]
    return np.array(cases, dtype=np.int8)


def with_observations(
    knowledge: npt.NDArray[np.int8], devices: DeviceTable, calibration: Calibration
) -> npt.NDArray[np.int8]:
    """The same where the user's own measurements count too, (num_devices,)."""
    is_taught = np.array([name in calibration.lessons for name in devices.names])
    return np.where(is_taught, np.int8(Coverage.MEASURED), knowledge)


def _case(name: str, family: str, architecture: str, calibration: Calibration) -> Coverage:
    if name in calibration.measured_devices:
        return Coverage.MEASURED
    if family in calibration.measured_families:
        return Coverage.SIBLING
    if architecture in calibration.measured_architectures:
        return Coverage.ARCHITECTURE
    return Coverage.UNKNOWN


def log_sigma(
    devices: DeviceTable,
    knowledge: npt.NDArray[np.int8],
    doubts: UncertaintyTerms,
    calibration: Calibration,
) -> FloatArray:
    """Standard deviation of log step time, (num_devices, num_points).

    Independent parts add their squares: a step's own; what the host's share adds; what a framework
    adds that was measured on few groups of devices; and where neither a GPU nor its family was
    measured, what its distance to the nearest one adds that was, and the power that its listed
    clock asks beyond its base clock. Kernels of makers whose devices no fit saw add what published
    figures of such devices showed (``data/device_kinds.csv``), as far as they fill the step where
    the host runs code that was timed.

    Args:
        devices: The devices.
        knowledge: Case of each, (num_devices,).
        doubts: What is asked of them.
        calibration: Each part by case, fitted to steps of held-out devices.
    """
    facts = calibration.constants["interval"]

    def by_case(name: str) -> FloatArray:
        part: FloatArray = np.array(facts[name])[knowledge][:, None]
        return part

    num_groups = facts["framework_groups"].get(doubts.framework, 0)
    kinds = [kind_facts(one, calibration, runs=doubts.runs) for one in devices.kinds]
    kind_sigma = np.array([one.log_sigma for one in kinds])[:, None]
    is_timed = kind_sigma == 0
    of_kind = np.where(knowledge[:, None] == Coverage.MEASURED, 0.0, kind_sigma)
    host_is_sure = np.array([one.host_is_measured for one in kinds])[:, None]
    filled_frac = np.where(host_is_sure, np.clip(doubts.device_frac, 0.0, 1.0), 1.0)
    parts = (
        by_case("log_sigma_by_knowledge"),
        by_case("log_sigma_host") * np.sqrt(np.clip(doubts.host_frac, 0.0, 1.0)),
        by_case("log_sigma_framework") * framework_doubt(num_groups),
        np.where(is_timed, _device_log_sigma(devices, knowledge, calibration)[:, None], 0.0),
        facts["log_sigma_unmeasured_kind"] * doubts.unmeasured_frac,
        of_kind * filled_frac,
    )
    sigma: FloatArray = np.sqrt(sum(np.square(part) for part in parts))
    return sigma


def framework_doubt(num_groups: npt.ArrayLike) -> FloatArray:
    """What is unknown of a framework that was measured on so many groups of devices.

    >>> [float(framework_doubt(n)) for n in (0, 1, 4)]
    [1.0, 0.5, 0.2]
    """
    doubt: FloatArray = 1.0 / (1.0 + np.asarray(num_groups, dtype=np.float64))
    return doubt


def _device_log_sigma(
    devices: DeviceTable, knowledge: npt.NDArray[np.int8], calibration: Calibration
) -> FloatArray:
    """What a device adds of which neither itself nor its family was measured, (num_devices,)."""
    facts = calibration.constants["interval"]
    added: FloatArray = np.hypot(
        facts["log_sigma_per_distance"] * distances(devices, facts["measured_coordinates"]),
        clock_log_sigma(devices, facts["log_sigma_per_clock_excess"]),
    )
    return np.where(knowledge < Coverage.ARCHITECTURE, 0.0, added)
