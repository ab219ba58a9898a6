"""A day, a word of a few and the number of a choice, as users write them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, TypeVar

from paceline.errors import InvalidInputError, UnknownNameError

if TYPE_CHECKING:
    from paceline.planfile import PlanFile

Word = TypeVar("Word")


def check_choice(plan: PlanFile, choice: int) -> None:
    """Refuse a number that no choice of a plan has, 1 being the first.

    Raises:
        InvalidInputError: It has none.
    """
    if not 1 <= choice <= len(plan.choices):
        raise InvalidInputError(
            f"the plan has no choice {choice}", hint=f"it has 1 to {len(plan.choices)}"
        )


def read_day(day: str | date | None) -> date:
    """The day itself, an ISO day, or today.

    Raises:
        InvalidInputError: Not a day.
    """
    if day is None:
        return date.today()
    try:
        return day if isinstance(day, date) else date.fromisoformat(day)
    except ValueError:
        raise InvalidInputError(f"`{day}` is not a day", hint="write it like 2026-11-20") from None


def read_word(text: str, known: tuple[Word, ...], what: str, *, command: str = "") -> Word:
    """The one of ``known`` that ``text`` says.

    Raises:
        UnknownNameError: None of them; ``command`` tells which there are, or the hint lists them.
    """
    for word in known:
        if word == text:
            return word
    raise UnknownNameError.from_name(what, text, map(str, known), command=command)
