"""Machines that tests pretend to run on."""

from dataclasses import replace

from paceline.catalog.entities import Device, Machine
from paceline.execution.conditions import Place
from paceline.execution.machine.facts import GpuFacts, HostFacts
from paceline.execution.machine.sensors import Sensors

_CPU = HostFacts(
    os_name="Linux 6.1",
    architecture="x86_64",
    cpu_name="AMD EPYC 7763 64-Core Processor",
    num_cores=4,
    num_threads=8,
    cpu_flags=("avx2",),
    host_memory_bytes=32e9,
    shm_bytes=16e9,
    gpus=(),
    nvidia_driver=None,
    cuda_driver=None,
    rocm=None,
    opencl_platforms=(),
    container_engines=(),
    container=None,
    hypervisor=None,
)
_H100 = GpuFacts(
    name="NVIDIA H100 80GB HBM3",
    vendor="NVIDIA",
    uuid="GPU-0",
    memory_bytes=85_520_809_984.0,
    compute_capability="9.0",
    power_limit_w=700.0,
    pcie_generation=5,
    pcie_lanes=16,
    num_nvlinks=18,
    num_other_processes=0,
)


def cpu_machine(**changes) -> HostFacts:
    return replace(_CPU, **changes)


def cpu_place() -> Place:
    """One without any sensor."""
    machine = Machine(name="m", device_name=None, num_devices=0)
    return Place(facts=cpu_machine(), machine=machine, fingerprint="abc", sensors=Sensors(None))


def gpu_machine(num_gpus: int = 1, **changes) -> HostFacts:
    facts = replace(_CPU, gpus=(_H100,) * num_gpus, nvidia_driver="580.82", cuda_driver="13.0")
    return replace(facts, **changes)


def catalog_device(name: str, *, memory_bytes: float, fabric: str | None = None) -> Device:
    """A catalogue entry of which only name, memory and fabric matter."""
    return Device(
        name=name,
        family=name.split()[0],
        is_default_variant=True,
        vendor="NVIDIA",
        architecture="Hopper",
        kind="gpu",
        device_class="datacenter",
        compute_capability="9.0",
        year=2022,
        num_sms=None,
        boost_clock_hz=None,
        peak_flop_per_s={},
        memory_bytes=memory_bytes,
        memory_type="HBM3",
        memory_bytes_per_s=None,
        l2_bytes=None,
        tdp_w=None,
        pcie_bytes_per_s=None,
        fabric=fabric,
        fabric_bytes_per_s=None,
        form_factor="",
        cooling="",
        price_usd=None,
        price_on=None,
        measured_bf16_flop_per_s=None,
        sources=(),
    )
