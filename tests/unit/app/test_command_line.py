"""Verbs as functions: what a signature says is what can be typed."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, TypedDict, Unpack, get_args

import pytest

from paceline.app.api.stack import HostOptions, StackOptions
from paceline.app.command_line import Argument, Commands, Option, read_call, spelled_out
from paceline.app.goal_options import GOAL_OPTIONS, WORK_OPTIONS, PlanOptions
from paceline.app.main import VERBS
from paceline.app.option_table import TextOption, asks, takes
from paceline.app.options import answers
from paceline.app.output import Answer
from paceline.app.verbs import stack as stack_cli


class _Shared(TypedDict, total=False):
    speed: Annotated[str, Option(help="How fast.", default="slow")]


class _Whole(_Shared, total=False):
    facts: Annotated[Sequence[Path], Option(help="Files.", default=())]
    limit: Annotated[int | None, Option(help="At most.")]


SEEN: dict[str, object] = {}


def _verb(
    model: Annotated[str, Argument(metavar="MODEL", help="What.")],
    count: Annotated[int, Option(help="How many.")] = 1,
    **options: Unpack[_Whole],
) -> None:
    """Do it."""
    SEEN.clear()
    SEEN.update(model=model, count=count, **options)


def typed(*words: str) -> dict[str, object]:
    commands = Commands("x", "x")
    commands.add_verb("do", _verb)
    call = read_call(commands, ["do", *words])
    assert call is not None
    call.verb(**call.values)
    return dict(SEEN)


def test_a_table_is_spelled_out_after_what_the_verb_names_itself() -> None:
    parameters = spelled_out(_verb).parameters
    assert list(parameters) == ["model", "count", "speed", "facts", "limit"]
    assert [p.default for p in parameters.values()][2:] == ["slow", (), None]


def test_options_of_a_table_have_its_defaults() -> None:
    plain = {"model": "m", "count": 1, "speed": "slow", "facts": (), "limit": None}
    assert typed("m") == plain


def test_options_of_a_table_are_typed_and_repeated_like_any_other() -> None:
    found = typed("m", "--limit", "3", "--facts", "a", "--facts", "b", "--speed", "fast")
    assert (found["limit"], found["speed"]) == (3, "fast")
    assert found["facts"] == (Path("a"), Path("b"))


def test_an_answering_verb_keeps_its_table_before_the_forms_of_an_answer() -> None:
    @answers
    def verb(**options: Unpack[_Shared]) -> Answer:
        """Answer."""
        raise AssertionError

    names = list(inspect.signature(verb).parameters)
    assert names == ["speed", "form", "is_json", "output"]


def test_text_options_stand_between_what_is_required_and_what_is_not() -> None:
    @takes(TextOption(name="samples", example="1k", help="How many."))
    def verb(
        model: Annotated[str, Argument(metavar="MODEL", help="What.")],
        count: Annotated[int, Option(help="How many.")] = 1,
        **options: Unpack[_Shared],
    ) -> None:
        """Do it."""

    assert list(spelled_out(verb).parameters) == ["model", "samples", "count", "speed"]


@pytest.mark.parametrize(
    ("typed_options", "table"),
    [
        (PlanOptions, (*WORK_OPTIONS, *GOAL_OPTIONS)),
        (StackOptions, stack_cli._CONSTRAINTS),
        (HostOptions, stack_cli._HOST),
    ],
)
def test_what_a_table_tells_is_what_its_type_has(typed_options, table) -> None:
    told = [option.parameter for option in table]
    assert len(set(told)) == len(told)
    assert set(told) == set(typed_options.__annotations__)


@pytest.mark.parametrize("module", sorted(set(VERBS.values())))
def test_no_verb_takes_anything_at_all(module: str) -> None:
    members = vars(import_module(module)).values()
    verbs = [one for one in members if inspect.isfunction(one) and one.__module__ == module]
    assert verbs
    for verb in verbs:
        parameters = inspect.signature(inspect.unwrap(verb)).parameters.values()
        assert not [p.name for p in parameters if str(p.annotation) == "Any"], verb


def _asked(model: str, *, count: int = 3, loud: str = "") -> Imported:  # noqa: F821  For mypy alone.
    """What a verb asks."""


def test_a_verb_has_the_types_and_defaults_of_what_it_asks() -> None:
    @asks(
        _asked,
        count=Option("How many."),
        model=Argument("MODEL", "What."),
        loud=Annotated[bool, Option("Shout.", default=False)],
        force=Annotated[bool, Option("Do it.", default=False)],
    )
    def verb(**_: object) -> None:
        """Do it."""

    kinds = {
        name: (get_args(p.annotation)[0], p.default)
        for name, p in spelled_out(verb).parameters.items()
    }
    assert kinds == {
        "count": (int, 3), "model": (str, inspect.Parameter.empty), "loud": (bool, False),
        "force": (bool, False),
    }  # fmt: skip


def test_a_verb_cannot_ask_what_nobody_answers() -> None:
    with pytest.raises(AssertionError, match="_asked takes no size"):
        asks(_asked, size=Option("How large."))(lambda: None)
