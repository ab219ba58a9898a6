"""How requests come in a row, how long they are, and which limits they keep."""

from __future__ import annotations

import re
from typing import Literal, cast

from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.rows import Row
from paceline.scoring.tables import read_table
from paceline.simulation.queue.load import NUM_REQUESTS, Arrivals, Lengths, Load
from paceline.simulation.queue.service import Bounded, Limit
from paceline.values import dataclass

#: How requests of a row come; the words are those of ``data/serving_scenarios.csv``.
Scenario = Literal["static", "backlog", "at-once", "closed", "poisson"]
#: A closed loop runs for so many rounds.
_ROUNDS = 6
#: Lengths of a benchmark's data set spread less than chats do, as long ones are left out: answers
#: of OpenOrca by 0.6 of their mean, with GSM8K and MBXP beside it by 0.8 (p50 and p99 of request
#: latency over time per token in mlcommons/inference_results_v4.1). Lengths that a benchmark sets
#: are all alike, and then their mean is a whole number.
_SPREAD = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLoad:
    """What a row asks of a service.

    Attributes:
        scenario: How requests come.
        load: Of the whole service; of a backlog one request stands for all.
        limits: That 99 of 100 requests keep.
        is_kept: Whether the rate is stated beside its limits: as the largest that kept them.
        log_sigma: How sure rows of an engine and of the scenario are, beside its steps.
    """

    scenario: Scenario
    load: Load
    log_sigma: float
    limits: tuple[tuple[Bounded, Limit], ...] = ()
    is_kept: bool = False


def load_of(row: Row, *, generates: bool) -> RowLoad:
    """The load of a row.

    Args:
        row: With a scenario.
        generates: Whether its requests are answered token by token; else each is one item.

    Raises:
        UnresolvedRowError: Its lengths, or its scenario and what would tell it, are not stated.
    """
    prompt, output = _lengths(row) if generates else (Lengths(mean=1), Lengths(mean=1))
    scenario = _scenario(row)
    count = max(round(row.concurrency or 1), 1)
    sizes = {"static": count, "at-once": count, "closed": max(_ROUNDS * count, 32), "backlog": 1}
    arrivals: Arrivals = "at-once"
    if scenario in ("closed", "poisson"):
        arrivals = cast("Arrivals", scenario)
    load = Load(
        arrivals=arrivals,
        prompt=prompt,
        output=output,
        concurrency=count,
        rate_per_s=row.rate_per_s or 1.0,
        num_requests=sizes.get(scenario, NUM_REQUESTS),
    )
    limits = _limits(row) if generates else ()
    is_kept = scenario == "poisson" and bool(row.rate_per_s and limits)
    known = {
        one["arrivals"]: float(one["log_sigma"]) for one in read_table("serving_scenarios.csv")
    }
    return RowLoad(
        scenario=scenario, load=load, limits=limits, is_kept=is_kept, log_sigma=known[scenario]
    )


def _scenario(row: Row) -> Scenario:
    """How requests come: as the words say, else as the numbers do.

    Raises:
        UnresolvedRowError: Neither says it.
    """
    for known in read_table("serving_scenarios.csv"):
        if re.fullmatch(known["pattern"], row.scenario, re.IGNORECASE):
            return cast("Scenario", known["arrivals"])
    if row.rate_per_s:
        return "poisson"
    if row.concurrency:
        return "closed"
    raise UnresolvedRowError(f"how requests come in `{row.scenario}` is not known")


def _lengths(row: Row) -> tuple[Lengths, Lengths]:
    if row.input_tokens is None or row.output_tokens is None:
        raise UnresolvedRowError("an engine serves, and its requests are not stated (ISL, OSL)")
    stated = (row.input_tokens, row.output_tokens)
    varies = not all(float(mean).is_integer() for mean in stated)
    spread = _SPREAD if varies else 0.0
    prompt, output = (Lengths(mean=max(mean, 1.0), spread=spread) for mean in stated)
    return prompt, output


def _limits(row: Row) -> tuple[tuple[Bounded, Limit], ...]:
    stated: tuple[tuple[Bounded, float | None], ...] = (
        ("first_token", row.first_token_limit_s),
        ("per_token", row.per_token_limit_s),
    )
    return tuple((name, Limit(percentile=99, seconds=limit)) for name, limit in stated if limit)
