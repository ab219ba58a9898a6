"""Where and how measurements run: the machine with its sensors, and the limits of a cell."""

from __future__ import annotations

import getpass
import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from paceline.catalog.entities import Machine
from paceline.execution.machine.facts import HostFacts
from paceline.execution.machine.sensors import Sensors
from paceline.values import dataclass

#: How long and how often a cell is timed; see `paceline.execution.engines.engine.time_steps`.
QUICK_TIMING: Mapping[str, float] = {
    "min_samples": 10, "max_samples": 1000, "min_s": 1.0, "max_s": 20.0,
    "max_warmup_s": 10.0, "min_sample_s": 0.005,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How cells are measured.

    Attributes:
        timeout_s: Wall time of one cell, start and compilation included.
        memory_bytes: Main memory of one cell's processes together; None for no cap.
        num_threads: CPU threads of each process.
        device: ``cpu`` or ``cuda`` (which also means ROCm).
        timing: See `QUICK_TIMING`.
        profile_folder: Where a Chrome trace per cell goes; None for none.
        user_folder: Where a user's own ``module:function`` is found.
    """

    timeout_s: float = 600.0
    memory_bytes: float | None = None
    num_threads: int = 1
    device: str = "cpu"
    timing: Mapping[str, float] = field(default_factory=lambda: dict(QUICK_TIMING))
    profile_folder: Path | None = None
    user_folder: Path = Path()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a sweep runs.

    Attributes:
        facts: The machine.
        machine: The machine as the catalogue describes it.
        fingerprint: Hash of machine and user, so that shared records name nobody.
        sensors: What is read while a worker measures.
    """

    facts: HostFacts
    machine: Machine
    fingerprint: str
    sensors: Sensors


def fingerprint(root: Path = Path("/")) -> str:
    """Hash of this machine and user: equal on the next run, and naming nobody."""
    try:
        machine_id = (root / "etc/machine-id").read_text().strip()
    except OSError:
        machine_id = ""
    text = "\n".join((machine_id, platform.node(), _user()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _user() -> str:
    """The user's name, or the number of one that has no name, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def device_name(place: Place, settings: Settings) -> str:
    """What a record calls the device: the catalogue's name, else the driver's or the kernel's."""
    if settings.device == "cuda":
        gpu = place.facts.gpus[0]
        return place.machine.device_name or (f"slice of {gpu.name}" if gpu.is_mig else gpu.name)
    return place.machine.cpu_device_name or place.facts.cpu_name
