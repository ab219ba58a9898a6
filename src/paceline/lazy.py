"""Exports of a package that are imported when first used (PEP 562)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy_exports(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """A module-level ``__getattr__`` that finds each name in its own module.

    A name must differ from all module names of the package: once imported, a module is an
    attribute of its package and hides such a name.

    Args:
        package: The package's ``__name__``.
        homes: Names by the module that defines them.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> object:
        """The export of that name, imported from its module."""
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)

    return find
