"""Releases of libraries that run, written as ``torch==1.10``."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import InvalidInputError
from paceline.patterns import pattern

_LIBRARY = pattern(r"([A-Za-z][\w-]*)==(\d+(?:\.\d+)*)")


def runs_before(libraries: Sequence[str], library: str, release: str) -> bool:
    """Whether a library is stated to be older than a release; what is not stated is the newest.

    Raises:
        InvalidInputError: A library that is not written as ``name==release``.

    >>> runs_before(["torch==2.9.1"], "torch", "2.11"), runs_before([], "torch", "2.11")
    (True, False)
    """
    running = dict(map(_split, libraries))
    return library in running and running[library] < _numbers(release)


def _split(library: str) -> tuple[str, tuple[int, ...]]:
    if (found := _LIBRARY.fullmatch(library)) is None:
        raise InvalidInputError(
            f"`{library}` is no release of a library", hint="write it like `torch==1.10`"
        )
    return found[1], _numbers(found[2])


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
