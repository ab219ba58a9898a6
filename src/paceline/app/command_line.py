"""Verbs as plain functions: click parses what their signature says.

A verb's parameters carry an `Option` or an `Argument` in ``Annotated``, so that the same function
reads as Python; this is the thin mapping from there to click, and from click's complaints to ours.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

import click

from paceline.app.option_hints import unknown_option
from paceline.errors import InvalidInputError, UnknownNameError, close_names
from paceline.values import dataclass

if TYPE_CHECKING:
    from paceline.app.output import Asked

Verb = TypeVar("Verb", bound=Callable[..., object])

#: Columns of help, where the terminal has as many.
HELP_WIDTH = 96
#: Characters of the longest name of a verb.
_LONGEST_VERB = 16


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a verb.

    Attributes:
        help: What a user is told.
        metavar: How its value is shown; empty takes its type.
        flags: As typed; empty takes the parameter's name.
        default: Where it stands in a table of options, which has no defaults of its own.
    """

    help: str
    metavar: str = ""
    flags: tuple[str, ...] = ()
    default: Any = None


@dataclass(frozen=True, slots=True)
class Argument:
    """A word of a verb that has no flag.

    Attributes:
        metavar: How it is shown.
        help: What a user is told, below the purpose of the verb.
        default: Where it stands in a table; it is required there without one.
    """

    metavar: str
    help: str
    default: Any = inspect.Parameter.empty


class _Verb(click.Command):
    """A verb that refuses an option given twice, of which click would drop all but the last."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's.

        Raises:
            click.UsageError: An option that takes one value has two.
        """
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        seen: set[click.Parameter] = set()
        for parameter in order:
            if isinstance(parameter, click.Option) and not parameter.multiple:
                if parameter in seen:
                    raise click.UsageError(_said_twice(parameter), ctx)
                seen.add(parameter)
        return super().parse_args(ctx, args)


class Commands(click.Group):
    """Verbs by name, some of them with verbs of their own.

    Args:
        name: As typed.
        help: One sentence.
        wants: Its verbs by what a person wants, as help lists them; in one list where it is empty.
        whole: The same with all verbs, where it may hold only the one that is called.
        elsewhere: What answers a word that is none of its verbs, of that word.
    """

    def __init__(
        self,
        name: str,
        help: str,
        wants: Mapping[str, Sequence[str]] | None = None,
        whole: Callable[[], Commands] | None = None,
        elsewhere: Callable[[str], str] | None = None,
    ) -> None:
        self.wants = wants or {}
        self.whole = whole
        self.elsewhere = elsewhere
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH}
        super().__init__(name, help=help, short_help=help, context_settings=settings)

    def add_verb(self, name: str, verb: Callable[..., Asked | int | None]) -> None:
        """Register a function under ``name``."""
        parameters = list(_parameters(verb))
        purpose = inspect.getdoc(verb) or ""
        words = [f"{p.metavar}: {s.help}" for p, s in parameters if isinstance(s, Argument)]
        self.add_command(
            _Verb(
                name,
                callback=partial(_called, verb),
                params=[parameter for parameter, _ in parameters],
                help="\n\n".join([purpose, *words]),
                short_help=purpose.partition("\n")[0],
                context_settings={"show_default": True},
            )
        )

    def add_group(
        self, name: str, help: str, elsewhere: Callable[[str], str] | None = None
    ) -> Commands:
        """Register and return verbs below ``name``."""
        group = Commands(name, help, elsewhere=elsewhere)
        self.add_command(group)
        return group

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each verb, and those of two words behind it, below what it is wanted for."""
        if not self.wants:
            super().format_commands(ctx, formatter)
        for want, verbs in self.wants.items():
            names = [name for verb in verbs for name in self.commands if name.split()[0] == verb]
            with formatter.section(want):
                formatter.write_dl(
                    [(name, self.commands[name].short_help or "") for name in names],
                    col_max=_LONGEST_VERB,
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with names of two words, and with near names on a miss."""
        if (both := " ".join(args[:2])) in self.commands and len(args) > 1:
            return both, self.commands[both], args[2:]
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            command = f"{ctx.command_path} --help"
            unknown = UnknownNameError.from_name("command", args[0], self.commands, command=command)
            if self.elsewhere is not None and not close_names(args[0], self.commands):
                unknown.hint = self.elsewhere(args[0])
            raise unknown
        return super().resolve_command(ctx, args)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A verb with what it was given, read and not yet run.

    Attributes:
        verb: The function; an exit status that it returns is the command's.
        values: Its keywords.
    """

    verb: Callable[..., Asked | int | None]
    values: Mapping[str, Any]


def read_call(commands: Commands, arguments: Sequence[str]) -> Call | None:
    """The verb that ``arguments`` name; None where they ask for help, which is printed.

    Raises:
        UnknownNameError: No such verb or option.
        InvalidInputError: A value is missing, superfluous or of another type.
    """
    try:
        call = commands.main(list(arguments), prog_name=commands.name, standalone_mode=False)
    except click.NoSuchOption as error:
        raise unknown_option(error) from None
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return None
    except click.ClickException as error:
        verb = next((word for word in arguments[:1] if word in commands.commands), "")
        raise _unusable(error, f"{commands.name} {verb}".strip()) from None
    except click.Abort:
        raise KeyboardInterrupt from None
    return call if isinstance(call, Call) else None


def _called(verb: Callable[..., Asked | int | None], **values: Any) -> Call:
    return Call(verb=verb, values=values)


def spelled_out(verb: Callable[..., object]) -> inspect.Signature:
    """The verb's signature with a keyword for each option of the table that it takes as ``**``.

    Tables are TypedDicts whose values are an `Option` in ``Annotated``, so that verbs share them
    and a type checker sees what they pass on. A value without one has its option from
    `paceline.app.option_table.takes`.
    """
    signature = inspect.signature(verb, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        is_table = get_origin(parameter.annotation) is Unpack
        parameters += _of_table(parameter) if is_table else [parameter]
    return signature.replace(parameters=parameters)


def _of_table(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    (table,) = get_args(parameter.annotation)
    for name, annotation in get_type_hints(table, include_extras=True).items():
        if get_origin(annotation) is Annotated:
            default = get_args(annotation)[1].default
            kind = inspect.Parameter.KEYWORD_ONLY
            yield inspect.Parameter(name, kind, default=default, annotation=annotation)


def _parameters(verb: Callable[..., object]) -> Iterator[tuple[click.Parameter, Option | Argument]]:
    for name, parameter in spelled_out(verb).parameters.items():
        if get_origin(parameter.annotation) is Annotated:
            hint, spec = get_args(parameter.annotation)[:2]
            make = _option if isinstance(spec, Option) else _argument
            yield make(name, hint, spec, parameter.default), spec


def _option(name: str, hint: Any, spec: Option, default: Any) -> click.Option:
    kind, is_repeated = _plain_type(hint)
    is_required = default is inspect.Parameter.empty
    given: dict[str, Any] = {} if is_required or is_repeated else {"default": default}
    return click.Option(
        [name, *(spec.flags or (f"--{name.replace('_', '-')}",))],
        help=spec.help,
        metavar=spec.metavar or None,
        type=None if kind is bool else _click_type(kind),
        is_flag=kind is bool,
        multiple=is_repeated,
        required=is_required,
        show_default=kind is not bool and default not in (None, ""),
        **given,
    )


def _argument(name: str, hint: Any, spec: Argument, default: Any) -> click.Argument:
    kind, is_repeated = _plain_type(hint)
    is_required = default is inspect.Parameter.empty
    return click.Argument(
        [name],
        metavar=spec.metavar if is_required else f"[{spec.metavar}]",
        type=_click_type(kind),
        nargs=-1 if is_repeated else 1,
        required=is_required,
    )


def _plain_type(hint: Any) -> tuple[type, bool]:
    """``list[Path] | None`` and ``Sequence[Path]`` are Path, repeated; ``int | None`` is int."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] or [hint]
    for kind in (hint, kinds[0]):
        if get_origin(kind) in (list, Sequence):
            return get_args(kind)[0], True
    return kinds[0], False


def _click_type(kind: type) -> click.ParamType[Any] | type:
    return click.Path(path_type=Path) if kind is Path else kind


def _said_twice(option: click.Option) -> str:
    flag = option.opts[-1] if option.opts[-1].startswith("--") else option.opts[0]
    several = "several with commas" in (option.help or "")
    how = f": write several with commas, as in `{flag} A,B`" if several else ""
    return f"`{flag}` is given twice{how}"


#: Kinds of values in the words of the library that reads the line, and in plain ones.
_PLAIN_KINDS = {"a valid integer": "a whole number", "a valid float": "a number"}


def _unusable(error: click.ClickException, path: str) -> InvalidInputError:
    """What cannot be used; ``path`` names the command where the error does not."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else path
    text = error.format_message().rstrip(".")
    for kind, plain in _PLAIN_KINDS.items():
        text = text.replace(kind, plain)
    hint = f"`{path} --help` lists what it takes"
    if thousands := re.search(r"'(\d{1,6})k' is not a whole number", text):
        number = int(thousands[1])
        hint = f"write {1024 * number} or {1000 * number}; {hint}"
    if percent := re.search(r"'(\d+(?:\.\d+)?) ?%' is not a number", text):
        hint = f"write {float(percent[1]) / 100:g}; {hint}"
    return InvalidInputError(text[:1].lower() + text[1:], hint=hint)
