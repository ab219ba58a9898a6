"""How sure it is that one candidate beats another: medians that differ may be the same in truth."""

from __future__ import annotations

from paceline.parallelism.uncertainty import energy_interval_of, interval_of
from paceline.planfile import Interval
from paceline.planning.goal.chance import chance_less, chance_words
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import cell_of, cost_interval, place_of, time_interval
from paceline.planning.search.evaluation import objective_name

#: What a smaller objective makes a candidate.
_BETTER = {
    "cost": "cheaper",
    "time": "faster",
    "energy": "more frugal",
    "performance-per-usd": "cheaper",
}


def objective_interval(search: Search, row: int) -> Interval:
    """80 % interval of what is to be small: of a job, else of what stands for its time or cost."""
    objective, mid = objective_name(search.goal), float(search.objective[row])
    log_sigma = float(search.evaluation.steps.log_sigma[row])
    is_job = search.evaluation.num_steps[row] > 0
    if objective == "energy":
        return energy_interval_of(mid, log_sigma) or interval_of(mid, 0.0)
    if objective == "time":
        return time_interval(search, row) if is_job else interval_of(mid, log_sigma)
    if objective == "cost" and is_job:
        return cost_interval(search, row)
    if objective == "cost" and search.job.amount.samples_per_s is not None:
        return interval_of(mid, _price_log_sigma(search, row))
    return interval_of(mid, float(search.evaluation.cost_log_sigma[row]))


def better_chance(search: Search, first: int, second: int) -> float:
    """Chance that ``first`` has the smaller objective.

    The same step on the same device errs the same way wherever it is rented, and so does the price
    of one offer; all else is taken to err independently.
    """
    return chance_less(
        objective_interval(search, first),
        objective_interval(search, second),
        shared_log_sigma=_shared_log_sigma(search, first, second),
    )


def better_words(search: Search, first: int, second: int) -> str:
    """In how many cases ``first`` is better than ``second``, such as ``cheaper in 8 of 10 cases``.

    Where it is as likely as not, that it is open.
    """
    word = _BETTER[objective_name(search.goal)]
    chance = better_chance(search, first, second)
    if 0.45 < chance < 0.55:
        return f"as likely {word} as not"
    return f"{word} in {chance_words(chance)}"


def _shared_log_sigma(search: Search, first: int, second: int) -> float:
    """Spread of log objective that two candidates have in common."""
    objective, amount = objective_name(search.goal), search.job.amount
    is_hourly = objective == "cost" and amount.samples_per_s is not None
    is_one_step = not is_hourly and cell_of(search, first) == cell_of(search, second)
    is_one_price = place_of(search, first) == place_of(search, second)
    has_price = objective in ("cost", "performance-per-usd")
    step = float(search.evaluation.steps.log_sigma[[first, second]].min()) if is_one_step else 0.0
    price = _price_log_sigma(search, first) if has_price and is_one_price else 0.0
    return float((step**2 + price**2) ** 0.5)


def _price_log_sigma(search: Search, row: int) -> float:
    """What the age of a candidate's price leaves open of its logarithm."""
    return float(search.places.price_log_sigma[search.candidates.place[row]])
