from dataclasses import replace
from pathlib import Path

import pytest
from run_machines import catalog_device, cpu_machine, gpu_machine

from paceline.catalog.entities import Catalog
from paceline.execution.conditions import Place, Settings, device_name
from paceline.execution.machine.probe import (
    describe_machine,
    match_device,
    probe_host,
    probe_machine,
)
from paceline.execution.machine.sensors import Sensors

H100 = catalog_device("H100 SXM5 80GB", memory_bytes=80e9, fabric="nvlink4")
H100_PCIE = catalog_device("H100 PCIe 80GB", memory_bytes=80e9)
A100_40 = catalog_device("A100 SXM4 40GB", memory_bytes=40e9)
A100_80 = catalog_device("A100 SXM4 80GB", memory_bytes=80e9)
RTX_3080 = catalog_device("GeForce RTX 3080", memory_bytes=10e9)
RTX_3080_TI = catalog_device("GeForce RTX 3080 Ti", memory_bytes=12e9)
DEVICES = (H100, H100_PCIE, A100_40, A100_80, RTX_3080, RTX_3080_TI)
CATALOG = Catalog(version="2026-11", devices=DEVICES, links=(), offers=())


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def root(tmp_path):
    cores = "".join(
        f"processor: {n}\nmodel name\t: Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz\n"
        f"physical id\t: 0\ncore id\t: {n // 2}\nflags\t: fpu avx2 amx_tile hypervisor\n\n"
        for n in range(4)
    )
    write(tmp_path, "proc/cpuinfo", cores)
    write(tmp_path, "proc/meminfo", "MemTotal:       32000000 kB\nMemFree: 1 kB\n")
    return tmp_path


def test_memory_is_cut_to_the_control_group(root):
    assert probe_host(root).host_memory_bytes == 32_768_000_000
    write(root, "sys/fs/cgroup/memory.max", "8000000000\n")
    assert probe_host(root).host_memory_bytes == 8_000_000_000
    write(root, "sys/fs/cgroup/memory.max", "max\n")
    assert probe_host(root).host_memory_bytes == 32_768_000_000


def test_cpu_quota_limits_threads(root):
    write(root, "sys/fs/cgroup/cpu.max", "100000 100000\n")
    assert probe_host(root).num_threads == 1


def test_cpu_flags_and_hypervisor(root):
    write(root, "sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
    facts = probe_host(root)
    assert facts.cpu_flags == ("avx2", "amx_tile")
    assert facts.hypervisor == "Amazon EC2"
    assert facts.cpu_name.startswith("Intel(R) Xeon(R) Gold 6338")


def test_nvidia_gpu_without_its_library_is_read_from_the_module(root):
    write(
        root,
        "proc/driver/nvidia/gpus/0000:01:00.0/information",
        "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 16\nGPU UUID: \t GPU-1\n",
    )
    write(
        root,
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Mar\n",
    )
    facts = probe_host(root)
    assert [gpu.name for gpu in facts.gpus] == ["NVIDIA H100 80GB HBM3"]
    assert facts.nvidia_driver == "535.161.08"


def test_amd_gpu_is_read_from_the_bus_and_a_mere_display_is_not(root):
    amd, vga = "sys/bus/pci/devices/0000:0a:00.0", "sys/bus/pci/devices/0000:00:02.0"
    for path, text in (("vendor", "0x1002\n"), ("class", "0x030000\n"),
                       ("product_name", "AMD Instinct MI210\n"),
                       ("mem_info_vram_total", "68702699520\n")):  # fmt: skip
        write(root, f"{amd}/{path}", text)
    for path, text in (("vendor", "0x8086\n"), ("class", "0x030000\n"), ("boot_vga", "1\n")):
        write(root, f"{vga}/{path}", text)
    (gpu,) = probe_host(root).gpus
    assert (gpu.name, gpu.vendor, gpu.memory_bytes) == ("AMD Instinct MI210", "AMD", 68702699520)


@pytest.mark.parametrize(
    ("driver_name", "memory_bytes", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", 85_899_345_920, "A100 SXM4 80GB"),
        ("NVIDIA A100-SXM4-40GB", 42_505_273_344, "A100 SXM4 40GB"),
        ("NVIDIA GeForce RTX 3080", 10_737_418_240, "GeForce RTX 3080"),
        ("NVIDIA GeForce RTX 3080 Ti", 12_884_901_888, "GeForce RTX 3080 Ti"),
        ("NVIDIA H100 PCIe", 85_520_809_984, "H100 PCIe 80GB"),
        ("NVIDIA H100 80GB HBM3", 85_520_809_984, "H100 SXM5 80GB"),
    ],
)
def test_driver_names_find_their_device(driver_name, memory_bytes, expected):
    found = match_device(driver_name, memory_bytes, DEVICES)
    assert found is not None
    assert found.name == expected


@pytest.mark.parametrize(
    ("driver_name", "memory_bytes"),
    [
        ("NVIDIA GeForce RTX 3080", 20e9),  # a size that no catalogue entry has
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 8e9),
        ("NVIDIA Graphics Device", 80e9),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", 10.7e9),
        ("NVIDIA B200", 180e9),
    ],
)
def test_a_gpu_that_is_not_in_the_catalogue_is_refused(driver_name, memory_bytes):
    assert match_device(driver_name, memory_bytes, DEVICES) is None


def test_machine_with_eight_gpus():
    machine = probe_machine(CATALOG, facts=gpu_machine(8))
    assert (machine.device_name, machine.num_devices) == ("H100 SXM5 80GB", 8)
    assert machine.interconnect == "nvlink4"
    assert describe_machine(machine) == "4 cores, 32 GB, 8 × H100 SXM5 80GB"


def test_unknown_gpu_is_counted_and_not_named():
    facts = gpu_machine()
    facts = replace(facts, gpus=(replace(facts.gpus[0], name="NVIDIA Graphics Device"),))
    machine = probe_machine(CATALOG, facts=facts)
    assert (machine.device_name, machine.num_devices) == (None, 1)
    assert describe_machine(machine).endswith("a GPU that the catalogue does not know")


def test_a_slice_of_a_gpu_is_not_taken_for_the_whole():
    facts = gpu_machine()
    facts = replace(facts, gpus=(replace(facts.gpus[0], is_mig=True),))
    machine = probe_machine(CATALOG, facts=facts)
    assert (machine.device_name, machine.num_devices) == (None, 1)
    place = Place(facts=facts, machine=machine, fingerprint="abc", sensors=Sensors(None))
    assert device_name(place, Settings(device="cuda")) == "slice of NVIDIA H100 80GB HBM3"


def test_machine_without_gpu():
    assert describe_machine(probe_machine(facts=cpu_machine())) == "4 cores, 32 GB, no GPU"


def test_probing_this_machine_needs_no_framework():
    assert probe_host().num_threads >= 1
