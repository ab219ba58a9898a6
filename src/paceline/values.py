"""Frozen values: dataclasses whose methods are made when they are first used.

``dataclasses.dataclass`` compiles up to six methods for each class while a module is imported,
which takes ten times as long as making the class. A command imports hundreds of values, makes
instances of half of them, one alone of most of these, and compares or prints a few. So `dataclass`
here leaves the fields to ``dataclasses`` and makes each method at its first call, the one that
makes instances when there are many. A value behaves as the standard one does; ``fields``,
``replace``, ``asdict``, ``pickle`` and type checkers see no difference.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from typing import TYPE_CHECKING, Any

#: Instances that take as long to make without a compiled method as the method takes to compile.
_FEW = 16

#: What ``dataclasses`` looks for in annotations.
_OWN_WORDS = re.compile("ClassVar|InitVar|KW_ONLY")

_Method = Callable[..., Any]
_Make = Callable[[type], _Method]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        *, frozen: bool, slots: bool, kw_only: bool = False, eq: bool = True
    ) -> Callable[[type], type]:
        """As ``dataclasses.dataclass``, for values that are frozen and have slots."""
        if not (frozen and slots):
            raise TypeError("a value is frozen and has slots")

        def decorate(body: type) -> type:
            """The class with its fields, and methods made when first called."""
            fielded = dataclasses.dataclass(
                init=False, repr=False, eq=False, slots=True, kw_only=kw_only
            )
            return _with_methods(_without_words(fielded, body), eq=eq)

        return decorate


def _without_words(fielded: _Method, body: Any) -> Any:
    """The class with its fields; ``dataclasses`` would search each annotation for its own words."""
    words = vars(body).get("__annotations__", {})
    plain = {name: None for name, word in words.items() if not _OWN_WORDS.search(str(word))}
    body.__annotations__ = {**words, **plain}
    kind = fielded(body)
    kind.__annotations__ = words
    for name in plain:
        kind.__dataclass_fields__[name].type = words[name]
    return kind


def _with_methods(kind: Any, *, eq: bool) -> Any:
    kind.__setattr__, kind.__delattr__ = _refuse_setting, _refuse_deleting
    kind.__getstate__, kind.__setstate__ = _state, _set_state
    late: dict[str, _Make] = {"__repr__": _repr}
    if eq:
        late |= {"__eq__": _eq, "__hash__": _hash}
    own = vars(kind)
    for name, make in late.items():
        # A body with an `__eq__` of its own has `__hash__` set to None by Python.
        if own.get(name) is None:
            setattr(kind, name, _at_first_call(kind, name, make))
    if "__init__" not in own:
        kind.__init__ = _uncompiled_init(kind)
    return kind


def _at_first_call(kind: type, name: str, make: _Make) -> _Method:
    def method(self: Any, /, *args: Any, **keywords: Any) -> Any:
        """Make the method, put it in its place, and call it."""
        made = make(kind)
        made.__name__, made.__qualname__ = name, f"{kind.__qualname__}.{name}"
        setattr(kind, name, made)
        return made(self, *args, **keywords)

    return method


def _uncompiled_init(kind: Any) -> _Method:
    """Makes few instances; most of the classes that a command uses have no more."""
    turns, fielded = iter(range(_FEW)), list[Field[Any]]()

    def method(self: Any, /, *args: Any, **keywords: Any) -> None:
        """Set the fields one by one; after some instances compile what does it faster."""
        fielded.extend(() if fielded else fields(kind))
        values = None if next(turns, None) is None else _bound(fielded, args, keywords)
        if values is None:
            kind.__init__ = _at_first_call(kind, "__init__", _init)
            kind.__init__(self, *args, **keywords)
            return
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if hasattr(kind, "__post_init__"):
            self.__post_init__()

    return method


def _bound(
    fielded: Sequence[Field[Any]], args: tuple[Any, ...], given: dict[str, Any]
) -> dict[str, Any] | None:
    """The value of each field; None where arguments are wrong, which the made method says."""
    if args:
        by_place = [one.name for one in fielded if one.init and not one.kw_only]
        placed = dict(zip(by_place, args, strict=False))
        if len(placed) < len(args) or placed.keys() & given.keys():
            return None
        given = placed | given
    values, num_given = {}, 0
    for one in fielded:
        if one.init and one.name in given:
            values[one.name], num_given = given[one.name], num_given + 1
        elif one.default is not MISSING:
            values[one.name] = one.default
        elif one.default_factory is not MISSING:
            values[one.name] = one.default_factory()
        else:
            return None
    return values if num_given == len(given) else None


def _init(kind: type) -> _Method:
    taken = [one for one in fields(kind) if one.init]
    by_place = [one for one in taken if not one.kw_only]
    by_name = [one for one in taken if one.kw_only]
    words = ["self", *map(_parameter, by_place), *(["*"] if by_name else []),
             *map(_parameter, by_name)]  # fmt: skip
    lines = [_setting(one) for one in fields(kind)]
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    known: dict[str, Any] = {"MISSING": MISSING}
    for one in fields(kind):
        known |= {
            f"_set_{one.name}": getattr(kind, one.name).__set__,
            f"_default_{one.name}": one.default,
            f"_make_{one.name}": one.default_factory,
        }
    return _made(f"def method({', '.join(words)}):", lines, known)


def _parameter(one: Field[Any]) -> str:
    if one.default is not MISSING:
        return f"{one.name}=_default_{one.name}"
    return one.name if one.default_factory is MISSING else f"{one.name}=MISSING"


def _setting(one: Field[Any]) -> str:
    value = one.name if one.init else "MISSING"
    if one.default_factory is not MISSING:
        value = f"_make_{one.name}() if {value} is MISSING else {value}"
    return f"_set_{one.name}(self, {value})"


def _repr(kind: type) -> _Method:
    shown = ", ".join(f"{one.name}={{self.{one.name}!r}}" for one in fields(kind) if one.repr)
    line = f"return f'{{self.__class__.__qualname__}}({shown})'"
    return _made("def method(self):", [line], {})


def _eq(kind: type) -> _Method:
    names = [one.name for one in fields(kind) if one.compare]
    lines = [
        "if other.__class__ is not self.__class__:",
        "    return NotImplemented",
        f"return {_values('self', names)} == {_values('other', names)}",
    ]
    return _made("def method(self, other):", lines, {})


def _hash(kind: type) -> _Method:
    names = [o.name for o in fields(kind) if (o.compare if o.hash is None else o.hash)]
    return _made("def method(self):", [f"return hash({_values('self', names)})"], {})


def _values(owner: str, names: list[str]) -> str:
    return f"({''.join(f'{owner}.{name}, ' for name in names)})"


def _made(head: str, lines: list[str], known: Mapping[str, Any]) -> _Method:
    """A function of source text, as ``dataclasses`` makes its own: of the names of fields only."""
    names = dict(known)
    exec("\n    ".join((head, *(lines or ["pass"]))), names)
    method: _Method = names["method"]
    return method


def _refuse_setting(_self: Any, name: str, _value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
