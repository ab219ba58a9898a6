"""Goals and work from strings, as they are typed on a command line or in ``goal.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.errors import UnknownNameError
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.goal.typed import typed_fields


def parse_goal(options: Mapping[str, str]) -> Goal:
    """A goal from command-line options, named as typed (``deadline``, ``max-devices`` …).

    Args:
        options: Text per option; ``pin`` holds ``KEY=VALUE`` pairs separated by commas.

    Raises:
        UnknownNameError: An option that is none of a goal's.
        InvalidInputError: A value that cannot be read.

    >>> parse_goal({"deadline": "24h", "budget": "50usd"}).deadline_s
    86400.0
    """
    return Goal(**_read_fields(options, Goal, kind="goal"))


def parse_work(options: Mapping[str, str]) -> Work:
    """Work from command-line options (``samples``, ``epochs``, ``tokens``, ``rps`` …).

    >>> parse_work({"samples": "1M", "epochs": "10"}).num_samples
    1000000
    """
    return Work(**_read_fields(options, Work, kind="work"))


def format_goal(goal: Goal) -> dict[str, str]:
    """The options of `parse_goal` that differ from the defaults, as text for a reader."""
    default = Goal()
    return {
        one.name: one.show(getattr(goal, name))
        for name, one in typed_fields(Goal)
        if getattr(goal, name) != getattr(default, name)
    }


def _read_fields(options: Mapping[str, str], declared: type, *, kind: str) -> dict[str, Any]:
    known = {one.name: (name, one.read) for name, one in typed_fields(declared)}
    parsed: dict[str, Any] = {}
    for option, text in options.items():
        key = option.replace("_", "-").lstrip("-")
        if key not in known:
            raise UnknownNameError.from_name(
                f"{kind} option", option, known, command="paceline plan --help"
            )
        name, read = known[key]
        parsed[name] = read(text)
    return parsed
