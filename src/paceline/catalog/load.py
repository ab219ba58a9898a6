"""The catalogue: what is shipped, the prices a user refreshed, and what they add from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.catalog.entities import Catalog
from paceline.catalog.quotes import with_quotes
from paceline.catalog.refreshed import current_name, current_quotes
from paceline.catalog.tables import shipped_catalog


def load_catalog(extra_files: Sequence[Path] = ()) -> Catalog:
    """Everything known to exist.

    Args:
        extra_files: The user's own YAML or TOML files with ``devices``, ``offers`` and
            ``machines``. A row of theirs replaces a shipped row of the same name.

    Raises:
        InvalidInputError: A file that cannot be read or used.
    """
    catalog = shipped_catalog()
    if current_name() is not None:
        catalog = with_quotes(catalog, current_quotes())
    if extra_files:
        from paceline.catalog.user_files import with_user_file  # pydantic: only when needed

        for path in extra_files:
            catalog = with_user_file(catalog, path)
    return catalog
