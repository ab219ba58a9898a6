"""Which stated filters keep every offer out: what to leave out, the fewest of them first."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date
from itertools import combinations

from paceline.catalog.entities import Catalog
from paceline.planning.goal.goal import Goal
from paceline.planning.goal.options import format_goal
from paceline.planning.places.places import find_places

#: Fields of a goal that filter places, by their option.
_FILTERS = {
    "framework": "framework",
    "device": "devices",
    "device-class": "device_classes",
    "vendor": "vendors",
    "cloud": "clouds",
    "trust": "trust",
    "region": "regions",
    "datacenter": "in_datacenter",
    "max-devices": "max_devices",
}
#: What a pin fixes about a place.
_PINS = ("offer", "device")


def loosening(catalog: Catalog, goal: Goal, *, today: date) -> str:
    """The fewest options without which something is left, and how much; empty if nothing is."""
    stated = _stated(goal)
    for size in range(1, len(stated) + 1):
        found = [
            (without, count)
            for without in combinations(stated, size)
            if (count := len(find_places(catalog, _without(goal, without), today=today).places))
        ]
        if found:
            return "; ".join(_sentences(goal, found))
    return ""


def _stated(goal: Goal) -> tuple[str, ...]:
    default = Goal()
    filters = [
        o for o, field in _FILTERS.items() if getattr(goal, field) != getattr(default, field)
    ]
    return (*filters, *(f"pin {key}" for key in _PINS if key in goal.pins))


def _without(goal: Goal, options: Iterable[str]) -> Goal:
    fields = [_FILTERS[option] for option in options if option in _FILTERS]
    pins = {key: pin for key, pin in goal.pins.items() if f"pin {key}" not in options}
    default = Goal()
    return replace(goal, pins=pins, **{field: getattr(default, field) for field in fields})


def _sentences(goal: Goal, found: Iterable[tuple[tuple[str, ...], int]]) -> Iterator[str]:
    for options, count in found:
        typed = " and ".join(_as_typed(goal, option) for option in options)
        yield f"without {typed} {count:,} {'is' if count == 1 else 'are'} left"


def _as_typed(goal: Goal, option: str) -> str:
    if option == "datacenter":
        return "`--datacenter`"
    key = option.removeprefix("pin ")
    value = goal.pins[key] if key != option else format_goal(goal)[option]
    flag = f"--pin {key}=" if key != option else f"--{option} "
    return f"`{flag}{shlex.quote(value)}`"
