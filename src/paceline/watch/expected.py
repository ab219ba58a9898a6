"""What a run should do: as a plan says, or as its own model is predicted."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.planfile import Interval, PlanFile


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
    )
