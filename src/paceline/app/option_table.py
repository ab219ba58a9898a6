"""Options said once as data: from a table of them a verb gets its command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

from paceline.app.command_line import Option, Verb, spelled_out
from paceline.errors import InvalidInputError
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOption:
    """One option of a verb.

    Attributes:
        name: As typed, without dashes.
        help: What a user is told.
        example: Value shown in the help; empty for a flag.
        key: Name under which the answer is looked up, where that differs.
        is_repeatable: Whether it may be given several times.
    """

    name: str
    help: str
    example: str = ""
    key: str = ""
    is_repeatable: bool = False

    @property
    def parameter(self) -> str:
        """Name as a Python parameter."""
        return self.name.replace("-", "_")


def option_texts(values: Mapping[str, object], known: tuple[TextOption, ...]) -> dict[str, str]:
    """The options of ``known`` that are set, as text under their keys.

    >>> option_texts({"spot": True, "cloud": None}, (TextOption(name="spot", help="."),))
    {'spot': 'yes'}
    """
    texts: dict[str, str] = {}
    for one in known:
        text, key = _text(values.get(one.parameter)), one.key or one.name
        if text is not None and texts.get(key, text) != text:
            raise InvalidInputError(
                f"`--{one.name} {text}` and `--{key} {texts[key]}` say two things of the same",
                hint="give one of them",
            )
        if text is not None:
            texts[key] = text
    return texts


def takes(*options: TextOption) -> Callable[[Verb], Verb]:
    """Give a verb that ends in ``**values`` a command-line option for each of ``options``."""

    def decorate(verb: Verb) -> Verb:
        """The verb with its own options and the table's in its signature, required ones first."""
        signature = spelled_out(verb)
        own = [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        required = [parameter for parameter in own if parameter.default is parameter.empty]
        optional = [parameter for parameter in own if parameter.default is not parameter.empty]
        table = [_parameter(option) for option in options]
        whole = signature.replace(parameters=[*required, *table, *optional])
        verb.__dict__["__signature__"] = whole
        return verb

    return decorate


def asks(function: Callable[..., object], **told: Any) -> Callable[[Verb], Verb]:
    """Give a verb the parameters of a function of the API, whose types and defaults they have.

    Args:
        function: What the verb asks.
        told: An `Option` or `Argument` by parameter, in the order of the help; or a whole
            ``Annotated`` type for what is typed in another way than it is asked, with its own
            default.
    """

    def decorate(verb: Verb) -> Verb:
        """The verb with these parameters for its signature."""
        parameters = [_asked(function, name, one) for name, one in told.items()]
        verb.__dict__["__signature__"] = inspect.Signature(parameters)
        return verb

    return decorate


def _asked(function: Callable[..., object], name: str, told: Any) -> inspect.Parameter:
    if get_origin(told) is Annotated:
        return _keyword(name, told, default=get_args(told)[1].default)
    known = inspect.signature(function).parameters.get(name)
    assert known is not None, f"{function.__name__} takes no {name}"
    # One by one: what the function returns may be imported for type checkers alone.
    kind = eval(known.annotation, function.__globals__)
    return _keyword(name, Annotated[kind, told], default=known.default)


def _parameter(option: TextOption) -> inspect.Parameter:
    flags = (f"--{option.name}",)
    if not option.example:
        annotation: Any = Annotated[bool, Option(help=option.help, flags=flags)]
        return _keyword(option.parameter, annotation, default=False)
    described = Option(help=option.help, metavar=option.example, flags=flags)
    if option.is_repeatable:
        return _keyword(option.parameter, Annotated[list[str] | None, described], default=None)
    return _keyword(option.parameter, Annotated[str | None, described], default=None)


def _keyword(name: str, annotation: Any, *, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def _text(value: object) -> str | None:
    if value is None or value is False:
        return None
    if value is True:
        return "yes"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or None
    return str(value)
