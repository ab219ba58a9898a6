"""`tools/calls`: the list asks for every option, and what differs between two runs is found."""

from __future__ import annotations

import contextlib
import io
import math
import re

import pytest
from calls.answers import Answer
from calls.compare import differences
from calls.listed import read_calls

from paceline.app.main import VERBS, main

#: They measure this machine, run a model on it, or need a package that draws.
MEASURING = {
    "doctor", "measure", "compare", "stacks", "export", "ceilings", "report", "run", "web", "train",
    "infer", "diagnose",
}  # fmt: skip
#: They write elsewhere what is compared already, or need a framework.
ELSEWHERE = {"--help", "--json", "--output", "--folder", "--force", "--python"}
CALLS = read_calls()


def test_no_call_stands_twice() -> None:
    assert len(set(CALLS)) == len(CALLS) >= 400


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - MEASURING - {"stack"}))
def test_every_option_is_asked_for(verb: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([verb, "--help"]) == 0
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", out.getvalue(), re.MULTILINE))
    typed = {word for call in CALLS if call.split()[0] == verb for word in call.split()}
    assert options - ELSEWHERE <= typed


def answer(output: object, status: int = 0) -> dict[str, Answer]:
    one = Answer(call="plan", status=status, output=output, message=[], files={}, cpu_s=0.0)
    return {"plan": one}


def compared(before: object, after: object, **renamed: str) -> list:
    return differences(answer(before), answer(after), renamed, rel_tol=1e-6)


def test_numbers_are_compared_by_their_relative_difference_wherever_they_stand() -> None:
    assert not compared({"a": [1.0, {"b": 2.0}]}, {"a": [1.0 + 5e-7, {"b": 2.0}]})
    (found,) = compared({"a": [1.0, {"b": 2.0}]}, {"a": [1.0, {"b": 2.2}]})
    assert [value.path for value in found.values] == ["out.a[1].b"]
    assert found.worst == pytest.approx(0.2 / 2.2)
    (found,) = compared(["needs 1,024 MB"], ["needs 1,025 MB"])
    assert found.worst == pytest.approx(1 / 1025)


@pytest.mark.parametrize(("before", "after"), [(1.0, math.nan), (1, None), (True, 1), ("a", "b")])
def test_what_is_no_number_has_to_be_the_same(before: object, after: object) -> None:
    assert compared([before], [after])
    assert not compared([before], [before])


def test_renamed_keys_and_words_are_the_same() -> None:
    assert compared({"told": "by told"}, {"predicted": "by told"})
    assert not compared({"told": "told"}, {"predicted": "predicted"}, told="predicted")


def test_missing_and_new_keys_and_another_status_are_told() -> None:
    (found,) = compared({"a": [{"b": 1}, {"b": 2}]}, {"c": 3})
    assert (found.missing, found.new) == (("out.a[].b",), ("out.c",))
    assert differences(answer({}), answer({}, status=2), {}, rel_tol=1e-6)
