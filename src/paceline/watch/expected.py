"""What a run should do: as a plan says, or as its own model is predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from paceline.catalog.entities import Device
from paceline.model.graph.costs import Compiler
from paceline.model.graph.workload import Workload
from paceline.parallelism.strategy.strategy import Schedule, Strategy
from paceline.planfile import Interval, PlanFile, PlannedChoice
from paceline.planning.places.support import configuration_on
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.held_memory import held_memory
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate
from paceline.values import dataclass
from paceline.watch.captured import CapturedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a run is held against. None means that nothing is said of it.

    Attributes:
        source: Where the figures come from, as printed.
        step_s: Time of a step.
        memory_bytes: Peak of one device: low, median and the bound that holds at 95 %.
        capacity_bytes: What one device has.
        time_s: Of the whole job.
        cost_usd: Of the whole job.
        usd_per_hour: Of all machines together.
        num_steps: Optimizer steps of the whole job.
        parameter_bytes: Of the memory, parameters.
        optimizer_state_bytes: Of the memory, optimizer state.
        largest_batch: Most items of a microbatch that fit.
        planned: Of a plan, how the job should run, in the words of `CapturedJob.words`, and on
            which ``device``; else None.
    """

    source: str
    step_s: Interval | None = None
    memory_bytes: Interval | None = None
    capacity_bytes: float | None = None
    time_s: Interval | None = None
    cost_usd: Interval | None = None
    usd_per_hour: float | None = None
    num_steps: int | None = None
    parameter_bytes: float | None = None
    optimizer_state_bytes: float | None = None
    largest_batch: int | None = None
    planned: Mapping[str, str] | None = None

    def unplanned(self, job: CapturedJob, device: str) -> str:
        """Where a script does not run as planned, in words; empty where it does.

        Args:
            job: What was read out of it.
            device: Where it runs, as the catalogue calls it; empty where that is not known.
        """
        found = {"ranks": "1", **job.words, "device": device or (self.planned or {}).get("device")}
        return ", ".join(
            f"{name} {found.get(name, 'unknown')} (planned {value})"
            for name, value in (self.planned or {}).items()
            if found.get(name) != value
        )


def expected_of_plan(plan: PlanFile, *, choice: int = 1, source: str = "the plan") -> Expectation:
    """What one choice of a plan says.

    Args:
        plan: From `paceline.plan`.
        choice: Which, 1 being the first.
        source: As printed.
    """
    chosen = plan.choices[choice - 1]
    return Expectation(
        source=source,
        step_s=chosen.step_s,
        memory_bytes=chosen.memory_bytes,
        capacity_bytes=chosen.memory_capacity_bytes,
        time_s=chosen.time_s,
        cost_usd=chosen.cost_usd,
        usd_per_hour=chosen.place.usd_per_hour or None,
        num_steps=chosen.optimizer_steps,
        planned=_planned(plan, chosen),
    )


def _planned(plan: PlanFile, chosen: PlannedChoice) -> Mapping[str, str]:
    """What a plan says of what can be read out of a script."""
    microbatch = chosen.batch_per_device // max(1, chosen.microbatches)
    times = f" × {chosen.microbatches}" * (chosen.microbatches > 1)
    said = {
        "batch": f"{microbatch}{times}",
        "precision": chosen.precision,
        "optimizer": plan.workload.optimizer or "",
        "ranks": str(chosen.num_devices) * (chosen.num_devices > 1),
        "device": chosen.place.device * (not chosen.shares),
    }
    return {name: value for name, value in said.items() if value}


def expected_of_job(
    job: CapturedJob, workload: Workload, device: Device, *, calibration: Calibration | None = None
) -> Expectation:
    """What a captured job should do on a device of the catalogue.

    Args:
        job: What was read out of the script.
        workload: Its model.
        device: Where each rank runs; several ranks are taken for one machine whose links are not
            known, and have memory alone.
        calibration: Of the predictor; the built-in one if None.

    Raises:
        PacelineError: The device does not run it, or a fact is missing.
    """
    compiler: Compiler = "compiled" if job.compiler == "compiled" else "eager"
    how = configuration_on(device, precision=job.precision, compiler=compiler, rewrite=job.rewrite)
    schedule = Schedule(num_microbatches=job.microbatches)
    one = Job(
        workload=workload, configuration=how, strategy=Strategy(schedule=schedule), seq=job.seq
    )
    batches = _ladder(job.batch)
    jobs = [replace(one, batch=batch) for batch in batches]
    steps = simulate(jobs, [Machine.of(device)] * len(jobs), calibration=calibration)
    steps.check(0)
    capacity = device.capacity_bytes
    fits = [
        batch
        for row, batch in enumerate(batches)
        if float(steps.memory_high_bytes[row]) <= (capacity or 0.0)
    ]
    return Expectation(
        source=f"the script's own job on {device.name}",
        step_s=steps.step_interval_s(0) if job.world_size == 1 else None,
        memory_bytes=held_memory(jobs[0], steps, capacity_bytes=capacity or math.inf),
        capacity_bytes=capacity,
        parameter_bytes=float(steps.parameter_bytes[0]),
        optimizer_state_bytes=float(steps.optimizer_state_bytes[0]),
        largest_batch=max(fits, default=None),
    )


def _ladder(batch: int) -> tuple[int, ...]:
    """The batch itself, then smaller ones down to 1."""
    found = [batch]
    while found[-1] > 1:
        found.append(max(1, int(found[-1] * 0.75)))
    return tuple(found)
