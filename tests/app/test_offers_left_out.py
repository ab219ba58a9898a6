"""Offers without a price or a day are told apart wherever they are listed or left out."""

from __future__ import annotations

from collections.abc import Callable

from refusals import Outcome

import paceline

AS_OF = ("--as-of", "2026-11-20")


def test_a_cloud_without_prices_says_so(run: Callable[..., Outcome]) -> None:
    outcome = run("offers", "--cloud", "alibaba", *AS_OF)
    outcome.assert_helpful()
    assert "none of 113 offers" in outcome.err
    assert "no price known" in outcome.err
    assert "--all" in outcome.err
    every = run("offers", "--cloud", "alibaba", "--all", *AS_OF)
    assert every.out.count("no price known") == 113


def test_what_a_list_leaves_out_is_counted_below_it(run: Callable[..., Outcome]) -> None:
    listed = run("offers", "t4", *AS_OF).out
    every = run("offers", "t4", "--all", *AS_OF).out
    assert "no price known" in listed.splitlines()[-1]
    assert "alibaba/" not in listed
    assert "alibaba/" in every
    assert "left out" not in every
    assert "left out" not in run("offers", "--cloud", "lambda", *AS_OF).out


def test_prices_without_a_day_are_not_called_old() -> None:
    plan = paceline.plan("mnist-cnn", cloud="jarvislabs", as_of=AS_OF[1])
    assert {choice.place.priced_on for choice in plan.choices} == {None}
    assert "prices without a day are ranked" in plan.assumptions[0]
    assert "old prices" not in plan.assumptions[0]
