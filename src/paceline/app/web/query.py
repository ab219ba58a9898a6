"""What the address of the local page asks: a model, a goal and work, named as on the command line.

Nothing of it is a path or code: a model is a name of the registry, or a file that was dropped.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args
from urllib.parse import urlencode

from paceline.app.goal_options import GOAL_OPTIONS, WORK_OPTIONS
from paceline.app.option_table import TextOption
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.values import dataclass

OPTIONS: Mapping[str, TextOption] = {one.name: one for one in (*WORK_OPTIONS, *GOAL_OPTIONS)}
#: Of the model, beside its name and task.
MODEL_OPTIONS = ("seq", "image-size", "optimizer")
#: What the page itself keeps in its address.
_OWN = ("model", "task", "token", "keep")
#: A model that was dropped on the page: ``upload:`` and the name it was given.
UPLOADED = "upload:"
_MOST_LETTERS = 400
_NAME = re.compile(r"[\w][\w .:+/@=,()-]*")
_DEFAULT_MODEL = "resnet50"
TASKS = ("train", "infer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A plan that is asked for.

    Attributes:
        model: Name of the registry, or of an upload.
        task: ``train`` or ``infer``.
        options: By name as on the command line, as typed; in the order of the form.
    """

    model: str
    task: str = "train"
    options: tuple[tuple[str, str], ...] = ()

    def value(self, name: str) -> str:
        """An option as typed; empty where it is not given."""
        return dict(self.options).get(name, "")

    def keywords(self) -> dict[str, Any]:
        """What `paceline.plan` takes beside the model.

        Raises:
            InvalidInputError: A length that is no whole number.
        """
        given: dict[str, Any] = {"task": self.task}
        for name, text in self.options:
            given[name.replace("-", "_")] = _typed(name, text)
        return given

    def replaced(self, **options: str) -> Question:
        """The same with other values of these options; an empty one is left out."""
        named = {name.replace("_", "-"): text for name, text in options.items()}
        kept = {**dict(self.options), **named}
        return Question(model=self.model, task=self.task, options=_ordered(kept))

    def address(self) -> str:
        """As the query of an address."""
        return urlencode([("model", self.model), ("task", self.task), *self.options])

    def command(self, name: str) -> str:
        """As typed in a shell.

        Args:
            name: Of the model there: that of a dropped file says nothing.
        """
        words = ["paceline", "plan", name]
        words += ["--task", self.task] if self.task != "train" else []
        for option, text in self.options:
            words += [f"--{option}"] if _is_flag(option) else [f"--{option}", text]
        return shlex.join(words)


def read_question(query: Mapping[str, str]) -> Question:
    """The question of an address.

    Raises:
        UnknownNameError: A name that no option has.
        InvalidInputError: A value that no option has a use for.
    """
    known = (*_OWN, *MODEL_OPTIONS, *OPTIONS)
    for name, text in query.items():
        if name not in known:
            raise UnknownNameError.from_name("option", name, known, command="paceline plan --help")
        if name != "keep" and (len(text) > _MOST_LETTERS or not text.isprintable()):
            raise InvalidInputError(
                f"`{name}` is too long, or holds what cannot be printed",
                hint=f"write up to {_MOST_LETTERS} letters on one line",
            )
    task = query.get("task") or "train"
    if task not in TASKS:
        raise UnknownNameError.from_name("task", task, TASKS)
    return Question(
        model=query.get("model", "").strip() or _DEFAULT_MODEL, task=task, options=_ordered(query)
    )


def check_name(model: str) -> None:
    """Refuse all but the names of the registry: no file is opened and no code is run by one.

    Raises:
        UnknownNameError: Another name; near ones are in the hint.
        InvalidInputError: No name at all.
    """
    from paceline.model.names.lookup import entry_of

    if not _NAME.fullmatch(model) or ".." in model:
        raise InvalidInputError(
            f"`{model}` is not the name of a model", hint="type a part of a name to see some"
        )
    if entry_of(model) not in _entries():
        raise InvalidInputError(
            f"`{model}` is no name of the list",
            hint="the page opens no paths and runs no code: drop the file on it, or ask on the "
            "command line",
        )


@cache
def _entries() -> frozenset[str]:
    from paceline.model.names.registry import Origin, known_models, names_of

    listed = {one.entry for one in known_models()}
    return frozenset(listed.union(*(names_of(origin).entries for origin in get_args(Origin))))


def _ordered(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    names = (*OPTIONS, *MODEL_OPTIONS)
    return tuple((n, text) for n in names if (text := given.get(n, "").strip()))


def _is_flag(name: str) -> bool:
    return name in OPTIONS and not OPTIONS[name].example


def _typed(name: str, text: str) -> object:
    if _is_flag(name):
        return True
    if name not in ("seq", "image-size"):
        return text
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 10**9):
        raise InvalidInputError(f"`{text}` is not a whole number", hint=f"write --{name} 512")
    return int(text)
