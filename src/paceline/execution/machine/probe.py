"""What this machine is, from files and drivers and without any framework, in milliseconds."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Literal

from paceline.catalog.entities import Catalog, Device, Machine
from paceline.execution.machine.facts import GpuFacts, HostFacts, Vendor
from paceline.execution.machine.nvml import open_nvml
from paceline.shipped import shipped_rows
from paceline.units import format_bytes

_ROOT = Path("/")
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "asimd", "sve")
_ENGINES = ("docker", "podman", "apptainer", "singularity", "enroot")
_PCI_VENDORS: dict[str, Vendor] = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
_MAKER_WORDS = frozenset({"nvidia", "amd", "intel", "tesla", "geforce", "quadro", "radeon"})
_FILLER_WORDS = frozenset({"instinct", "cpu", "gpu", "processor", "generation", "edition", "with"})
_MEMORY_LIMITS = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")


def probe_machine(catalog: Catalog | None = None, *, facts: HostFacts | None = None) -> Machine:
    """This machine as the catalogue would describe it.

    A GPU that the catalogue does not know leaves ``device_name`` None with ``num_devices`` above
    zero: it is never taken for a similar one, nor is a slice of a GPU for the whole.

    Args:
        catalog: Where GPUs and CPUs are looked up; without one it is loaded only if there is
            a GPU to look up.
        facts: What was probed before; probed now without them.
    """
    facts = probe_host() if facts is None else facts
    if catalog is None and facts.gpus:
        from paceline.catalog.load import load_catalog

        catalog = load_catalog()
    devices = () if catalog is None else catalog.devices
    gpu = whole_gpu(facts.gpus, devices)
    cpu = match_device(facts.cpu_name, None, devices)
    return Machine(
        name="this machine",
        device_name=gpu.name if gpu else None,
        num_devices=sum(g.name == facts.gpus[0].name for g in facts.gpus) if facts.gpus else 0,
        cpu_device_name=cpu.name if cpu else None,
        num_cores=facts.num_cores,
        host_memory_bytes=facts.host_memory_bytes,
        interconnect=_interconnect(facts.gpus, gpu),
    )


def describe_machine(machine: Machine) -> str:
    """One line about a machine, as the first screen shows it.

    >>> describe_machine(Machine(name="m", device_name=None, num_devices=0, num_cores=2,
    ...                          host_memory_bytes=24e9))
    '2 cores, 24 GB, no GPU'
    """
    cores = f"{machine.num_cores} cores" if machine.num_cores else "unknown cores"
    memory = format_bytes(machine.host_memory_bytes, 2) if machine.host_memory_bytes else "?"
    return f"{cores}, {memory}, {_gpu_words(machine)}"


def match_device(
    name: str, memory_bytes: float | None, devices: tuple[Device, ...]
) -> Device | None:
    """The catalogue device that a driver's name and memory size mean; None unless exactly one.

    Args:
        name: As the driver or the kernel prints it.
        memory_bytes: Total memory as the driver counts it, which is up to a tenth less than
            marketed.
        devices: Where to look.
    """
    alias = _driver_names().get(name.strip())
    words = None if alias else _words(name)
    found = [d for d in devices if d.name == alias or (words and _words(d.name) == words)]
    found = [d for d in found if _fits_memory(d, memory_bytes)]
    return found[0] if len(found) == 1 else None


def probe_host(root: Path = _ROOT) -> HostFacts:
    """Everything the machine says about itself.

    Args:
        root: Where ``proc``, ``sys`` and ``dev`` are; another folder in tests.
    """
    nvml = open_nvml(root)
    cpuinfo = _read(root / "proc/cpuinfo")
    num_threads = _num_threads(root)
    return HostFacts(
        os_name=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        cpu_name=_cpu_name(cpuinfo),
        num_cores=_num_cores(cpuinfo, num_threads),
        num_threads=num_threads,
        cpu_flags=_cpu_flags(cpuinfo),
        host_memory_bytes=_memory_bytes(root),
        shm_bytes=_filesystem_bytes(root / "dev/shm"),
        gpus=nvml.gpus() if nvml else _gpus_from_files(root),
        nvidia_driver=nvml.driver_version() if nvml else _nvidia_driver(root),
        cuda_driver=nvml.cuda_version() if nvml else None,
        rocm=_read(root / "opt/rocm/.info/version").strip() or None,
        opencl_platforms=_opencl_platforms(root),
        container_engines=_container_engines(root),
        container=_container(root),
        hypervisor=_hypervisor(root, cpuinfo),
    )


def whole_gpu(gpus: tuple[GpuFacts, ...], devices: tuple[Device, ...]) -> Device | None:
    """The catalogue's entry of the first GPU, unless there is none or it is cut into slices."""
    if not gpus or gpus[0].is_mig:
        return None
    return match_device(gpus[0].name, gpus[0].memory_bytes, devices)


def _gpu_words(machine: Machine) -> str:
    if machine.num_devices == 0:
        return "no GPU"
    count = f"{machine.num_devices} × " if machine.num_devices > 1 else ""
    return f"{count}{machine.device_name or 'a GPU that the catalogue does not know'}"


@cache
def _driver_names() -> dict[str, str]:
    """Drivers' names that do not carry the words of the catalogue's, from the data file."""
    rows = shipped_rows("execution", "driver_names.csv")
    return {row["driver_name"]: row["device_name"] for row in rows}


def _words(name: str) -> frozenset[str]:
    """What tells two models apart: no maker, no size, nothing in brackets."""
    plain = re.sub(r"\([^)]*\)|@.*|\b\d+ ?gi?b\b|\bhbm\w*|\b\d+-core", " ", name.lower())
    return frozenset(re.findall(r"[a-z0-9+]+", plain)) - _MAKER_WORDS - _FILLER_WORDS


def _fits_memory(device: Device, memory_bytes: float | None) -> bool:
    if memory_bytes is None or device.memory_bytes is None:
        return True
    return 0.88 < memory_bytes / device.memory_bytes < 1.09


def _interconnect(gpus: tuple[GpuFacts, ...], device: Device | None) -> str | None:
    if len(gpus) < 2:
        return None
    if gpus[0].num_nvlinks > 0:
        return device.fabric if device else None
    return f"pcie{gpus[0].pcie_generation}" if gpus[0].pcie_generation else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _cpu_name(cpuinfo: str) -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    if match:
        return match.group(1).strip()
    if platform.system() == "Darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string")
    return platform.processor() or platform.machine()


def _cpu_flags(cpuinfo: str) -> tuple[str, ...]:
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    present = set(match.group(1).split()) if match else set()
    return tuple(flag for flag in _FLAGS if flag in present)


def _num_threads(root: Path) -> int:
    """Threads of the affinity mask, cut to the control group's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota, _, period = _read(root / "sys/fs/cgroup/cpu.max").partition(" ")
    limit = int(quota) / int(period) if quota.isdigit() else float("inf")
    return max(1, min(allowed or 1, int(limit) if limit != float("inf") else allowed or 1))


def _num_cores(cpuinfo: str, num_threads: int) -> int:
    ids = re.findall(r"^physical id\s*:\s*(\d+)[\s\S]*?^core id\s*:\s*(\d+)", cpuinfo, re.MULTILINE)
    return min(len(set(ids)), num_threads) if ids else num_threads


def _memory_bytes(root: Path) -> float:
    match = re.search(r"^MemTotal:\s*(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    total = int(match.group(1)) * 1024.0 if match else _memory_from_system()
    limits = (_read(root / path).strip() for path in _MEMORY_LIMITS)
    return min([total, *(float(limit) for limit in limits if limit.isdigit())])


def _memory_from_system() -> float:
    if platform.system() == "Darwin":
        return float(_output("sysctl", "-n", "hw.memsize") or 0)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _filesystem_bytes(path: Path) -> float | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return float(status.f_frsize * status.f_blocks)


def _gpus_from_files(root: Path) -> tuple[GpuFacts, ...]:
    """GPUs as the NVIDIA module and the PCI bus list them, for machines without the library."""
    information = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    nvidia = tuple(_gpu_from_information(_read(path)) for path in information)
    others = tuple(_gpus_from_bus(root, skip="NVIDIA" if nvidia else None))
    return nvidia + others + _gpus_of_apple()


def _gpu_from_information(text: str) -> GpuFacts:
    fields = dict(re.findall(r"^([\w ]+):\s*(.*)$", text, re.MULTILINE))
    return GpuFacts(
        name=fields.get("Model", "").strip(),
        vendor="NVIDIA",
        uuid=fields.get("GPU UUID", "").strip(),
    )


def _gpus_from_bus(root: Path, *, skip: Vendor | None) -> list[GpuFacts]:
    """Display and compute controllers on the PCI bus that have a driver which can compute."""
    gpus = []
    for path in sorted((root / "sys/bus/pci/devices").glob("*")):
        vendor = _PCI_VENDORS.get(_read(path / "vendor").strip())
        if vendor is None or vendor == skip or not _is_display(path):
            continue
        if vendor == "AMD" or not (path / "boot_vga").exists():
            gpus.append(_gpu_from_bus(path, vendor))
    return gpus


def _is_display(path: Path) -> bool:
    return _read(path / "class").strip()[:6] in {"0x0300", "0x0302", "0x0380", "0x1200"}


def _gpu_from_bus(path: Path, vendor: Vendor) -> GpuFacts:
    total = _read(path / "mem_info_vram_total").strip()
    return GpuFacts(
        name=_read(path / "product_name").strip() or f"{vendor} {_read(path / 'device').strip()}",
        vendor=vendor,
        uuid=_read(path / "unique_id").strip(),
        memory_bytes=float(total) if total.isdigit() else None,
    )


def _gpus_of_apple() -> tuple[GpuFacts, ...]:
    if platform.system() != "Darwin" or platform.machine() != "arm64":
        return ()
    return (GpuFacts(name=_output("sysctl", "-n", "machdep.cpu.brand_string"), vendor="Apple"),)


def _nvidia_driver(root: Path) -> str | None:
    module = _read(root / "sys/module/nvidia/version").strip()
    match = re.search(
        r"Kernel Module.*?\s(\d+\.\d+[.\d]*)", _read(root / "proc/driver/nvidia/version")
    )
    return module or (match.group(1) if match else None)


def _opencl_platforms(root: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (root / "etc/OpenCL/vendors").glob("*.icd")))


def _container_engines(root: Path) -> tuple[str, ...]:
    """Engines on the path; those with a daemon count only where its socket is there."""
    found = [engine for engine in _ENGINES if shutil.which(engine)]
    sockets = (root / "var/run/docker.sock", root / "run/docker.sock")
    has_socket = "DOCKER_HOST" in os.environ or any(path.exists() for path in sockets)
    return tuple(engine for engine in found if engine != "docker" or has_socket)


def _container(root: Path) -> Literal["docker", "podman", "kubernetes", "apptainer"] | None:
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    return "apptainer" if os.environ.get("APPTAINER_CONTAINER") else None


def _hypervisor(root: Path, cpuinfo: str) -> str | None:
    """Vendor of the virtual machine where the processor says that it runs in one."""
    if not re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE):
        return None
    vendor = _read(root / "sys/class/dmi/id/sys_vendor").strip()
    product = _read(root / "sys/class/dmi/id/product_name").strip()
    return " ".join(word for word in (vendor, product) if word) or "a hypervisor"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
