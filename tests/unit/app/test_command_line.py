"""Verbs as functions: what a signature says is what can be typed."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypedDict, Unpack

from paceline.app.command_line import Argument, Commands, Option, run, spelled_out
from paceline.app.option_table import TextOption, takes
from paceline.app.options import answers
from paceline.app.output import Answer


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
    run(commands, ["do", *words])
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
