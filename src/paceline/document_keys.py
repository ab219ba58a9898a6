"""Keys of what a user wrote: unknown ones, told with those that are known, and repeated ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paceline.errors import InvalidInputError, UnknownNameError

#: What pydantic calls a key that a model, or a dataclass, does not have.
_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


def unknown_key(
    errors: Iterable[Mapping[str, Any]], schema: Mapping[str, Any], what: str
) -> InvalidInputError | None:
    """The first unknown key, with near names; None where every key is known.

    Args:
        errors: As ``ValidationError.errors()`` lists them.
        schema: JSON schema of the whole document.
        what: The document, as printed.
    """
    for error in errors:
        if error["type"] in _UNKNOWN:
            *above, key = error["loc"]
            place = ".".join(map(str, above))
            kind = f"key of `{place}` in {what}" if place else f"key in {what}"
            told = UnknownNameError.from_name(kind, str(key), keys_at(schema, above))
            return InvalidInputError(str(told), hint=told.hint)
    return None


def refuse_twice(option: str, keys: Iterable[str]) -> None:
    """Refuse a key that is given twice, of which only one could count.

    Raises:
        InvalidInputError: There is one.

    >>> refuse_twice("--pin", ["batch", "offer"])
    """
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise InvalidInputError(
                f"`{key}` is given twice with {option}", hint=f"give `{key}` once"
            )
        seen.add(key)


def keys_at(schema: Mapping[str, Any], place: Iterable[str | int]) -> tuple[str, ...]:
    """Keys that a JSON schema has at a place of the document; none where it has no object.

    >>> row = {"properties": {"name": {}}}
    >>> keys_at({"properties": {"rows": {"items": {"$ref": "#/$defs/R"}}}, "$defs": {"R": row}},
    ...         ("rows", 0))
    ('name',)
    """
    found = [schema]
    for part in place:
        found = [below for one in found for below in _below(_spelled_out(one, schema), part)]
    objects = (_spelled_out(one, schema) for one in found)
    return tuple(dict.fromkeys(key for one in objects for key in one.get("properties", ())))


def _below(one: Mapping[str, Any], part: str | int) -> list[Mapping[str, Any]]:
    """What may stand at a key or an index."""
    ways = [*one.get("anyOf", ()), *one.get("oneOf", ())]
    below = [found for way in ways for found in _below(way, part)]
    if isinstance(part, int):
        prefix = one.get("prefixItems", ())
        below += [prefix[part]] if part < len(prefix) else [one.get("items", {})]
    else:
        more = one.get("additionalProperties")
        below += [one.get("properties", {}).get(part, more if isinstance(more, dict) else {})]
    return below


def _spelled_out(one: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A reference followed, and of an optional object the object."""
    if "$ref" in one:
        target: Mapping[str, Any] = schema
        for part in one["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return target
    ways = [way for way in one.get("anyOf", ()) if "$ref" in way]
    return _spelled_out(ways[0], schema) if len(ways) == 1 else one
