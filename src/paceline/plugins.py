"""What other packages add, found by entry point: engines, facts, front ends, launch targets.

An entry point of the group ``paceline.engines``, ``paceline.facts`` or ``paceline.front_ends``
names a package whose folder holds data, and nothing of it is imported; one of
``paceline.launch_targets`` names a `LaunchTarget`. Plug-ins are looked up only where a name is none
of ours, since reading what is installed takes longer than a prediction.
``docs/how-to/write-a-plug-in.md`` has an example of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from paceline.errors import InvalidInputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = Literal["engines", "facts", "front_ends", "launch_targets"]


@cache
def plugins(kind: Kind) -> tuple[EntryPoint, ...]:
    """The entry points of a kind, by name."""
    from importlib.metadata import entry_points  # reads all that is installed

    return tuple(sorted(entry_points(group=f"paceline.{kind}"), key=lambda point: point.name))


def plugin_file(point: EntryPoint, *names: str) -> Path:
    """The first of some files that is in the folder of a plug-in's package.

    Raises:
        InvalidInputError: There is none, or no such package.
    """
    try:
        spec = util.find_spec(point.value)
    except (ImportError, ValueError):
        spec = None
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    for folder in folders:
        for name in names:
            if (path := Path(folder) / name).is_file():
                return path
    raise InvalidInputError(
        f"the plug-in `{point.name}` has no {' or '.join(names)} in its package `{point.value}`",
        hint="correct or uninstall it; docs/how-to/write-a-plug-in.md shows what it holds",
    )


def plugin_files(kind: Kind, name: str) -> Iterator[Path]:
    """The file of that name of each plug-in of a kind.

    Raises:
        InvalidInputError: A plug-in without it.
    """
    return (plugin_file(point, name) for point in plugins(kind))


def load_plugin(point: EntryPoint) -> object:
    """The object that a plug-in names; its module is imported.

    Raises:
        InvalidInputError: It cannot be.
    """
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"the plug-in `{point.name}` cannot be loaded: {error}",
            hint=f"correct or uninstall the package of `{point.value}`",
        ) from None
