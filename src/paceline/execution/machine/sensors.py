"""What devices and processes do while a worker runs, read between two looks at its output."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from paceline.execution.machine.nvml import GpuSample, Nvml
from paceline.execution.processes import descendants, tree_usage
from paceline.values import dataclass

_RAPL = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything at one moment.

    Attributes:
        at_s: Monotonic time.
        gpus: One sample per watched GPU.
        cpu_s: Processor time of the worker's processes so far.
        resident_bytes: Main memory of the worker's processes.
        cpu_energy_j: Energy counter of the processor packages; None where it may not be read.
        is_shared: Whether another process computes on a watched GPU; None if not told.
    """

    at_s: float
    gpus: tuple[GpuSample, ...]
    cpu_s: float
    resident_bytes: float
    cpu_energy_j: float | None
    is_shared: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSummary:
    """What the readings of one window add up to; None where no sensor told.

    Attributes:
        utilization_frac: Mean share of time a GPU ran a kernel; on the CPU, mean share of the
            threads that the worker may use.
        peak_device_bytes: Largest memory in use on one GPU, by whomever.
        peak_resident_bytes: Largest main memory of the worker's processes.
        mean_power_w: Mean power of one GPU, or of the processor packages.
        energy_j: Energy of all watched devices over the window.
        mean_clock_hz: Mean clock of the GPUs.
        temperature_c: Highest last temperature, in degrees Celsius.
        throttle_reasons: Why clocks were held back at any reading.
        is_shared: Whether anybody else computed on a watched GPU.
        window_s: Length of the window.
    """

    utilization_frac: float | None
    peak_device_bytes: float | None
    peak_resident_bytes: float
    mean_power_w: float | None
    energy_j: float | None
    mean_clock_hz: float | None
    temperature_c: float | None
    throttle_reasons: tuple[str, ...]
    is_shared: bool | None
    window_s: float


class Sensors:
    """Reads the watched devices and a process tree.

    Args:
        nvml: Management library; None without NVIDIA GPUs.
        gpus: Indices of the GPUs to watch.
        rapl: Where the kernel shows processor energy.
    """

    def __init__(self, nvml: Nvml | None, gpus: Sequence[int] = (), rapl: Path = _RAPL) -> None:
        self._nvml = nvml
        self._gpus = tuple(gpus) if nvml else ()
        self._energy_files = tuple(sorted(rapl.glob("intel-rapl:[0-9]/energy_uj")))

    def read(self, pid: int) -> Reading:
        """One reading while the worker ``pid`` runs."""
        usage = tree_usage(pid)
        return Reading(
            at_s=time.monotonic(),
            gpus=tuple(self._nvml.sample(i) for i in self._gpus) if self._nvml else (),
            cpu_s=usage.cpu_s,
            resident_bytes=usage.resident_bytes,
            cpu_energy_j=self._cpu_energy_j(),
            is_shared=self._is_shared(pid),
        )

    def _cpu_energy_j(self) -> float | None:
        try:
            counts = [int(path.read_text()) for path in self._energy_files]
        except (OSError, ValueError):
            return None
        return sum(counts) * 1e-6 if counts else None

    def _is_shared(self, pid: int) -> bool | None:
        if self._nvml is None or not self._gpus:
            return None
        own = set(descendants(pid))
        found = [self._nvml.process_ids(index) for index in self._gpus]
        if any(pids is None for pids in found):
            return None
        return any(other not in own for pids in found if pids for other in pids)


def summarize(readings: Sequence[Reading], *, num_threads: int) -> SensorSummary | None:
    """What the readings of one window say; None with fewer than two of them.

    Args:
        readings: In order of time.
        num_threads: Threads that the worker may use, for its share of the processor.
    """
    if len(readings) < 2:
        return None
    first, last = readings[0], readings[-1]
    window_s = last.at_s - first.at_s
    gpu_samples = [sample for reading in readings for sample in reading.gpus]
    cpu_frac = (last.cpu_s - first.cpu_s) / window_s / num_threads
    energy_j = _energy_j(readings)
    num_devices = max(1, len(last.gpus))
    return SensorSummary(
        utilization_frac=_mean(s.utilization_frac for s in gpu_samples)
        if gpu_samples
        else max(0.0, cpu_frac),
        peak_device_bytes=_max(s.used_memory_bytes for s in gpu_samples),
        peak_resident_bytes=max(reading.resident_bytes for reading in readings),
        mean_power_w=None if energy_j is None else energy_j / window_s / num_devices,
        energy_j=energy_j,
        mean_clock_hz=_mean(s.sm_clock_hz for s in gpu_samples),
        temperature_c=_max(s.temperature_c for s in last.gpus),
        throttle_reasons=tuple(sorted({r for s in gpu_samples for r in s.throttle_reasons})),
        is_shared=_any(reading.is_shared for reading in readings),
        window_s=window_s,
    )


def _energy_j(readings: Sequence[Reading]) -> float | None:
    """Energy of all devices: by counter where there is one, else power integrated over time."""
    first, last = readings[0], readings[-1]
    if not last.gpus:
        if first.cpu_energy_j is None or last.cpu_energy_j is None:
            return None
        used_j = last.cpu_energy_j - first.cpu_energy_j
        return used_j if used_j >= 0 else None
    parts = [_gpu_energy_j(readings, index) for index in range(len(last.gpus))]
    return None if any(part is None for part in parts) else sum(p for p in parts if p is not None)


def _gpu_energy_j(readings: Sequence[Reading], index: int) -> float | None:
    begin, end = readings[0].gpus[index].energy_j, readings[-1].gpus[index].energy_j
    if begin is not None and end is not None and end > begin:
        return end - begin
    powers = [(r.at_s, r.gpus[index].power_w) for r in readings]
    if any(power is None for _, power in powers):
        return None
    pairs = itertools.pairwise(powers)
    return sum(
        0.5 * (p + q) * (t - s) for (s, p), (t, q) in pairs if p is not None and q is not None
    )


def _mean(values: Iterable[float | None]) -> float | None:
    present = [v for v in values if v is not None]
    return sum(present) / len(present) if present else None


def _max(values: Iterable[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def _any(values: Iterable[bool | None]) -> bool | None:
    present = [v for v in values if v is not None]
    return any(present) if present else None
