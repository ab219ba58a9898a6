"""How sure it is that one candidate beats another, in words."""

from __future__ import annotations

from paceline.planning.goal.chance import chance_words
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.evaluation import objective_name
from paceline.planning.search.preference import better_chance

#: What a smaller objective makes a candidate.
_BETTER = {
    "cost": "cheaper",
    "time": "faster",
    "balanced": "better",
    "energy": "more frugal",
    "performance-per-usd": "cheaper",
}


def better_words(search: Search, first: int, second: int) -> str:
    """In how many cases ``first`` is better than ``second``, such as ``cheaper in 8 of 10 cases``.

    Where it is as likely as not, that it is a toss-up.
    """
    word = _BETTER[objective_name(search.goal)]
    chance = better_chance(search, first, second)
    if 0.45 < chance < 0.55:
        return f"as likely {word} as not"
    return f"{word} in {chance_words(chance)}"
