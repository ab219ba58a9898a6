"""What stands inside the documents that targets write."""

from __future__ import annotations

from typing import Any


def values_of(value: Any, key: str) -> list[Any]:
    """Every value under ``key``, however deep."""
    if isinstance(value, list):
        return [one for item in value for one in values_of(item, key)]
    if not isinstance(value, dict):
        return []
    mine = [value[key]] if key in value else []
    return mine + [one for item in value.values() for one in values_of(item, key)]


def variable(environment: list[dict[str, str]], name: str) -> str:
    return next(one["value"] for one in environment if one["name"] == name)
