"""How sure trials are: what chance does to blocks of the same thing, and what drift does not."""

from __future__ import annotations

import random
import statistics

import pytest

from paceline.watch.observer import doubt


def test_a_machine_that_gets_slower_at_an_even_pace_wins_and_costs_nothing():
    names = ["own", "threads 1", "bf16"] * 4 + ["own"]
    blocks = [(name, 0.1 * (1.0 + 0.02 * place)) for place, name in enumerate(names)]
    assert doubt.shares(blocks, "bf16") == pytest.approx([1.0] * 4)
    assert doubt.shares(blocks, "threads 1") == pytest.approx([1.0] * 4)


def test_a_loader_begun_late_wins_what_it_wins_beside_another_begun_as_late():
    blocks = [("own", 40.0), ("anew", 30.0), ("free samples", 20.0), ("own", 40.0)]
    assert doubt.shares(blocks, "free samples") == pytest.approx([0.75])
    assert doubt.shares(blocks, "anew") == pytest.approx([0.75])
    without = [one for one in blocks if one[0] != "anew"]
    assert doubt.shares(without, "free samples") == pytest.approx([0.5])


def test_larger_batches_stand_beside_the_same_few_batches():
    blocks = [("own", 40.0), ("replay", 30.0), ("batch x2", 15.0)]
    assert doubt.shares(blocks, "batch x2") == pytest.approx([0.5])


def _healthy(seed: int, deviation: float) -> list[tuple[str, float]]:
    chance = random.Random(seed)
    names = ["own", "replay"] * 2 + ["own", "threads 1", "replay", "batch x2"] * 3
    return [(name, 0.1 * chance.gauss(1.0, deviation)) for name in names]


@pytest.mark.parametrize("deviation", [0.01, 0.1])
def test_a_script_without_a_fault_is_told_one_by_chance_in_few_of_a_hundred(deviation: float):
    told = 0
    for seed in range(400):
        blocks = _healthy(seed, deviation)
        for name in ("threads 1", "batch x2"):
            _, middle, high = doubt.interval(doubt.shares(blocks, name), doubt.chance(blocks))
            told += high < 1.0 and middle < 1 / 1.03
    assert told / 800 < 0.02


def test_more_rounds_make_a_gain_surer():
    shares = [0.8, 0.82, 0.78]
    halves = [
        high - mid
        for low, mid, high in (
            doubt.interval(shares * times, (0.05, 2 + 2 * times)) for times in (1, 2, 4)
        )
    ]
    assert halves == sorted(halves, reverse=True)
    assert halves[0] > 2 * halves[2]


def test_chance_is_what_is_usual_until_blocks_say_more():
    assert doubt.chance([("own", 1.0), ("bf16", 0.5)]) == (pytest.approx(0.05), 2)
    deviation, degrees = doubt.chance(_healthy(1, 0.2))
    assert deviation == pytest.approx(0.2, rel=0.6)
    assert degrees == 2 + 3 + 3 + 2 + 2


@pytest.mark.parametrize(("degrees", "quantile"), [(4, 4.604), (8, 3.355), (30, 2.750)])
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float):
    assert doubt.student(degrees) == pytest.approx(quantile, rel=0.02)


def test_shares_do_not_depend_on_the_unit():
    blocks = _healthy(3, 0.05)
    longer = [(name, 60.0 * step_s) for name, step_s in blocks]
    assert doubt.shares(longer, "batch x2") == pytest.approx(doubt.shares(blocks, "batch x2"))
    assert statistics.median(doubt.shares(blocks, "threads 1")) == pytest.approx(1.0, abs=0.15)
