"""Arguments of public functions, also as a notebook or the command line would write them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import cache, wraps
from pathlib import Path
from typing import Any

from paceline.errors import InvalidInputError


def _whole(value: Any) -> int:
    number = float(value)
    if not number.is_integer():
        raise ValueError
    return int(number)


def _many(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read_all(value: Any) -> tuple[Any, ...]:
        """Each of the values: of a sequence, of words with commas, or of one alone."""
        parts = value.split(",") if isinstance(value, str) and read is not Path else value
        is_one = isinstance(parts, str) or not isinstance(parts, Iterable)
        return tuple(map(read, (parts,) if is_one else parts))

    return read_all


def _many_or_most(value: Any) -> Any:
    return value if isinstance(value, str) and value == "max" else _many(_whole)(value)


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple | set) else str(value)


#: How a value is read, and what it should be, by the annotation of its parameter.
_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "str": (_text, "text"),
    "int": (_whole, "a whole number"),
    "float": (float, "a number"),
    "Path": (Path, "a path"),
    "Sequence[int]": (_many(_whole), "whole numbers, such as (1, 8)"),
    "Sequence[int] | Literal['max']": (_many_or_most, "whole numbers, such as (1, 8), or max"),
    "Sequence[Path]": (_many(Path), "paths"),
}


@cache
def spoken(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, which also takes ``batch=8``, ``device=["t4", "l4"]``, ``facts="x"``.

    Raises:
        InvalidInputError: Of the function returned: an argument is of no type that can be meant.
    """
    signature = inspect.signature(function)
    kinds = {
        name: str(one.annotation).removesuffix(" | None")
        for name, one in signature.parameters.items()
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        """The function, its arguments read by their annotations."""
        bound = signature.bind(*args, **named)
        for name, value in bound.arguments.items():
            if value is not None and (reader := _READERS.get(kinds.get(name, ""))):
                bound.arguments[name] = _read(name, value, *reader)
        return function(*bound.args, **bound.kwargs)

    return call


def _read(name: str, value: Any, reader: Callable[[Any], Any], kind: str) -> Any:
    try:
        return reader(value)
    except (TypeError, ValueError):
        raise InvalidInputError(f"`{name}` cannot be {value!r}", hint=f"give {kind}") from None
