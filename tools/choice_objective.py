"""What each objective costs those who wanted another: the study behind the default of `plan`.

Usage: python tools/choice_objective.py [--only NAME,…] [--as-of DAY] [--out FILE]
Each model of the zoo is planned as `plan NAME --objective …` plans it. What a plan costs a person
is its bill and its hours at what an hour is worth to them, which `plan` does not know.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pages import deliver

from paceline.app.requests.plan_request import read_request
from paceline.errors import PacelineError
from paceline.model.graph.graph import FloatArray
from paceline.model.names.zoo_facts import zoo_facts
from paceline.planning.forecast.question import resolve_question
from paceline.planning.goal.goal import Objective
from paceline.planning.search.all_candidates import run_search
from paceline.planning.search.more_devices import finished, opening
from paceline.planning.search.selection import select
from paceline.units import HOUR_S

OBJECTIVES: tuple[Objective, ...] = ("cost", "balanced", "time")
#: What an hour of waiting is worth, USD: nothing, a quarter of a developer's pay, all, four times.
HOUR_VALUES_USD = (0.0, 16.0, 64.0, 256.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The first place of one model under one objective."""

    usd: float
    hours: float
    is_toss_up: bool


def main() -> None:
    """Plan the zoo three times and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--as-of", default="2026-11-23")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found, refused = [], []
    for name in asked.only.split(",") if asked.only else sorted(zoo_facts()):
        try:
            found.append([chosen(name, objective, asked.as_of) for objective in OBJECTIVES])
        except PacelineError as error:
            refused.append(f"{name}: {error}")
    deliver(page(found, refused), asked.out)


def chosen(name: str, objective: Objective, day: str) -> Chosen:
    """What stands first."""
    request = read_request(name, as_of=day)
    goal = replace(request.goal, objective=objective)
    question = resolve_question(request.workload, goal, request.work, today=request.today)
    first = opening(question, request.catalog)
    search = run_search(first.question, request.catalog, has_meshes=first.has_meshes)
    search = finished(search, question, request.catalog)
    best = select(search)
    return Chosen(
        usd=float(search.evaluation.pareto_cost[best.best]),
        hours=float(search.evaluation.pareto_time[best.best]) / HOUR_S,
        is_toss_up=best.toss_up is not None,
    )


def regrets(found: Sequence[Sequence[Chosen]], hour_usd: float) -> FloatArray:
    """How much dearer each plan is than the best of its model, (num_models, num_objectives)."""
    total = np.array([[one.usd + hour_usd * one.hours for one in plans] for plans in found])
    return np.asarray(total / total.min(axis=1, keepdims=True))


def page(found: Sequence[Sequence[Chosen]], refused: Sequence[str]) -> str:
    """The page: a row for each value of an hour, a column for each objective."""
    rows = []
    for value in HOUR_VALUES_USD:
        each = regrets(found, value)
        cells = (f"{np.median(one):.2f} · {np.quantile(one, 0.9):.1f}" for one in each.T)
        rows.append(f"| {value:g} | {' | '.join(cells)} |")
    tossed = ", ".join(
        f"{sum(plans[place].is_toss_up for plans in found)} under {objective}"
        for place, objective in enumerate(OBJECTIVES)
    )
    return "\n".join([
        "# What each objective costs those who wanted another",
        "",
        f"`python tools/choice_objective.py` plans {len(found)} models of the zoo under each",
        "objective. A plan costs its bill and its hours at what an hour is worth to whoever waits.",
        "Each cell: median and nine-in-ten of that over the least of a model's three plans.",
        "",
        f"| an hour, USD | {' | '.join(OBJECTIVES)} |",
        f"|--:|{'--:|' * len(OBJECTIVES)}",
        *rows,
        "",
        f"Toss-ups: {tossed}.",
        *([f"No plan: {'; '.join(refused)}."] if refused else []),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
