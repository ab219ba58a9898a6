from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from paceline.app.web.turns import Turns
from paceline.errors import InvalidInputError

PATIENCE_S = 20.0


def test_one_question_of_many_is_looked_for_once() -> None:
    turns, calls, go = Turns(8), [], threading.Event()

    def find() -> str:
        calls.append(1)
        go.wait(PATIENCE_S)
        return "found"

    with ThreadPoolExecutor(6) as users:
        asked = [users.submit(turns.answer, "q", find) for _ in range(6)]
        go.set()
        assert [one.result(PATIENCE_S) for one in asked] == ["found"] * 6
    assert turns.answer("q", find) == "found"
    assert len(calls) == 1


def test_the_shortest_work_that_waits_is_done_first() -> None:
    turns, order, go = Turns(16), [], threading.Event()
    busy = [threading.Event(), threading.Event()]

    def hold(number: int) -> None:
        busy[number].set()
        go.wait(PATIENCE_S)

    with ThreadPoolExecutor(6) as users:
        asked = [users.submit(turns.answer, f"hold {i}", lambda i=i: hold(i)) for i in (0, 1)]
        assert all(one.wait(PATIENCE_S) for one in busy)
        for name, effort in (("long", 2), ("middle", 1), ("short", 0)):
            find = lambda name=name: order.append(name)  # noqa: E731
            asked.append(users.submit(turns.answer, name, find, effort=effort))
        while turns._waiting.qsize() < 3:
            threading.Event().wait(0.001)
        go.set()
        for one in asked:
            one.result(PATIENCE_S)
    # Two workers take from one queue: the order of the last two is theirs.
    assert order[0] == "short"


def test_refusals_are_kept_and_mistakes_of_ours_are_not() -> None:
    turns, calls = Turns(8), []

    def fail(error: Exception) -> None:
        calls.append(type(error).__name__)
        raise error

    for _ in range(2):
        with pytest.raises(InvalidInputError):
            turns.answer("a", lambda: fail(InvalidInputError("no", hint="yes")))
        with pytest.raises(ZeroDivisionError):
            turns.answer("b", lambda: fail(ZeroDivisionError()))
    assert sorted(calls) == ["InvalidInputError", "ZeroDivisionError", "ZeroDivisionError"]


def test_parts_of_an_answer_wait_for_no_other_turn() -> None:
    turns = Turns(8)

    def whole(number: int) -> object:
        return turns.answer("part", lambda: "p") or number

    with ThreadPoolExecutor(4) as users:
        asked = [users.submit(turns.answer, i, lambda i=i: whole(i)) for i in range(4)]
        assert {one.result(PATIENCE_S) for one in asked} == {"p"}


def test_the_oldest_answers_go() -> None:
    turns, calls = Turns(2), []
    for key in ("a", "b", "c", "a"):
        turns.answer(key, lambda key=key: calls.append(key) or key)
    assert calls == ["a", "b", "c", "a"]
