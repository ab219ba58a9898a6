"""``goal.yaml``: a model, its goal and its work in one file that can be kept beside the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from paceline.documents import parse_mapping, validate
from paceline.errors import InvalidInputError
from paceline.planning.goal.goal import Goal, Scenario, Work
from paceline.planning.goal.options import parse_goal, parse_work
from paceline.planning.goal.typed import typed_fields
from paceline.reading import read_text
from paceline.values import dataclass

#: Keys by which files of other verbs are told.
_OTHER_FILES = (
    (frozenset({"choices", "rejected"}), "plan", "report"),
    (frozenset({"develop", "train", "serve"}), "lifecycle", "lifecycle"),
    (frozenset({"pool", "jobs"}), "pool", "pool"),
    (frozenset({"machines", "offers", "devices"}), "facts", "plan MODEL --facts FILE"),
)

Option = str | bool | float | list[str | float] | dict[str, str | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFile:
    """The layout of the file.

    Attributes:
        model: Zoo name, ``torchvision:NAME`` or ``package.module:function``.
        title: What it is about.
        task: Training or inference.
        seq: Sequence length; the workload's if absent.
        work: Options of the work as on the command line, without dashes before them.
        goal: Options of the goal likewise.
        facts: File with your own devices, offers and machines, relative to this one.
    """

    model: str
    title: str = ""
    task: Literal["train", "infer"] = "train"
    seq: int | None = None
    work: dict[str, Option] = field(default_factory=dict)
    goal: dict[str, Option] = field(default_factory=dict)
    facts: str | None = None


def read_scenario(path: Path) -> Scenario:
    """Read a ``goal.yaml``, which may come from anybody.

    Raises:
        InvalidInputError: Not such a file, or a value that cannot be read.
        UnknownNameError: An option that is none.
    """
    scenario = load_scenario(read_text(path, what="goal file"))
    if scenario.facts_file is None:
        return scenario
    return Scenario(
        model=scenario.model,
        title=scenario.title,
        task=scenario.task,
        seq=scenario.seq,
        work=scenario.work,
        goal=scenario.goal,
        facts_file=str(path.parent / scenario.facts_file),
    )


def load_scenario(text: str) -> Scenario:
    """A scenario from YAML text; see `read_scenario`."""
    value = parse_mapping(text, what="goal file", hint="begin it with `model: resnet50`")
    _check_kind(value)
    _check_sections(value)
    content = validate(ScenarioFile, value, what="goal file")
    return Scenario(
        model=content.model,
        title=content.title,
        task=content.task,
        seq=content.seq,
        work=parse_work(texts_of(content.work)),
        goal=parse_goal(texts_of(content.goal)),
        facts_file=content.facts,
    )


def _check_kind(value: Mapping[str, Any]) -> None:
    """Send a file of another kind to the verb that reads it."""
    for keys, kind, verb in _OTHER_FILES:
        if not keys.isdisjoint(value):
            raise InvalidInputError(
                f"this is a {kind} file, not a goal file", hint=f"give it to `paceline {verb}`"
            )


def _check_sections(value: Mapping[str, Any]) -> None:
    """Say under which of its sections each option belongs that stands at the top."""
    astray = {
        section: [one.name for _, one in typed_fields(declared) if one.name in value]
        for section, declared in (("work", Work), ("goal", Goal))
    }
    names = [name for found in astray.values() for name in found]
    if names:
        ways = [f"{_named(found)} under `{to}:`" for to, found in astray.items() if found]
        raise InvalidInputError(
            f"{_named(names)} {'stand' if names[1:] else 'stands'} at the top of the goal file",
            hint=f"write {' and '.join(ways)}, two spaces in",
        )


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def texts_of(options: Mapping[str, Option]) -> dict[str, str]:
    """Options of a file as they would be typed on a command line."""
    return {name: _text(value) for name, value in options.items()}


def _text(value: Option) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ",".join(f"{key}={_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
