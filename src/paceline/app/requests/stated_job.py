"""One job on one machine, both written as a line of text: `predict` with ``--machine``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from paceline.app.requests.plan_request import load, read_calibration
from paceline.catalog.load import load_catalog
from paceline.planfile import Interval
from paceline.simulation.held_memory import held_memory
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate
from paceline.units import format_bytes, format_duration
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedJob:
    """What one job does on one machine.

    Attributes:
        job: As `Job` prints it.
        machine: As `Machine` prints it.
        step_s: One step, or one batch of inference.
        per_token_s: From one token to the next of a generation; None where nothing is generated.
        first_token_s: To the first token; None likewise.
        memory_bytes: Peak of the fullest device.
    """

    job: str
    machine: str
    step_s: Interval
    per_token_s: float | None
    first_token_s: float | None
    memory_bytes: Interval


def predict_stated(
    job: str,
    machine: str,
    *,
    image_size: int | None = None,
    optimizer: str | None = None,
    python: str | None = None,
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
) -> StatedJob:
    """Predict one job on one machine.

    Args:
        job: Such as ``gpt2 train bf16 eager dp8+zero1 batch=4``; see `Job`.
        machine: Such as ``8xH100 SXM5 80GB@dgx-h100-nvls,-``; see `Machine`.
        image_size: Pixels of the square input image; the workload's own if None.
        optimizer: ``sgd``, ``adam``, ``adamw``; the workload's own if None.
        python: The Python that has the model's framework; found if None.
        facts: Files with your own devices.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.

    Raises:
        PacelineError: Not a job, not a machine, or the one cannot run on the other.
    """
    asked = Job.parse(
        job,
        lambda name, task: load(
            name, task=task, seq=None, image_size=image_size, optimizer=optimizer, python=python
        ),
    )
    where = Machine.parse(machine, load_catalog(tuple(facts)))
    steps = simulate([asked], [where], calibration=read_calibration(calibration))
    steps.check()
    generates = asked.is_generation
    return StatedJob(
        job=str(asked),
        machine=str(where),
        step_s=steps.step_interval_s(),
        per_token_s=float(steps.per_token_s[0]) if generates else None,
        first_token_s=float(steps.first_token_s[0]) if generates else None,
        memory_bytes=held_memory(
            asked, steps, capacity_bytes=where.device.capacity_bytes or math.inf
        ),
    )


def stated_text(found: StatedJob) -> str:
    """The figures, a line each."""
    step, memory = found.step_s, found.memory_bytes
    low, mid, high = (format_duration(one) for one in (step.low, step.mid, step.high))
    lines = [found.job, found.machine, f"step         {mid} ({low} to {high})"]
    if found.per_token_s is not None and found.first_token_s is not None:
        lines.append(f"per token    {format_duration(found.per_token_s)}")
        lines.append(f"first token  {format_duration(found.first_token_s)}")
    lines.append(f"memory       {format_bytes(memory.mid)} (at most {format_bytes(memory.high)})")
    return "\n".join(lines)
