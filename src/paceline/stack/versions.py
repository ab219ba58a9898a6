"""Version numbers and ranges of them, as the fact tables write them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache

from paceline.errors import InvalidInputError
from paceline.patterns import pattern
from paceline.values import dataclass

VersionKey = tuple[int, ...]

_OPERATORS: dict[str, Callable[[VersionKey, VersionKey], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
    ">": operator.gt,
}
_CLAUSE = pattern(r"(>=|<=|==|<|>)\s*(\d+(?:\.\d+)*)$")
_VERSION = pattern(r"\d+(?:\.\d+)*$")


@lru_cache(maxsize=4096)
def version_key(text: str) -> VersionKey:
    """Numbers of a dotted version, comparable; trailing zeros do not count.

    Raises:
        InvalidInputError: Not dotted numbers.
    """
    if not _VERSION.match(text):
        raise InvalidInputError(f"`{text}` is not a version", hint="write numbers with dots")
    return _trimmed(_numbers(text))


@dataclass(frozen=True, slots=True)
class VersionRange:
    """A conjunction of bounds; empty means any version.

    Attributes:
        clauses: Pairs of operator and version.
    """

    clauses: tuple[tuple[str, VersionKey], ...]

    def contains(self, version: str) -> bool:
        """Whether ``version`` lies inside; ``==`` compares as many places as it names."""
        key = version_key(version)
        return all(_holds(key, symbol, bound) for symbol, bound in self.clauses)


@lru_cache(maxsize=4096)
def parse_range(text: str) -> VersionRange:
    """A range such as ``>=A.B,<C``; blank is any.

    Raises:
        InvalidInputError: A clause is no operator with a version.
    """
    clauses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _CLAUSE.match(part)
        if match is None:
            raise InvalidInputError(
                f"`{part}` is not a version bound", hint="write an operator and a version"
            )
        clauses.append((match.group(1), _numbers(match.group(2))))
    return VersionRange(tuple(clauses))


def minor_of(version: str) -> str:
    """The first two places of a version."""
    return ".".join(version.split(".")[:2])


def same_line(version: str, wanted: str) -> bool:
    """Whether ``version`` is ``wanted`` or a patch of it, as a user means a short version."""
    return version == wanted or version.startswith(wanted + ".")


def _holds(key: VersionKey, symbol: str, bound: VersionKey) -> bool:
    if symbol == "==":
        padded = key + (0,) * len(bound)
        return padded[: len(bound)] == bound
    return _OPERATORS[symbol](key, _trimmed(bound))


def _numbers(text: str) -> VersionKey:
    return tuple(int(part) for part in text.split("."))


def _trimmed(numbers: VersionKey) -> VersionKey:
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers
