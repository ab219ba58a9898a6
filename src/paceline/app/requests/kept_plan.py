"""A kept plan, asked again with other prices: whether its first choice would still be that."""

from __future__ import annotations

from datetime import date

from paceline.catalog.entities import Catalog
from paceline.errors import PacelineError
from paceline.planfile import PlanFile, PlannedChoice


def plan_moves(plan: PlanFile, catalog: Catalog, today: date) -> tuple[str, ...]:
    """What would differ, in sentences."""
    try:
        now = _asked_again(plan, catalog, today)
    except PacelineError as refusal:
        return (f"the plan of {plan.created_on} would find nothing now: {refusal}",)
    before, after = plan.choices[0], now.choices[0]
    if before.place.offer != after.place.offer or before.num_devices != after.num_devices:
        return (
            f"the plan of {plan.created_on} would now differ: {_named(after)} in the place of "
            f"{_named(before)}",
        )
    if _cost(before) != _cost(after):
        return (
            f"the plan of {plan.created_on} keeps {before.place.offer}, at {_cost(after)} in the "
            f"place of {_cost(before)}",
        )
    return (f"the plan of {plan.created_on} stays as it is: {_named(before)}",)


def _asked_again(plan: PlanFile, catalog: Catalog, today: date) -> PlanFile:
    from paceline.app.requests.plan_request import load
    from paceline.planning.goal.options import parse_goal, parse_work
    from paceline.planning.goal.scenarios import texts_of
    from paceline.planning.planner import make_plan

    job = plan.workload
    stated = {
        "samples": job.num_samples,
        "epochs": job.num_epochs,
        "prompt": job.prompt_tokens,
        "output": job.output_tokens,
        "concurrency": job.concurrency,
        "rps": job.requests_per_s,
    }
    work = parse_work(texts_of({key: one for key, one in stated.items() if one is not None}))
    seq = job.seq if job.task == "train" and job.seq > 1 else None
    workload = load(job.model, task=job.task, seq=seq, item=work.item)
    goal = parse_goal(texts_of(plan.goal))
    return make_plan(workload, goal, work, catalog, today=today, asked_as=job.model)


def _named(choice: PlannedChoice) -> str:
    return f"{choice.num_devices}×{choice.place.device} ({choice.place.offer}) at {_cost(choice)}"


def _cost(choice: PlannedChoice) -> str:
    if choice.cost_usd is not None:
        return f"{choice.cost_usd.mid:,.2f} USD"
    return f"{choice.place.usd_per_hour:,.2f} USD/h"
