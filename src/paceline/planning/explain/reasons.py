"""Why the first choice is first, why the runner-up lost, and what would change the answer.

Every figure here is computed from the candidates: the break-even price, the deadline at which the
order turns, the budget that would buy a faster plan.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from paceline.model.graph.distinct import distinct
from paceline.planning.explain.notes import input_note
from paceline.planning.explain.repriced import price_changed
from paceline.planning.explain.wording import (
    better_words,
    candidate_name,
    cost_value_text,
    duration_up,
    failure_text,
    figures_text,
    matters_text,
    more_text,
    objective_text,
    option_text,
    rounded_up,
)
from paceline.planning.goal.chance import chance_words
from paceline.planning.places.place_table import BoolArray
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import bound_word, cell_of, mfu_frac, place_of, strategy_of
from paceline.planning.search.evaluation import IN_WATTS, Constraint, objective_name
from paceline.planning.search.preference import (
    Standing,
    better_chance,
    competing,
    preferred_words,
)
from paceline.planning.search.selection import Selection, best_of
from paceline.units import format_percent, format_significant

#: How the sentence begins that names what the first choice is not told apart from.
TOSS_UP = "a toss-up with"
#: How those begin that name what stands next behind the first choice.
RUNNER_UP = "runner-up"
#: Limits that are looked at beyond a constraint's, and halvings of the price that is sought.
_MOST_LIMITS = 64
_NUM_HALVINGS = 18
#: Prices nearer than this are called the same.
_SAME_PRICE_FACTOR = 1.005

_BOUND_WORDS = {
    "compute": "held back by arithmetic",
    "bandwidth": "held back by memory bandwidth",
    "launch": "held back by kernel launches (a larger batch or a compiled graph would help)",
    "transfer": "held back by the copy to the device",
    "input": "held back by the input side",
    "communication": "held back by communication between devices",
    "memory": "held back by memory",
}


def why(search: Search, selection: Selection) -> tuple[str, ...]:
    """Why the first choice is first and the next ones are not."""
    sentences = [_why_first(search, selection)]
    if selection.toss_up is not None:
        sentences.append(_why_toss_up(search, selection.best, selection.toss_up))
    if selection.leader is not None and selection.leader != selection.toss_up:
        sentences.append(_why_leader(search, selection.best, selection.leader))
    sentences += [_why_near_miss(search, selection.best, row) for row in selection.near_misses]
    if selection.runner_up not in (None, selection.toss_up, selection.leader):
        sentences.append(_why_runner_up(search, selection.best, selection.runner_up))
    note = input_note(search, selection.best)
    if note:
        sentences.append(note)
    return tuple(sentences)


def turns(search: Search, selection: Selection) -> tuple[str, ...]:
    """What price, deadline or budget would change the answer."""
    found = [_looser(search, constraint, selection.best) for constraint in search.constraints]
    found += [
        _tighter(search, constraint, selection.best)
        for constraint in search.constraints
        if constraint.option == "--deadline"
    ]
    found.append(_break_even(search, selection))
    return tuple(sentence for sentence in found if sentence)


def looser_limit(search: Search, constraint: Constraint, best: int) -> tuple[float, int] | None:
    """The nearest limit beyond a constraint's at which something else wins, and what that is."""
    others, standing = _meets_all_but(search, constraint), Standing.of(search)
    rows = np.flatnonzero(others & ~constraint.is_met & np.isfinite(constraint.value))
    rows = rows[~standing.is_told_better(best, rows)]
    for limit in distinct(constraint.value[rows])[:_MOST_LIMITS].tolist():
        winner = standing.first(competing(search, others & (constraint.value <= limit)))
        if winner is not None and winner != best:
            return limit, winner
    return None


def break_even_usd_per_hour(search: Search, selection: Selection) -> float | None:
    """Price of one machine of the first choice above which another offer stands first.

    None where the objective is not money, or nobody else is there.
    """
    price = place_of(search, selection.best).usd_per_hour
    is_money = objective_name(search.goal) not in ("time", "energy")
    if selection.next_offer is None or not is_money or not price:
        return None
    place = search.candidates.place[selection.best]
    rows = competing(search, search.is_feasible)
    own, standing = rows[search.candidates.place[rows] == place], Standing.of(search)
    low, high = 1e-2, 1e2
    for _ in range(_NUM_HALVINGS):
        factor = math.sqrt(low * high)
        objective = search.objective.copy()
        objective[own] = price_changed(search, own, factor)
        first = replace(standing, objective=objective).first(rows)
        is_first = first is not None and search.candidates.place[first] == place
        low, high = (factor, high) if is_first else (low, factor)
    return price * math.sqrt(low * high)


def _of_peak(mfu: float, precision: str) -> str:
    """How much of the listed arithmetic is reached, as the rest of a sentence.

    >>> _of_peak(0.51, "BF16"), _of_peak(1.04, "BF16")
    (' at 51 % of the BF16 peak', ' at the listed BF16 peak, above which such cards are clocked')
    """
    if mfu > 1.0:
        return f" at the listed {precision} peak, above which such cards are clocked"
    return f" at {format_percent(mfu)} of the {precision} peak"


def _why_first(search: Search, selection: Selection) -> str:
    best = selection.best
    word = bound_word(search, best)
    mfu = mfu_frac(search, best)
    configuration = search.forecast.configurations[cell_of(search, best)[0]]
    share = _of_peak(mfu, configuration.precision.upper()) if mfu and word == "compute" else ""
    superlative = {
        "cost": "the cheapest",
        "time": "the fastest",
        "balanced": "the best balance of cost and time",
        "energy": "the one with least energy",
        "performance-per-usd": "the cheapest per sample",
    }[objective_name(search.goal)]
    one_of = "as likely as any " if selection.toss_up is not None else ""
    if not one_of and selection.leader is not None:
        one_of = "as good as "
    kept = " that keeps the goal" if search.constraints else ""
    return (
        f"{candidate_name(search, best)} is {one_of}{superlative}{kept}: "
        f"{objective_text(search, best)}; "
        f"{_BOUND_WORDS[word]}{share}"
    )


def _why_toss_up(search: Search, best: int, row: int) -> str:
    """What the best by its median is, and why it stands behind what is as likely better."""
    return (
        f"{TOSS_UP} {candidate_name(search, row)} ({strategy_of(search, row)}): "
        f"{figures_text(search, row)}, {better_words(search, row, best)}; the first choice "
        f"{preferred_words(search, best, row)}"
    )


def _why_leader(search: Search, best: int, row: int) -> str:
    """What the best by its median is, and why it stands behind what is as good."""
    objective = float(search.objective[row])
    amount = float(Standing.of(search).least_worse(objective)) - objective
    chance = chance_words(better_chance(search, row, best, matters=True))
    much = f", by more than {matters_text(search, amount)} in {chance}" if amount else ""
    return (
        f"{RUNNER_UP} {candidate_name(search, row)} ({strategy_of(search, row)}): "
        f"{figures_text(search, row)}, {better_words(search, row, best)}{much}; the first choice "
        f"{preferred_words(search, best, row)}"
    )


def _why_near_miss(search: Search, best: int, row: int) -> str:
    return (
        f"{candidate_name(search, row)} would be {objective_text(search, row)}, "
        f"{better_words(search, row, best)}, but {failure_text(search, row)}"
    )


def _why_runner_up(search: Search, best: int, row: int) -> str:
    more = float(search.objective[row] / search.objective[best] - 1.0)
    return (
        f"{RUNNER_UP} {candidate_name(search, row)}: {figures_text(search, row)}, "
        f"{more_text(more)}; the first choice is {better_words(search, best, row)}"
    )


def _looser(search: Search, constraint: Constraint, best: int) -> str:
    found = looser_limit(search, constraint, best)
    if found is None:
        return ""
    limit, winner = found
    if candidate_name(search, winner) == candidate_name(search, best):
        return ""  # The same machines at the same price, run another way.
    return (
        f"{_limit_text(search, constraint, limit)} makes {candidate_name(search, winner)} win "
        f"at {objective_text(search, winner)}, {better_words(search, winner, best)}"
    )


def _tighter(search: Search, constraint: Constraint, best: int) -> str:
    """What happens just below the tightest limit that the first choice keeps."""
    limit = float(constraint.value[best])
    others = _meets_all_but(search, constraint)
    winner = best_of(search, others & (constraint.value < limit))
    text = f"it keeps deadlines down to {duration_up(limit)}"
    if winner is None:
        return f"{text}, and nothing keeps a shorter one"
    name = candidate_name(search, winner)
    if name == candidate_name(search, best):
        name = _other_way(search, winner, best)
    return f"{text}; below, {name} wins at {objective_text(search, winner)}"


def _other_way(search: Search, row: int, best: int) -> str:
    """What a candidate on the machines of the first choice does in another way."""
    batches = search.forecast.batch[search.candidates.batch[[row, best]]]
    split, known = strategy_of(search, row), strategy_of(search, best)
    parts = [f"batch {batches[0]:.0f}"] if batches[0] != batches[1] else []
    return " with ".join([*parts, *([str(split)] if split != known else [])]) or "another setting"


def _break_even(search: Search, selection: Selection) -> str:
    price = break_even_usd_per_hour(search, selection)
    now = place_of(search, selection.best).usd_per_hour
    if price is None or selection.next_offer is None or now is None:
        return ""
    if price < _SAME_PRICE_FACTOR * now:
        other = selection.next_offer
        ratio = float(search.objective[other] / search.objective[selection.best])
        is_same = max(ratio, 1.0 / ratio) < _SAME_PRICE_FACTOR
        words = "costs the same" if is_same else "is as good by any higher price"
        return f"{place_of(search, other).offer.name} {words}"
    return (
        f"it stays first until its price passes {format_significant(price)} USD/h per machine "
        f"(now {format_significant(now)}); then {candidate_name(search, selection.next_offer)} wins"
    )


def _meets_all_but(search: Search, constraint: Constraint) -> BoolArray:
    others = [c.is_met for c in search.constraints if c is not constraint]
    return np.asarray(np.logical_and.reduce([search.is_ranked, *others]), dtype=np.bool_)


def _limit_text(search: Search, constraint: Constraint, limit: float) -> str:
    if constraint.option in ("--deadline", "--latency", "--ttft"):
        return f"a {option_text(search, constraint)[2:]} of {duration_up(limit)}"
    if constraint.option == "--budget":
        return f"a budget of {cost_value_text(search, rounded_up(limit))}"
    if constraint.option in IN_WATTS:
        return f"{IN_WATTS[constraint.option]} of {rounded_up(limit):g} W"
    if constraint.option == "--rps":
        return f"a load of {1.0 / limit / search.job.amount.samples_per_item:,.3g} requests/s"
    return f"a throughput of {1.0 / limit:,.3g} {search.workload.sample_unit}/s"
