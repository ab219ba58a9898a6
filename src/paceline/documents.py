"""YAML documents of untrusted origin: read without code, aliases, depth or size that could hurt."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, TypeVar

from paceline.document_keys import unknown_key
from paceline.errors import InvalidInputError

T = TypeVar("T")

MAX_DOCUMENT_DEPTH = 32


def parse_mapping(text: str, *, what: str, hint: str) -> dict[str, Any]:
    """One YAML document whose values have names; see `parse_yaml`.

    Raises:
        InvalidInputError: Not one such document.
    """
    value = parse_yaml(text, what=what)
    if not isinstance(value, dict):
        raise InvalidInputError(f"the {what} is not a mapping", hint=hint)
    return value


def parse_yaml(text: str, *, what: str) -> Any:
    """Plain values (mappings, lists, text, numbers, flags, null) of one YAML document.

    Aliases are refused since a few hundred bytes of them can stand for gigabytes; so are depth
    beyond `MAX_DOCUMENT_DEPTH`, tags that build objects, and a key given twice.

    Raises:
        InvalidInputError: Not one such document.
    """
    import yaml

    try:
        _refuse_dangerous_events(text)
        loader = _strict_loader()
        # A subclass of PyYAML's safe loader: it builds plain values only.
        return json.loads(json.dumps(yaml.load(text, Loader=loader), default=_plain))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise InvalidInputError(
            f"the {what} is not readable YAML: {_first_line(error)}",
            hint="only plain mappings, lists, text and numbers are read; no aliases, no tags",
        ) from None


def validate(kind: type[T], value: Any, *, what: str) -> T:
    """The value as one of our dataclasses, every key known and every type right.

    Raises:
        InvalidInputError: With the first place that is wrong.
    """
    from pydantic import ValidationError

    asked: Any = kind
    try:
        text = json.dumps([value], default=_plain)
        found: T = _adapter(asked).validate_json(text, strict=True)[0]
        return found
    except ValidationError as error:
        errors = [{**one, "loc": one["loc"][1:]} for one in error.errors()]
        if unknown := unknown_key(errors, schema_of(asked), f"the {what}"):
            raise unknown from None
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:]) or "top level"
        more = error.error_count() - 1
        raise InvalidInputError(
            f"the {what} is wrong at `{place}`: {first['msg'].lower()}",
            hint=(f"{more} more places are wrong; " if more else "")
            + "the JSON schema is in docs/schema",
        ) from None


@cache
def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON schema of one of our dataclasses; made once, so nobody writes into it."""
    whole = _adapter(kind).json_schema()
    definitions = whole["$defs"]
    return {**definitions.pop(kind.__name__), "$defs": definitions}


@cache
def _adapter(kind: Any) -> Any:
    """A validator that refuses unknown keys, NaN and infinity.

    The tuple is there since pydantic takes a configuration for it, and hands it down, but takes
    none for a dataclass itself.
    """
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    return TypeAdapter(tuple[kind], config=config)


def _refuse_dangerous_events(text: str) -> None:
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=_fast_loader()):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it uses an alias")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DOCUMENT_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DOCUMENT_DEPTH} levels")


def _fast_loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _strict_loader() -> Any:
    """A safe loader that refuses a key given twice."""

    class StrictLoader(_fast_loader()):  # type: ignore[misc]
        """Loads plain values alone, each key once."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            """A mapping, refused where a key stands in it twice."""
            keys = [key.value for key, _ in node.value]
            twice = next((k for k in keys if not isinstance(k, list) and keys.count(k) > 1), None)
            if twice is not None:
                raise ValueError(f"the key `{twice}` is given twice")
            mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            return mapping

    return StrictLoader


def _plain(value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise TypeError(f"it holds a {type(value).__name__}")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else "empty"
