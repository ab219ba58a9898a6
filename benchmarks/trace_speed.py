"""How long tracing takes, and how much memory: writes benchmarks/trace_speed.md.

Each run is a fresh process on one thread: what a worker imports is imported first, then the model
is built on meta tensors, traced at every point, written as JSON, and read back into op graphs.
Counted are the seconds of CPU from the imports on, and the largest resident set of the whole
process, PyTorch included.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import statistics
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

TABLE = Path(__file__).parent / "trace_speed.md"
WORKERS = Path(__file__).parent.parent / "src" / "paceline" / "frontends" / "torch"
NUM_RUNS = 5
SCRIPT = """
import json, resource, sys, time
sys.path.insert(0, {folder!r})
import torch, torch_worker
import torch_entries.subjects, torch_tracing.recorder
from torch_networks import zoo
from paceline.model.reading.load import workload_from_report
zoo.import_torchvision()
request = {{"entry": {entry!r}, "task": {task!r}, "image_size": None}}
started = time.process_time()
report = json.loads(json.dumps(torch_worker.serve(request, lambda text: None)))
workload = workload_from_report(report, entry={entry!r}, task={task!r}, optimizer="adamw")
seconds = time.process_time() - started
resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(seconds, resident, sum(len(one.graph.ops.kind) for one in workload.passes))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one trace may take; None where nothing is asked."""

    entry: str
    title: str
    task: str = "train"
    cpu_s: float | None = None
    resident_bytes: float | None = None


TARGETS = (
    Target(entry="resnet50", title="ResNet-50, training step", cpu_s=1.0),
    Target(entry="gpt2", title="GPT-2, training step", cpu_s=1.0),
    Target(entry="gpt2", title="GPT-2, prefill and decode", task="infer"),
    Target(entry="sd15-unet", title="Stable Diffusion 1.5 U-Net, training step", cpu_s=4.0),
    Target(entry="llama-3-70b", title="Llama 3 70B, training step", cpu_s=10.0, resident_bytes=2e9),
    Target(entry="llama-3.1-405b", title="Llama 3.1 405B, training step"),
)


def traced(entry: str, task: str = "train") -> tuple[float, float, int]:
    """Median CPU seconds, largest resident bytes and number of ops, over fresh processes."""
    script = SCRIPT.format(folder=str(WORKERS), entry=entry, task=task)
    runs = []
    for _ in range(NUM_RUNS):
        ended = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        runs.append([float(word) for word in ended.stdout.split()[-3:]])
    seconds, resident, ops = zip(*runs, strict=True)
    return statistics.median(seconds), max(resident), int(ops[0])


def line(target: Target) -> str:
    """One line of the table."""
    cpu_s, resident_bytes, num_ops = traced(target.entry, target.task)
    limits, holds = [], True
    if target.cpu_s is not None:
        limits.append(f"≤ {target.cpu_s:g} s")
        holds &= cpu_s <= target.cpu_s
    if target.resident_bytes is not None:
        limits.append(f"≤ {target.resident_bytes / 1e6:,.0f} MB")
        holds &= resident_bytes <= target.resident_bytes
    verdict = ("yes" if holds else "**no**") if limits else ""
    return (
        f"| {target.title} | {num_ops:,} | {cpu_s:.2f} | {resident_bytes / 1e6:,.0f} | "
        f"{', '.join(limits)} | {verdict} |"
    )


def cpu() -> str:
    """Model of the processor."""
    for row in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if row.startswith("model name"):
            return row.partition(":")[2].strip()
    return "an unknown processor"


def main() -> None:
    """Measure, print and write the table."""
    text = "\n".join((
        "# How long tracing takes",
        "",
        f"Measured on {date.today()} by `python benchmarks/trace_speed.py` on one thread of "
        f"{cpu()}: CPU seconds after imports (build, trace at five points, write, read back), "
        f"medians of {NUM_RUNS} fresh processes; largest resident memory of the process, "
        "PyTorch included.",
        "",
        "| what | ops | CPU s | MB | target | holds |",
        "|---|--:|--:|--:|---|---|",
        *map(line, TARGETS),
        "",
    ))  # fmt: skip
    print(text)
    TABLE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
