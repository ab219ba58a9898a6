"""What the machine says about itself, before the catalogue is asked what that means."""

from __future__ import annotations

from typing import Literal

from paceline.values import dataclass

Vendor = Literal["NVIDIA", "AMD", "Intel", "Apple"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU as its driver reports it.

    Attributes:
        name: The driver's own name, such as ``NVIDIA A100-SXM4-80GB``.
        vendor: Who made it.
        uuid: The driver's identifier; empty where none is told.
        memory_bytes: Total memory as the driver counts it; None if not told.
        compute_capability: ``major.minor``; None off NVIDIA.
        power_limit_w: Enforced board power limit.
        pcie_generation: Highest PCIe generation that card and slot share.
        pcie_lanes: Widest PCIe link that card and slot share.
        pcie_lanes_now: Lanes that work now; a sound link keeps them at rest.
        num_nvlinks: Active NVLink connections.
        is_mig: Whether the card is cut into slices.
        num_other_processes: Processes that compute on it now; None if not told.
        num_memory_errors: Errors that ECC could not correct since the driver was loaded; None if
            not told.
        has_failed_rows: Whether broken rows of memory wait for a reset, or none are left to replace
            them.
        throttle_reasons: Why its clock is held back now; empty where it is not.
    """

    name: str
    vendor: Vendor
    uuid: str = ""
    memory_bytes: float | None = None
    compute_capability: str | None = None
    power_limit_w: float | None = None
    pcie_generation: int | None = None
    pcie_lanes: int | None = None
    pcie_lanes_now: int | None = None
    num_nvlinks: int = 0
    is_mig: bool = False
    num_other_processes: int | None = None
    num_memory_errors: int | None = None
    has_failed_rows: bool = False
    throttle_reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One machine as its operating system and drivers report it.

    Attributes:
        os_name: Kernel name and release.
        architecture: Instruction set, such as ``x86_64``.
        cpu_name: Model name of the processor.
        num_cores: Physical cores, or the share of them that this process may use.
        num_threads: Hardware threads this process may use.
        cpu_flags: Vector and matrix extensions that matter to frameworks.
        host_memory_bytes: Main memory, or the control group's limit where that is lower.
        shm_bytes: Size of ``/dev/shm``; None where there is none.
        gpus: What the drivers see, in their order.
        nvidia_driver: Version of the loaded NVIDIA kernel module; None without one.
        cuda_driver: Newest CUDA that the driver speaks, as ``major.minor``.
        rocm: Version of an installed ROCm; None without one.
        opencl_platforms: Names of the OpenCL drivers that are registered.
        container_engines: Programs that could start a container, with those that answer first.
        container: The container this process is in; None on the host.
        hypervisor: What virtualises the machine; None on bare metal.
    """

    os_name: str
    architecture: str
    cpu_name: str
    num_cores: int
    num_threads: int
    cpu_flags: tuple[str, ...]
    host_memory_bytes: float
    shm_bytes: float | None
    gpus: tuple[GpuFacts, ...]
    nvidia_driver: str | None
    cuda_driver: str | None
    rocm: str | None
    opencl_platforms: tuple[str, ...]
    container_engines: tuple[str, ...]
    container: str | None
    hypervisor: str | None
