"""Names and figures of candidates as sentences say them."""

from __future__ import annotations

import math

import numpy as np

from paceline.planfile import term_words
from paceline.planning.goal.amounts import is_generation
from paceline.planning.goal.chance import chance_words
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import place_of
from paceline.planning.search.evaluation import Constraint, objective_name
from paceline.planning.search.preference import better_chance
from paceline.planning.search.selection import standard_margin
from paceline.prediction.uncertainty.normal import normal_cdf
from paceline.units import (
    counted_name,
    format_count,
    format_duration,
    format_percent,
    format_significant,
    format_usd,
)

#: From here on shares are told as multiples.
_MANY_TIMES = 4.0
#: What a smaller objective makes a candidate.
_BETTER = {
    "cost": "cheaper",
    "time": "faster",
    "balanced": "better",
    "energy": "more frugal",
    "performance-per-usd": "cheaper",
}


def candidate_name(search: Search, row: int) -> str:
    """Who rents out how many of what, such as ``Lambda 8×H100 SXM5 80GB``."""
    place = place_of(search, row)
    paid = term_words(is_spot=place.is_spot, term=place.term)
    num_nodes = int(search.candidates.num_nodes[row])
    nodes = f" in {num_nodes} machines" if num_nodes > 1 else ""
    count = int(search.candidates.num_devices[row])
    devices = (
        place.offer.accelerator if place.parts else f"{count}×{counted_name(place.device.name)}"
    )
    return f"{cloud_title(place.offer.cloud)} {devices}{paid}{nodes}"


def cloud_title(cloud: str) -> str:
    """A provider as it writes itself, as far as capitals go; ``own`` is nobody's name."""
    if cloud == "own":
        return "Own"
    return cloud.upper() if len(cloud) <= 3 else cloud[:1].upper() + cloud[1:]


def option_text(search: Search, constraint: Constraint) -> str:
    """The option of a constraint as it is typed for what answers token by token, or does not."""
    is_per_token = constraint.option == "--latency" and search.workload.generates
    return "--tpot" if is_per_token else constraint.option


def cost_text(search: Search, row: int) -> str:
    """What stands for cost, with its unit."""
    return cost_value_text(search, float(search.evaluation.pareto_cost[row]))


def cost_value_text(search: Search, usd: float) -> str:
    """A cost with its unit: of the job, per hour of serving, or per million samples."""
    if search.job.amount.samples_per_s is not None:
        return f"{format_usd(usd)} USD/h"
    if search.job.amount.items_per_epoch is not None:
        return f"{format_usd(usd)} USD"
    return f"{format_usd(usd)} USD per million {search.workload.sample_unit}"


def matters_text(search: Search, amount: float) -> str:
    """An amount of the objective, such as ``1.07 USD``."""
    is_time = objective_name(search.goal) == "time"
    return format_duration(amount) if is_time else f"{format_usd(amount)} USD"


def speed_text(search: Search, row: int) -> str:
    """What stands for time, with its unit."""
    evaluation = search.evaluation
    if search.job.amount.samples_per_s is not None:
        writes = is_generation(search.workload) and not search.workload.encodes
        what = "per token" if writes else "latency"
        return f"{format_duration(float(evaluation.steps.per_token_s[row]))} {what}"
    if search.job.amount.items_per_epoch is not None:
        return format_duration(float(evaluation.time_s[row]))
    rate = format_count(float(evaluation.samples_per_s[row]))
    return f"{rate} {search.workload.sample_unit}/s"


def figures_text(search: Search, row: int) -> str:
    """What stands for cost and for time."""
    return " and ".join(sorted({cost_text(search, row), speed_text(search, row)}))


def objective_text(search: Search, row: int) -> str:
    """The objective's value with its unit."""
    objective = objective_name(search.goal)
    if objective == "time":
        return speed_text(search, row)
    if objective == "energy":
        joules = float(search.evaluation.energy_j_per_sample[row])
        return f"{format_significant(joules)} J per {search.workload.sample_unit.rstrip('s')}"
    if objective == "balanced":
        return figures_text(search, row)
    if objective == "performance-per-usd":
        usd = float(search.evaluation.usd_per_million[row])
        return f"{format_usd(usd)} USD per million {search.workload.sample_unit}"
    return cost_text(search, row)


def fail_chance(constraint: Constraint, row: int) -> float:
    """Chance that a candidate breaks a constraint."""
    return 1.0 - normal_cdf(float(standard_margin(constraint, np.array([row]))[0]))


def failure_text(search: Search, row: int) -> str:
    """Which constraint a candidate fails, and in how many cases; empty if none."""
    for constraint in search.constraints:
        if not constraint.is_met[row]:
            chance = fail_chance(constraint, row)
            return f"{constraint.kind} in {chance_words(chance)}"
    return ""


def more_text(share: float) -> str:
    """How much more something is, by the share of it that comes on top.

    >>> more_text(0.29), more_text(0.001), more_text(135.3), more_text(-0.08)
    ('29 % more', 'hardly more', '136 times as much', '8 % less')
    """
    if share <= -0.005:
        return f"{format_percent(-share)} less"
    if share >= _MANY_TIMES:
        return f"{1.0 + share:,.0f} times as much"
    return f"{format_percent(share)} more" if share >= 0.005 else "hardly more"


def rounded_up(value: float) -> float:
    """The next number of three digits that is not smaller.

    >>> rounded_up(26.31), rounded_up(1200.0)
    (26.4, 1200.0)
    """
    if value <= 0 or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.12g}")


def duration_up(seconds: float) -> str:
    """A duration rounded up, so that a statement about it stays true."""
    for unit_s in (86_400.0 * 2, 3_600.0, 60.0, 1.0, 1e-3, 1e-6):
        if seconds >= unit_s:
            base = 86_400.0 if unit_s > 86_400.0 else unit_s
            return format_duration(rounded_up(seconds / base) * base)
    return format_duration(seconds)


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "price"), plural(14, "older price")
    ('1 price', '14 older prices')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def better_words(search: Search, first: int, second: int) -> str:
    """In how many cases ``first`` is better than ``second``, such as ``cheaper in 8 of 10 cases``.

    Where it is as likely as not, that it is a toss-up.
    """
    word = _BETTER[objective_name(search.goal)]
    chance = better_chance(search, first, second)
    if 0.45 < chance < 0.55:
        return f"as likely {word} as not"
    return f"{word} in {chance_words(chance)}"
