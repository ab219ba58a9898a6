"""The catalogue: what is shipped, the prices a user refreshed, and what they add from files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from paceline.catalog.entities import Catalog
from paceline.catalog.quotes import with_quotes
from paceline.catalog.refreshed import current_name, offers_folder, read_table
from paceline.catalog.tables import shipped_catalog
from paceline.plugins import plugin_file, plugins
from paceline.reading import stamp_of


def load_catalog(extra_files: Sequence[Path] = ()) -> Catalog:
    """Everything known to exist.

    Args:
        extra_files: The user's own YAML or TOML files with ``devices``, ``offers`` and
            ``machines``, or names of plug-ins that hold one. A row of theirs replaces a shipped row
            of the same name.

    Raises:
        InvalidInputError: A file that cannot be read or used.
    """
    catalog = shipped_catalog()
    if (name := current_name()) is not None:
        table = offers_folder() / name
        catalog = _refreshed(catalog, table, stamp_of(table))
    for path in map(_facts_file, extra_files):
        catalog = _with_file(catalog, path, stamp_of(path))
    return catalog


@lru_cache(maxsize=2)
def _refreshed(catalog: Catalog, table: Path, _stamp: tuple[int, int]) -> Catalog:
    return with_quotes(catalog, read_table(table))


@lru_cache(maxsize=8)
def _with_file(catalog: Catalog, path: Path, _stamp: tuple[int, int]) -> Catalog:
    """One object as long as the file stays what it is: searches know their costs by it."""
    from paceline.catalog.user_files import with_user_file  # pydantic: only when needed

    return with_user_file(catalog, path)


def _facts_file(named: Path) -> Path:
    """The file itself, or that of the plug-in of this name."""
    if named.exists():
        return named
    found = (point for point in plugins("facts") if point.name == str(named))
    point = next(found, None)
    return named if point is None else plugin_file(point, "facts.yaml", "facts.toml")
