"""What its driver proves to be wrong with a GPU: memory, links, clocks, and who else uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from paceline.catalog.entities import Device
from paceline.execution.machine.facts import GpuFacts
from paceline.execution.machine.findings import Finding
from paceline.units import format_bytes
from paceline.values import dataclass

#: Bytes per second of a lane and direction, by PCIe generation, after encoding.
#: Source: PCI-SIG, PCI Express Base Specification 6.0, table of link speeds.
_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
#: A slot that gives less of what the card can do is named.
_SLOW_SLOT_FRAC = 0.7
#: Reasons for a low clock that are no limit which somebody has set.
_FAULTS = ("hardware slowdown", "hardware thermal limit", "power brake")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One way for a GPU to be unwell.

    Attributes:
        name: Key of the cause.
        cause: What is wrong, in one sentence.
        proof: What a GPU shows of it; empty where it is sound.
        remedy: One command.
    """

    name: str
    cause: str
    proof: Callable[[GpuFacts], str]
    remedy: str


def diagnose_gpus(gpus: Sequence[GpuFacts], device: Device | None = None) -> Iterator[Finding]:
    """What is wrong with the GPUs of a machine, one finding for each way.

    Args:
        gpus: As their driver reports them.
        device: The catalogue's entry, whose links they ought to have; None if unknown.
    """
    most_links = max((gpu.num_nvlinks for gpu in gpus), default=0)
    joined = device is not None and (device.fabric or "").startswith("nvlink") and len(gpus) > 1

    def dead_links(gpu: GpuFacts) -> str:
        """What is wrong with the links of a GPU; empty for nothing."""
        if gpu.num_nvlinks < most_links:
            return f"{gpu.num_nvlinks} of {most_links} NVLink connections are up"
        return "no NVLink connection is up" if joined and not most_links else ""

    def slow_slot(gpu: GpuFacts) -> str:
        """What is wrong with a card's slot; empty where its rate is as it should be or unknown."""
        rate = _slot_bytes_per_s(gpu)
        able = device.pcie_bytes_per_s if device is not None else None
        if rate is None or able is None or rate >= _SLOW_SLOT_FRAC * able:
            return ""
        return (
            f"PCIe {gpu.pcie_generation} x{gpu.pcie_lanes}, {format_bytes(rate)}/s of "
            f"{format_bytes(able)}/s"
        )

    checks = (
        *_ALONE,
        _Check(
            name="dead-nvlink",
            cause="a GPU has lost NVLink connections, and collectives run at the pace of the rest",
            proof=dead_links,
            remedy="nvidia-smi nvlink --status",
        ),
        _Check(
            name="slow-slot",
            cause="the slot gives the GPU less PCIe than it can use, so copies take longer",
            proof=slow_slot,
            remedy="sudo lspci -vv | grep -E 'NVIDIA|LnkCap|LnkSta'",
        ),
    )
    for check in checks:
        shown = [(i, words) for i, gpu in enumerate(gpus) if (words := check.proof(gpu))]
        if shown:
            proof = tuple(f"this machine · GPU {i} ({gpus[i].name}): {told}" for i, told in shown)
            yield Finding(name=check.name, cause=check.cause, proof=proof, remedy=check.remedy)


def _slot_bytes_per_s(gpu: GpuFacts) -> float | None:
    """What card and slot can do together."""
    lane = _LANE_BYTES_PER_S.get(gpu.pcie_generation or 0)
    return None if lane is None or gpu.pcie_lanes is None else lane * gpu.pcie_lanes


def _memory_errors(gpu: GpuFacts) -> str:
    rows = "broken rows wait for a reset or a replacement" if gpu.has_failed_rows else ""
    errors = f"{gpu.num_memory_errors} uncorrected errors" if gpu.num_memory_errors else ""
    return " and ".join(filter(None, (errors, rows)))


def _lost_lanes(gpu: GpuFacts) -> str:
    now, most = gpu.pcie_lanes_now, gpu.pcie_lanes
    return f"{now} of {most} PCIe lanes work" if now and most and now < most else ""


def _held_back(gpu: GpuFacts) -> str:
    return ", ".join(reason for reason in gpu.throttle_reasons if reason in _FAULTS)


def _others(gpu: GpuFacts) -> str:
    return f"{gpu.num_other_processes} processes" if gpu.num_other_processes else ""


#: What one GPU shows without the others and without the catalogue.
_ALONE = (
    _Check(
        name="shared-gpu",
        cause="other processes compute on the GPU, so measurements here are not its own",
        proof=_others,
        remedy="nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
    ),
    _Check(
        name="sliced-gpu",
        cause="the GPU is cut into slices (MIG), so measurements here are those of a slice",
        proof=lambda gpu: "MIG mode is on" if gpu.is_mig else "",
        remedy="sudo nvidia-smi --multi-instance-gpu 0",
    ),
    _Check(
        name="memory-errors",
        cause="GPU memory had errors that ECC could not correct; jobs there die or go wrong",
        proof=_memory_errors,
        remedy="nvidia-smi --query-remapped-rows=gpu_uuid,remapped_rows.pending,"
        "remapped_rows.failure --format=csv",
    ),
    _Check(
        name="lost-lanes",
        cause="the GPU's PCIe link has lost lanes, so copies from the host take longer",
        proof=_lost_lanes,
        remedy="sudo lspci -vv | grep -E 'NVIDIA|LnkCap|LnkSta'",
    ),
    _Check(
        name="clock-held-back",
        cause="hardware holds the GPU's clock back: heat, a cable or the power supply",
        proof=_held_back,
        remedy="nvidia-smi --query --display=PERFORMANCE,TEMPERATURE,POWER",
    ),
)
