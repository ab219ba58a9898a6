"""``make gpu-memory``: predicted memory of small training jobs against this machine's GPU.

Usage: PYTHONPATH=tools python -m gpu.memory [--batch 8] [--out FILE] [--job NAME] ...
Each job runs in processes of its own, FP32 and AdamW as PyTorch runs it. Live tensors must agree
within 2 %, kernel workspaces apart; *allocated*, *reserved* and *process* are shown beside what is
predicted, and written as records. Without an NVIDIA GPU it says so and does nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from gpu.workers.memory_models import FAST, SLOW, Job
from paceline.execution.machine.nvml import Nvml, open_nvml
from paceline.execution.machine.probe import probe_host, probe_machine
from paceline.measurements.records import Record, record_to_line
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.lowering import lifetimes, lower
from paceline.model.reading.load import load_workload
from paceline.prediction.memory.allocator import replay
from paceline.prediction.memory.peak import peak_memory_bytes
from paceline.prediction.prediction import Points

_WORKERS = Path(__file__).parent / "workers"
JOBS = {**FAST, **SLOW}
_MOST_OFF_FRAC = 0.02
#: As PyTorch runs a training step on a GPU unless told otherwise.
ON_GPU = Configuration(precision="fp32", channels_last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Peaks of one job in bytes; None where nothing tells.

    Attributes:
        live_bytes: Of tensors, kernel workspaces apart.
        allocated_bytes: ``torch.cuda.max_memory_allocated``.
        reserved_bytes: ``torch.cuda.max_memory_reserved``.
        process_bytes: As the driver counts it, context included.
    """

    live_bytes: float | None
    allocated_bytes: float | None
    reserved_bytes: float | None
    process_bytes: float | None


def predicted(job: str, batch: int, configuration: Configuration = ON_GPU) -> Figures:
    """The same job from its graph."""
    build, inputs = JOBS[job]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = load_workload(Job(build(), inputs)).passes[0].graph
    lowered = lower(graph, configuration)
    points = Points(batch=np.array([float(batch)]), seq=np.ones(1))
    replayed = replay(lifetimes(graph, configuration), batch=batch)
    _, process, _ = peak_memory_bytes(lowered.memory, points, platform=configuration.platform)
    live = lowered.memory.by_owner.sum(axis=1) @ monomials(batch, 1)[0]
    return Figures(
        live_bytes=float(live.max()),
        allocated_bytes=replayed.allocated_bytes,
        reserved_bytes=replayed.reserved_bytes,
        process_bytes=float(process[0]),
    )


def measured(
    job: str, batch: int, *, device: str, used_bytes: Callable[[], float | None]
) -> tuple[Figures, dict[str, Any]]:
    """Run the job twice: as users run it, and counting live tensors.

    Args:
        job: Name of the job.
        batch: Items.
        device: ``cuda``; ``cpu`` counts live tensors only.
        used_bytes: Memory of the device in use by everybody, as the driver tells.

    Returns:
        What was seen, and the software that ran it.

    Raises:
        RuntimeError: The job failed; its last line.
    """
    before = used_bytes()
    command = [sys.executable, str(_WORKERS / "measured_memory.py"), job]
    command += ["--batch", str(batch), "--device", device]
    whole = subprocess.Popen(
        [*command, "--counts", "process"], text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    line = whole.stdout.readline() if whole.stdout else ""
    after = used_bytes()
    _, errors = whole.communicate("")
    tensors = subprocess.run(
        [*command, "--counts", "tensors"], text=True, capture_output=True, check=False
    )
    if whole.returncode or tensors.returncode:
        last = (errors or tensors.stderr).strip().splitlines()[-1:]
        raise RuntimeError(f"{job}: {''.join(last) or 'ended without a word'}")
    software = json.loads(line)
    seen = Figures(
        live_bytes=json.loads(tensors.stdout)["live_bytes"],
        allocated_bytes=software.pop("allocated_bytes", None),
        reserved_bytes=software.pop("reserved_bytes", None),
        process_bytes=None if before is None or after is None else after - before,
    )
    return seen, software


def record(
    job: str, batch: int, seen: Figures, software: dict[str, Any], *, device_name: str, driver: str
) -> Record:
    """What was measured, in the schema of all measurements."""
    return Record(
        kind="step",
        outcome="ok",
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        source="make gpu-memory",
        workload=job,
        task="train",
        device_name=device_name,
        driver_version=driver,
        framework="torch",
        precision="fp32",
        compiler="eager",
        optimizer="adamw",
        channels_last=False,
        batch_per_device=float(batch),
        mode="step",
        allocated_bytes=seen.allocated_bytes,
        reserved_bytes=seen.reserved_bytes,
        process_bytes=seen.process_bytes,
        note=f"live tensors, kernel workspaces apart: {seen.live_bytes:.0f} bytes",
        **software,
    )


def off_frac(seen: Figures, told: Figures) -> float:
    """How far predicted live bytes are from those seen."""
    if not seen.live_bytes or not told.live_bytes:
        raise ValueError("live bytes were not counted")
    return told.live_bytes / seen.live_bytes - 1.0


def rows(job: str, seen: Figures, told: Figures) -> Iterator[str]:
    """A line per figure: measured, predicted, and how far off."""
    for field in fields(Figures):
        real, guess = getattr(seen, field.name), getattr(told, field.name)
        name = field.name.removesuffix("_bytes")
        if real:
            yield (
                f"{job:<14} {name:<10} {real / 1e6:>10.1f} MB {guess / 1e6:>10.1f} MB "
                f"{guess / real - 1:>+8.1%}"
            )


def _driver_and_device() -> tuple[Nvml, str] | None:
    nvml = open_nvml()
    facts = probe_host() if nvml else None
    if nvml is None or facts is None or not facts.gpus:
        return None
    return nvml, probe_machine(facts=facts).device_name or facts.gpus[0].name


def _measure(
    jobs: Sequence[str], batch: int, nvml: Nvml, name: str
) -> Iterator[tuple[Record, bool]]:
    for job in jobs:
        seen, software = measured(
            job, batch, device="cuda", used_bytes=lambda: nvml.sample(0).used_memory_bytes
        )
        told = predicted(job, batch)
        print("\n".join(rows(job, seen, told)), flush=True)
        kept = record(job, batch, seen, software, device_name=name, driver=nvml.driver_version())
        yield kept, abs(off_frac(seen, told)) <= _MOST_OFF_FRAC


def main() -> None:
    """Measure, compare and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--job", action="append", choices=sorted(JOBS))
    parser.add_argument("--out", type=Path, default=Path("gpu_memory.jsonl"))
    asked = parser.parse_args()
    found = _driver_and_device()
    if found is None:
        print("needs an NVIDIA GPU with its driver and pynvml, which are not here: nothing done")
        return
    done = list(_measure(asked.job or list(JOBS), asked.batch, *found))
    lines = "".join(f"{record_to_line(kept)}\n" for kept, _ in done)
    asked.out.write_text(lines, encoding="utf-8")
    wrong = [kept.workload for kept, is_near in done if not is_near]
    if wrong:
        sys.exit(f"live tensors are off by more than {_MOST_OFF_FRAC:.0%}: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
