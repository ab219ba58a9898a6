"""Compare the answers of two runs, value by value: numbers by their relative difference."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calls.answers import Answer

_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

Scalar = float | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value that differs.

    Attributes:
        path: Keys and places down to it.
        before: Absent where the key is new.
        after: Absent where the key is missing.
        rel: Relative difference of two numbers; infinite where they cannot be compared.
    """

    path: str
    before: Scalar | str
    after: Scalar | str
    rel: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One call that answers otherwise."""

    call: str
    values: tuple[Value, ...]
    missing: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def worst(self) -> float:
        """Largest relative difference of two numbers; 0 where only words or keys differ."""
        return max((v.rel for v in self.values if math.isfinite(v.rel)), default=0.0)


def read_renamed(path: Path | None) -> dict[str, str]:
    """Keys and words of the first run by their new spelling: columns ``before`` and ``after``."""
    if path is None:
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {row["before"]: row["after"] for row in csv.DictReader(file)}


def differences(
    before: Mapping[str, Answer],
    after: Mapping[str, Answer],
    renamed: Mapping[str, str],
    *,
    rel_tol: float,
) -> list[Difference]:
    """Calls of both runs that answer otherwise, the largest difference of numbers first."""
    found = [
        _difference(_flat(before[call], renamed), _flat(after[call], {}), call, rel_tol)
        for call in before
        if call in after
    ]
    differing = [one for one in found if one.values or one.missing or one.new]
    return sorted(differing, key=lambda one: -one.worst)


def summary(found: list[Difference], *, num_compared: int, most: int) -> str:
    """A paragraph per call, and how many there are.

    Args:
        found: What differs.
        num_compared: Calls that both runs hold.
        most: Values, and keys, shown per call.
    """
    lines = [line for one in found for line in _described(one, most)]
    return "\n".join([*lines, f"{len(found)} of {num_compared} calls differ"])


def _described(one: Difference, most: int) -> Iterator[str]:
    yield f"{one.call}   [largest {one.worst:.1e}, {len(one.values)} values]"
    shown = sorted(one.values, key=lambda v: -v.rel if math.isfinite(v.rel) else 0.0)
    for value in shown[:most]:
        rel = f"{value.rel:+.1e}" if math.isfinite(value.rel) else ""
        yield f"   {value.path}: {value.before} -> {value.after} {rel}".rstrip()
    for name, keys in (("missing", one.missing), ("new", one.new)):
        if keys:
            more = f" and {len(keys) - most} more" if len(keys) > most else ""
            yield f"   {name}: {', '.join(keys[:most])}{more}"


def _difference(
    before: Mapping[str, Scalar], after: Mapping[str, Scalar], call: str, rel_tol: float
) -> Difference:
    both = [path for path in before if path in after]
    values = (_compared(path, before[path], after[path], rel_tol) for path in both)
    return Difference(
        call=call,
        values=tuple(value for value in values if value is not None),
        missing=_keys(before, after),
        new=_keys(after, before),
    )


def _keys(these: Mapping[str, Scalar], others: Mapping[str, Scalar]) -> tuple[str, ...]:
    """Paths that the others lack, places in lists left out."""
    paths = (re.sub(r"\[\d+\]", "[]", path) for path in these if path not in others)
    return tuple(dict.fromkeys(paths))


def _compared(path: str, before: Scalar, after: Scalar, rel_tol: float) -> Value | None:
    if before == after and type(before) is type(after):
        return None
    rel = _relative(before, after)
    if rel <= rel_tol:
        return None
    return Value(path=path, before=_short(before), after=_short(after), rel=rel)


def _relative(before: Scalar, after: Scalar) -> float:
    """Relative difference; of texts, the largest of their numbers if all else is the same."""
    if isinstance(before, bool) or isinstance(after, bool) or before is None or after is None:
        return math.inf
    if isinstance(before, str) or isinstance(after, str):
        return _relative_texts(str(before), str(after))
    if math.isnan(before) and math.isnan(after):
        return 0.0
    scale = max(abs(before), abs(after))
    difference = abs(before - after) / scale if scale else 0.0
    return math.inf if math.isnan(difference) else difference


def _relative_texts(before: str, after: str) -> float:
    if _NUMBER.sub("#", before) != _NUMBER.sub("#", after):
        return math.inf
    numbers = zip(_NUMBER.findall(before), _NUMBER.findall(after), strict=True)
    return max((_relative(_number(a), _number(b)) for a, b in numbers), default=0.0)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _short(value: Scalar) -> Scalar:
    return f"`{value[:90]}`" if isinstance(value, str) else value


def _flat(answer: Answer, renamed: Mapping[str, str]) -> dict[str, Scalar]:
    """Each value by its path."""
    parts = {"status": answer.status, "message": answer.message, "out": answer.output}
    return dict(_leaves({**parts, **answer.files}, "", renamed))


def _leaves(value: Any, path: str, renamed: Mapping[str, str]) -> Iterator[tuple[str, Scalar]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            name = renamed.get(str(key), str(key))
            yield from _leaves(inner, f"{path}.{name}" if path else name, renamed)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{place}]", renamed)
    else:
        yield path, renamed.get(value, value) if isinstance(value, str) else value
