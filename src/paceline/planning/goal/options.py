"""Goals and work from strings, as they are typed on a command line or in ``goal.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.catalog.lookup import parse_device_count
from paceline.errors import InvalidInputError, UnknownNameError
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
    return Goal(**_counted(_read_fields(options, Goal, kind="goal")))


def _counted(fields: dict[str, Any]) -> dict[str, Any]:
    """Devices without their number, ``8x h100``, which is the most of a plan.

    Raises:
        InvalidInputError: They have several numbers, or another most is stated.
    """
    parsed = [parse_device_count(name) for name in fields.get("devices", ())]
    counts = {count for _, count in parsed if count > 1}
    if not counts:
        return fields
    most = fields.get("max_devices") or max(counts)
    if counts != {most}:
        stated = " and ".join(f"{count} of {name}" for name, count in parsed)
        raise InvalidInputError(
            f"a plan has at most {most} devices, and {stated} are named",
            hint="name devices alone, and --max-devices once",
        )
    return {**fields, "devices": tuple(name for name, _ in parsed), "max_devices": most}


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
        try:
            parsed[name] = read(text)
        except InvalidInputError as error:
            if key in str(error):
                raise
            raise InvalidInputError(f"{error} (--{key})", hint=error.hint) from None
    return parsed
