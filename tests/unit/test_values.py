"""Values behave as standard dataclasses do; each law is asked of both."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any

import pytest

from paceline import values

BOTH = pytest.mark.parametrize("make", [dataclasses.dataclass, values.dataclass])
Make = Callable[..., Any]


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A value that can be pickled."""

    size: int
    names: tuple[str, ...] = ()


def link(make: Make, **how: bool) -> Any:
    class Link:
        """Two fields that are needed, and three that are not."""

        a: int
        b: str
        c: list[int] = field(default_factory=list)
        d: float = field(default=0.5, repr=False)
        e: int = field(default=0, compare=False)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("a is negative")

    return make(frozen=True, slots=True, **how)(Link)


@BOTH
def test_values_are_equal_by_their_fields(make: Make) -> None:
    kind = link(make)
    assert kind(1, "x") == kind(1, "x", e=7)
    assert kind(1, "x") != kind(2, "x")
    assert kind(1, "x") != link(make)(1, "x")
    assert hash(kind(1, "x", c=())) == hash(kind(1, "x", c=(), e=7)) == hash((1, "x", (), 0.5))


@BOTH
def test_values_without_equality_are_themselves(make: Make) -> None:
    kind = link(make, eq=False)
    one = kind(1, "x")
    assert one != kind(1, "x")
    assert {one: 3}[one] == 3


@BOTH
def test_values_print_their_fields(make: Make) -> None:
    shown = repr(link(make)(1, "x"))
    assert shown == "link.<locals>.Link(a=1, b='x', c=[], e=0)"


@BOTH
def test_nothing_is_set_or_deleted_later(make: Make) -> None:
    one = link(make)(1, "x")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        one.a = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
        del one.a
    assert not hasattr(one, "__dict__")


@BOTH
def test_arguments_are_named_as_the_fields(make: Make) -> None:
    kind = link(make, kw_only=True)
    assert kind(a=1, b="x").b == "x"
    with pytest.raises(TypeError, match="positional"):
        kind(1, "x")
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required keyword-only argument"):
        kind(a=1)
    with pytest.raises(TypeError, match=r"__init__\(\) got an unexpected keyword argument 'z'"):
        kind(a=1, b="x", z=3)


@BOTH
def test_defaults_are_made_for_each_value(make: Make) -> None:
    kind = link(make)
    one, two = kind(1, "x"), kind(1, "x")
    one.c.append(3)
    assert (one.c, two.c, kind(1, "x", c=[4]).c) == ([3], [], [4])


@BOTH
def test_a_value_is_checked_when_it_is_made(make: Make) -> None:
    with pytest.raises(ValueError, match="negative"):
        link(make)(-1, "x")


@BOTH
def test_the_standard_functions_read_values(make: Make) -> None:
    one = link(make)(1, "x")
    assert replace(one, a=2) == type(one)(2, "x")
    assert asdict(one) == {"a": 1, "b": "x", "c": [], "d": 0.5, "e": 0}
    assert [f.name for f in fields(one)] == ["a", "b", "c", "d", "e"]
    assert copy.deepcopy(one) == one
    assert type(one).__match_args__ == ("a", "b", "c", "d", "e")


@BOTH
def test_a_value_may_add_fields_and_methods_to_another(make: Make) -> None:
    base = link(make, kw_only=True)

    class More(base):
        """One field more, and a text of its own."""

        z: int

        def __str__(self) -> str:
            return f"more {self.z}"

    kind = make(frozen=True, slots=True, kw_only=True)(More)
    one = kind(a=1, b="x", z=3)
    assert (one.a, one.z, str(one)) == (1, 3, "more 3")
    assert one == kind(a=1, b="x", z=3) != base(a=1, b="x")


@BOTH
def test_a_method_of_the_body_stays(make: Make) -> None:
    class Named:
        """Equal where the names are, whatever their case."""

        name: str

        def __eq__(self, other: object) -> bool:
            return self.name.lower() == getattr(other, "name", "").lower()

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return self.name

    kind = make(frozen=True, slots=True)(Named)
    assert (kind("A") == kind("a"), hash(kind("A")), repr(kind("A"))) == (True, 7, "A")


def test_values_travel_between_processes() -> None:
    one = Kept(size=3, names=("a",))
    assert pickle.loads(pickle.dumps(one)) == one


def test_what_can_change_is_no_value() -> None:
    with pytest.raises(TypeError, match="frozen and has slots"):
        values.dataclass(frozen=False, slots=True)
