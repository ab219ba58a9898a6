"""What a user may state: name, help, reading, showing and bounds, declared beside each field.

A dataclass declares its fields with `typed`; the command line, the Python keywords, goal files and
the reference pages are made of these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, fields
from typing import Any

from paceline.catalog.lookup import split_names
from paceline.document_keys import refuse_twice
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.units import parse_count
from paceline.values import dataclass

#: Key of a declaration in the metadata of a field.
_TYPED = "typed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedField:
    """One value that a user may state.

    Attributes:
        name: As in a goal file and in messages.
        help: What a user is told.
        example: How it may be written; empty for a flag.
        flag: On the command line, where that differs from ``name``.
        also: Other flags that state it, each with its help.
        read: The value of a text.
        show: The text of a value.
        check: Refuses a value out of bounds; takes ``name`` and the value, which is not None.
        is_repeatable: Whether it may be given several times.
    """

    name: str
    help: str
    example: str = ""
    flag: str = ""
    also: tuple[tuple[str, str], ...] = ()
    read: Callable[[str], Any] = str
    show: Callable[[Any], str]
    check: Callable[[str, Any], None]
    is_repeatable: bool = False


def shown(value: Any) -> str:
    """A value as it would be typed.

    >>> shown(("NVIDIA", "AMD")), shown(True), shown({"nodes": "2"})
    ('NVIDIA,AMD', 'yes', 'nodes=2')
    """
    if isinstance(value, Mapping):
        return ",".join(f"{key}={one}" for key, one in value.items())
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def unbounded(_name: str, _value: Any) -> None:
    """Any value will do."""


def above_zero(name: str, value: float) -> None:
    """Refuse what is no finite number above zero.

    Raises:
        InvalidInputError: It is not.
    """
    if not 0 < value < float("inf"):
        raise InvalidInputError(
            f"`{name}` must be above zero and finite, not {value}",
            hint=f"leave `{name}` out or give a number above zero",
        )


def likely(name: str, value: float) -> None:
    """Refuse a chance at which nothing could be relied on, and certainty.

    Raises:
        InvalidInputError: Below one half, or one.
    """
    if not 0.5 <= value < 1.0:
        raise InvalidInputError(
            f"`{name}` must be at least 0.5 and below 1, not {value}",
            hint="0.8 means: in four of five cases",
        )


def known(kind: str, names: Collection[str]) -> Callable[[str, Any], None]:
    """A check that refuses a name, or one of several, that is not among ``names``."""

    def check(_name: str, value: Any) -> None:
        """Refuse the first name that is not known."""
        for one in (value,) if isinstance(value, str) else value:
            if one not in names:
                raise UnknownNameError.from_name(
                    kind, str(one), names, command="paceline plan --help"
                )

    return check


def typed(
    name: str,
    help: str,
    example: str = "",
    *,
    default: Any = None,
    flag: str = "",
    also: tuple[tuple[str, str], ...] = (),
    read: Callable[[str], Any] = str,
    show: Callable[[Any], str] = shown,
    check: Callable[[str, Any], None] = unbounded,
    is_repeatable: bool = False,
) -> Any:
    """A dataclass field that a user may state; see `TypedField`.

    A ``default`` that is a class, such as ``dict``, is called for each new value.
    """
    one = TypedField(
        name=name, help=help, example=example, flag=flag, also=also, read=read, show=show,
        check=check, is_repeatable=is_repeatable,
    )  # fmt: skip
    metadata = {_TYPED: one}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def typed_fields(kind: Any) -> Iterator[tuple[str, TypedField]]:
    """Each declared field of a dataclass, by its own name, in order."""
    return ((one.name, one.metadata[_TYPED]) for one in fields(kind) if _TYPED in one.metadata)


def check_bounds(value: Any) -> None:
    """Hold every declared field that is not None against its bounds.

    Raises:
        InvalidInputError: One is out of them.
        UnknownNameError: One is a name that nothing has.
    """
    for name, declared in typed_fields(value):
        stated = getattr(value, name)
        if stated is not None:
            declared.check(declared.name, stated)


def read_names(text: str) -> tuple[str, ...]:
    """Names with commas between.

    Raises:
        InvalidInputError: None.
    """
    names = split_names(text)
    if not names:
        raise InvalidInputError(f"`{text}` names nothing", hint="write names with commas between")
    return names


def read_kinds(text: str) -> tuple[str, ...]:
    """The same in lower case."""
    return tuple(name.lower() for name in read_names(text))


def read_flag(text: str) -> bool:
    """Yes or no, in one of the ways in which people write them.

    Raises:
        InvalidInputError: Neither.
    """
    flags = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if text.lower() not in flags:
        raise InvalidInputError(f"`{text}` is neither yes nor no", hint="write yes or no")
    return flags[text.lower()]


def read_whole(text: str) -> int:
    """A whole number, perhaps with a letter for thousands or millions.

    Raises:
        InvalidInputError: Not one.

    >>> read_whole("4k")
    4000
    """
    count = parse_count(text)
    if not count.is_integer():
        raise InvalidInputError(f"`{text}` is not a whole number", hint="write it like 8, 4k, 1.5M")
    return int(count)


def read_spread(text: str) -> float:
    """Standard deviation over mean.

    Raises:
        InvalidInputError: Not a number.
    """
    try:
        return float(text)
    except ValueError:
        raise InvalidInputError(
            f"`{text}` is no spread", hint="write 0 for requests that are alike, 1 for chats"
        ) from None


def read_chance(text: str) -> float:
    """A chance in 0–1, or in percent.

    Raises:
        InvalidInputError: Neither.

    >>> read_chance("80%")
    0.8
    """
    number = text.strip().removesuffix("%")
    try:
        chance = float(number)
    except ValueError:
        raise InvalidInputError(f"`{text}` is not a chance", hint="write 0.8 or 80%") from None
    return chance / 100 if text.strip().endswith("%") else chance


def read_quotas(text: str) -> dict[str, int]:
    """``PLACE=DEVICES`` pairs with commas between; a place is a cloud, a device, or both.

    Raises:
        InvalidInputError: One has no number, no whole one above zero, or is given twice.

    >>> read_quotas("aws:h100=16,gcp=8")
    {'aws:h100': 16, 'gcp': 8}
    """
    pairs = [part.partition("=") for part in read_names(text)]
    names = [name.strip().lower() for name, _, _ in pairs]
    refuse_twice("--quota", names)
    for name, _, number in pairs:
        if not name.strip() or not number.strip():
            raise InvalidInputError(
                f"`{name or number}` is no quota", hint="write --quota aws:h100=16"
            )
    counts = [read_whole(number.strip()) for _, _, number in pairs]
    for name, count in zip(names, counts, strict=True):
        above_zero(f"quota of {name}", count)
    return dict(zip(names, counts, strict=True))


def read_pins(text: str) -> dict[str, str]:
    """``KEY=VALUE`` pairs with commas between.

    Raises:
        InvalidInputError: One has no value, or is given twice.
    """
    pairs = [part.partition("=") for part in read_names(text)]
    for key, _, value in pairs:
        if not value:
            raise InvalidInputError(
                f"`{key}` pins nothing", hint="write --pin offer=lambda/gpu_1x_a100"
            )
    refuse_twice("--pin", [key.strip() for key, _, _ in pairs])
    return {key.strip(): value.strip() for key, _, value in pairs}
