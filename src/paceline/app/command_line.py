"""Verbs as plain functions: their signature is their command line.

A verb's parameters carry an `Option` or an `Argument` in ``Annotated``; argparse does the parsing,
and the help is laid out here so that it is the same under every Python. Nothing is imported for
this but the standard library: see ``docs/decisions/0001-verbs-are-functions.md``.
"""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, NoReturn, TypeVar, get_args, get_origin

from paceline.errors import InvalidInputError, UnknownNameError

Verb = TypeVar("Verb", bound=Callable[..., None])

_HELP_FLAGS = ("-h", "--help")
_HELP_COLUMN = 30


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a verb.

    Attributes:
        help: What a user is told.
        metavar: How its value is shown; empty takes its type.
        flags: As typed; empty takes the parameter's name.
    """

    help: str
    metavar: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Argument:
    """A word of a verb that has no flag.

    Attributes:
        metavar: How it is shown.
        help: What a user is told.
    """

    metavar: str
    help: str


@dataclass(frozen=True, slots=True)
class Commands:
    """Verbs by name, some of them with verbs of their own.

    Attributes:
        help: One sentence about all of them.
        verbs: Functions, or further commands.
    """

    help: str
    verbs: dict[str, Callable[..., None] | Commands] = field(default_factory=dict)

    def command(self, name: str) -> Callable[[Verb], Verb]:
        """Register the decorated function under ``name``."""

        def register(verb: Verb) -> Verb:
            self.verbs[name] = verb
            return verb

        return register

    def group(self, name: str, help: str) -> Commands:
        """Register and return commands below ``name``."""
        group = Commands(help)
        self.verbs[name] = group
        return group


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    """One parameter of a verb, read from its signature."""

    name: str
    kind: type
    is_repeated: bool
    default: Any
    spec: Option | Argument

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def flags(self) -> tuple[str, ...]:
        if isinstance(self.spec, Argument):
            return ()
        return self.spec.flags or (f"--{self.name.replace('_', '-')}",)

    @property
    def shown_value(self) -> str:
        if self.kind is bool:
            return ""
        return self.spec.metavar or {int: "N", float: "X", Path: "PATH"}.get(self.kind, "TEXT")


def run(commands: Commands, arguments: Sequence[str], *, program: str) -> None:
    """Run the verb that ``arguments`` name, or print the help they ask for.

    Raises:
        UnknownNameError: No such verb or option.
        InvalidInputError: A value is missing, superfluous or of another type.
    """
    if not arguments or arguments[0] in _HELP_FLAGS:
        print(commands_help(commands, program))
        return
    name, *rest = arguments
    verb = commands.verbs.get(name)
    if verb is None:
        known = [*commands.verbs, *_HELP_FLAGS]
        raise UnknownNameError.from_name("command", name, known, command=f"{program} --help")
    if isinstance(verb, Commands):
        run(verb, rest, program=f"{program} {name}")
    elif any(word in _HELP_FLAGS for word in rest):
        print(verb_help(verb, f"{program} {name}"))
    else:
        verb(**parse(verb, rest, program=f"{program} {name}"))


def parse(verb: Callable[..., None], words: Sequence[str], *, program: str) -> dict[str, Any]:
    """Keyword arguments of a verb from the words of a command line; errors as in `run`."""
    parameters = list(_parameters(verb))
    parser = _Parser(prog=program, parameters=parameters)
    return vars(parser.parse_args(words))


def commands_help(commands: Commands, program: str) -> str:
    """The list of verbs, each with the first sentence of its docstring."""
    lines = [f"Usage: {program} COMMAND …", "", commands.help, "", "Commands:"]
    for name, verb in commands.verbs.items():
        text = verb.help if isinstance(verb, Commands) else _first_line(verb)
        lines += _entry(name, text)
    return "\n".join((*lines, "", f"`{program} COMMAND --help` tells more."))


def verb_help(verb: Callable[..., None], program: str) -> str:
    """Usage, purpose, arguments and options of a verb."""
    parameters = list(_parameters(verb))
    words = [p for p in parameters if isinstance(p.spec, Argument)]
    options = [p for p in parameters if isinstance(p.spec, Option)]
    usage = " ".join([f"Usage: {program}", *(_usage(word) for word in words), "[OPTION …]"])
    lines = [usage, "", inspect.getdoc(verb) or ""]
    if words:
        lines += ["", "Arguments:"]
    for word in words:
        lines += _entry(word.spec.metavar, word.spec.help)
    lines += ["", "Options:"]
    for option in options:
        lines += _entry(", ".join(option.flags) + f" {option.shown_value}", _described(option))
    return "\n".join((*lines, *_entry(", ".join(_HELP_FLAGS), "Show this and stop.")))


def _parameters(verb: Callable[..., None]) -> Iterator[_Parameter]:
    for name, parameter in inspect.signature(verb, eval_str=True).parameters.items():
        if get_origin(parameter.annotation) is not Annotated:
            continue
        hint, spec = get_args(parameter.annotation)[:2]
        kind, is_repeated = _plain_type(hint)
        yield _Parameter(
            name=name, kind=kind, is_repeated=is_repeated, default=parameter.default, spec=spec
        )


def _plain_type(hint: Any) -> tuple[type, bool]:
    """``list[Path] | None`` is Path, repeated; ``int | None`` is int."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] or [hint]
    if get_origin(hint) is list:
        return get_args(hint)[0], True
    if get_origin(kinds[0]) is list:
        return get_args(kinds[0])[0], True
    return kinds[0], False


class _Parser(argparse.ArgumentParser):
    """argparse with our messages: near names for options, no exit of its own."""

    def __init__(self, *, prog: str, parameters: Sequence[_Parameter]) -> None:
        super().__init__(prog=prog, add_help=False, allow_abbrev=False)
        self._flags = [flag for p in parameters for flag in p.flags]
        for parameter in parameters:
            self._take(parameter)

    def error(self, message: str) -> NoReturn:
        """Turn argparse's complaint into ours."""
        unknown = message.partition("unrecognized arguments: ")[2].split(" ")[0]
        if unknown.startswith("-"):
            flag = unknown.partition("=")[0]
            raise UnknownNameError.from_name(
                "option", flag, self._flags, command=f"{self.prog} --help"
            )
        raise InvalidInputError(message, hint=f"`{self.prog} --help` lists what it takes")

    def _take(self, parameter: _Parameter) -> None:
        settings: dict[str, Any] = {}
        if parameter.kind is bool:
            settings["action"] = "store_true"
        else:
            settings["type"] = _reader(parameter)
            settings["metavar"] = parameter.shown_value
        if parameter.is_repeated and parameter.flags:
            settings["action"] = "append"
        if not parameter.flags:
            settings["nargs"] = _count(parameter)
            self.add_argument(parameter.name, default=_default(parameter), **settings)
        else:
            self.add_argument(
                *parameter.flags,
                dest=parameter.name,
                default=_default(parameter),
                required=parameter.is_required,
                **settings,
            )


def _count(parameter: _Parameter) -> str | None:
    if parameter.is_repeated:
        return "+"
    return None if parameter.is_required else "?"


def _default(parameter: _Parameter) -> Any:
    return None if parameter.is_required else parameter.default


_KIND_WORDS: Mapping[type, str] = {int: "whole number", float: "number"}


def _reader(parameter: _Parameter) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return parameter.kind(text)
        except ValueError:
            word = _KIND_WORDS.get(parameter.kind, "value")
            name = parameter.flags[0] if parameter.flags else parameter.spec.metavar
            raise InvalidInputError(
                f"`{text}` is not a {word}", hint=f"{name}: {parameter.spec.help}"
            ) from None

    return read


def _first_line(verb: Callable[..., None]) -> str:
    return (inspect.getdoc(verb) or "").partition("\n")[0]


def _usage(word: _Parameter) -> str:
    shown = f"{word.spec.metavar} …" if word.is_repeated else word.spec.metavar
    return shown if word.is_required else f"[{shown}]"


def _described(option: _Parameter) -> str:
    has_default = not option.is_required and option.default not in (None, False, "")
    return option.spec.help + (f" [{option.default}]" if has_default else "")


def _entry(head: str, text: str) -> list[str]:
    """A term with its text in the second column, below it where the term is long."""
    body = textwrap.wrap(text, 96 - _HELP_COLUMN, break_on_hyphens=False) or [""]
    head = f"  {head.rstrip()}"
    if len(head) > _HELP_COLUMN - 2:
        return [head, *(" " * _HELP_COLUMN + line for line in body)]
    first = head.ljust(_HELP_COLUMN) + body[0]
    return [first.rstrip(), *(" " * _HELP_COLUMN + line for line in body[1:])]
