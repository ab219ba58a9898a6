"""The few calls of NVIDIA's management library that paceline makes, behind one small seam.

Tests put a recording in its place (`Nvml` is a Protocol), so every path that
reads a GPU is exercised without one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from paceline.execution.machine.facts import GpuFacts
from paceline.values import dataclass

_T = TypeVar("_T")

#: Bits of ``nvmlDeviceGetCurrentClocksThrottleReasons`` that slow a measurement down.
_THROTTLE_REASONS: tuple[tuple[int, str], ...] = (
    (0x0000000000000004, "power limit"),
    (0x0000000000000008, "hardware slowdown"),
    (0x0000000000000020, "software thermal limit"),
    (0x0000000000000040, "hardware thermal limit"),
    (0x0000000000000080, "power brake"),
)


#: ``NVML_MEMORY_ERROR_TYPE_UNCORRECTED`` and ``NVML_VOLATILE_ECC`` of nvml.h.
_UNCORRECTED, _SINCE_LOADED = 1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One reading of one GPU; a quantity its driver does not tell is None.

    Attributes:
        utilization_frac: Share of time in which a kernel ran.
        used_memory_bytes: Memory in use by everybody, as the driver counts it.
        power_w: Board power.
        energy_j: Energy counter since the driver was loaded.
        sm_clock_hz: Clock of the multiprocessors.
        temperature_c: Temperature of the die, in degrees Celsius.
        throttle_reasons: Why the clock is held back; empty where it is not.
    """

    utilization_frac: float | None = None
    used_memory_bytes: float | None = None
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_hz: float | None = None
    temperature_c: float | None = None
    throttle_reasons: tuple[str, ...] = ()


class Nvml(Protocol):
    """What paceline asks of the management library."""

    def driver_version(self) -> str:
        """Version of the loaded kernel driver."""

    def cuda_version(self) -> str | None:
        """Newest CUDA that the driver speaks, as ``major.minor``."""

    def gpus(self) -> tuple[GpuFacts, ...]:
        """Every GPU that this process may see."""

    def sample(self, index: int) -> GpuSample:
        """One reading of GPU ``index``."""

    def process_ids(self, index: int) -> tuple[int, ...] | None:
        """Processes that compute on GPU ``index``; None if the driver does not tell."""


class PyNvml:
    """`Nvml` on top of the ``pynvml`` module of the nvidia-ml-py distribution."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._handles: dict[int, Any] = {}

    def driver_version(self) -> str:
        """See `Nvml.driver_version`."""
        return _text(self._library.nvmlSystemGetDriverVersion())

    def cuda_version(self) -> str | None:
        """See `Nvml.cuda_version`."""
        code = self._ask(self._library.nvmlSystemGetCudaDriverVersion_v2)
        return None if code is None else f"{code // 1000}.{code % 1000 // 10}"

    def gpus(self) -> tuple[GpuFacts, ...]:
        """See `Nvml.gpus`."""
        return tuple(self._facts(i) for i in range(self._library.nvmlDeviceGetCount()))

    def sample(self, index: int) -> GpuSample:
        """See `Nvml.sample`."""
        lib, handle = self._library, self._handle(index)
        rates = self._ask(lib.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(lib.nvmlDeviceGetMemoryInfo, handle)
        throttle = self._ask(lib.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return GpuSample(
            utilization_frac=None if rates is None else rates.gpu / 100,
            used_memory_bytes=None if memory is None else float(memory.used),
            power_w=_scaled(self._ask(lib.nvmlDeviceGetPowerUsage, handle), 1e-3),
            energy_j=_scaled(self._ask(lib.nvmlDeviceGetTotalEnergyConsumption, handle), 1e-3),
            sm_clock_hz=_scaled(self._ask(lib.nvmlDeviceGetClockInfo, handle, 1), 1e6),
            temperature_c=_scaled(self._ask(lib.nvmlDeviceGetTemperature, handle, 0), 1.0),
            throttle_reasons=throttle_names(throttle or 0),
        )

    def process_ids(self, index: int) -> tuple[int, ...] | None:
        """See `Nvml.process_ids`."""
        lib = self._library
        found = self._ask(lib.nvmlDeviceGetComputeRunningProcesses, self._handle(index))
        return None if found is None else tuple(int(process.pid) for process in found)

    def _facts(self, index: int) -> GpuFacts:
        lib, handle = self._library, self._handle(index)
        memory = self._ask(lib.nvmlDeviceGetMemoryInfo, handle)
        capability = self._ask(lib.nvmlDeviceGetCudaComputeCapability, handle)
        mig = self._ask(lib.nvmlDeviceGetMigMode, handle)
        rows = self._ask(lib.nvmlDeviceGetRemappedRows, handle)
        throttle = self._ask(lib.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        pids = self.process_ids(index)
        return GpuFacts(
            name=_text(lib.nvmlDeviceGetName(handle)),
            vendor="NVIDIA",
            uuid=_text(lib.nvmlDeviceGetUUID(handle)),
            memory_bytes=None if memory is None else float(memory.total),
            compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
            power_limit_w=_scaled(self._ask(lib.nvmlDeviceGetEnforcedPowerLimit, handle), 1e-3),
            pcie_generation=self._ask(lib.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            pcie_lanes=self._ask(lib.nvmlDeviceGetMaxPcieLinkWidth, handle),
            pcie_lanes_now=self._ask(lib.nvmlDeviceGetCurrPcieLinkWidth, handle),
            num_nvlinks=self._num_nvlinks(handle),
            is_mig=mig is not None and mig[0] == 1,
            num_other_processes=None if pids is None else len(pids),
            num_memory_errors=self._ask(
                lib.nvmlDeviceGetTotalEccErrors, handle, _UNCORRECTED, _SINCE_LOADED
            ),
            has_failed_rows=rows is not None and bool(rows[2] or rows[3]),
            throttle_reasons=throttle_names(throttle or 0),
        )

    def _num_nvlinks(self, handle: Any) -> int:
        state = self._library.nvmlDeviceGetNvLinkState
        return sum(self._ask(state, handle, link) == 1 for link in range(18))

    def _handle(self, index: int) -> Any:
        if index not in self._handles:
            self._handles[index] = self._library.nvmlDeviceGetHandleByIndex(index)
        return self._handles[index]

    def _ask(self, call: Callable[..., _T], *args: object) -> _T | None:
        """The answer of ``call``, or None where this card or driver does not have one."""
        try:
            return call(*args)
        except self._library.NVMLError:
            return None


def open_nvml(root: Path = Path("/")) -> Nvml | None:
    """The management library of this machine, or None without an NVIDIA driver.

    Device files are looked at first, so a machine without a GPU pays no import.
    """
    if not any((root / path).exists() for path in ("dev/nvidiactl", "dev/dxg")):
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return PyNvml(pynvml)


def throttle_names(bits: int) -> tuple[str, ...]:
    """Names of the reasons in a throttle mask that slow a measurement down.

    >>> throttle_names(0x24)
    ('power limit', 'software thermal limit')
    """
    return tuple(name for bit, name in _THROTTLE_REASONS if bits & bit)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(value) * factor
