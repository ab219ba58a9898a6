"""Chances of log-normal quantities: time and money have a median and a spread, not one value."""

from __future__ import annotations

from paceline.parallelism.memory.memory_fit import Z_95 as Z_95
from paceline.prediction.uncertainty.intervals import Z_80 as Z_80
from paceline.prediction.uncertainty.normal import normal_quantile
from paceline.units import format_percent

#: Chance from which on one plan is told to be better than another.
STATED_CHANCE = 2.0 / 3.0
#: The same in standard deviations.
STATED_Z = normal_quantile(STATED_CHANCE)


def chance_text(chance: float) -> str:
    """A chance in percent, never rounded to certainty.

    >>> chance_text(0.9996), chance_text(0.71), chance_text(0.0)
    ('>99 %', '71 %', '<1 %')
    """
    if chance > 0.99:
        return ">99 %"
    return "<1 %" if chance < 0.01 else format_percent(chance)


def chance_words(chance: float) -> str:
    """A chance as people say it.

    >>> chance_words(0.71), chance_words(0.999), chance_words(0.004)
    ('7 of 10 cases', '99 of 100 cases', 'fewer than 1 of 100 cases')
    """
    if chance < 0.01:
        return "fewer than 1 of 100 cases"
    if chance < 0.05 or chance > 0.95:
        return f"{min(99, round(100 * chance))} of 100 cases"
    return f"{max(1, min(9, round(10 * chance)))} of 10 cases"
