"""Laws of the planner over random offers, prices and goals.

Of plans that their doubt does not tell apart the simpler is chosen, so a law that compares two
choices is one of what is told apart at the stated chance.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.tolerance import ASKED_TOGETHER, MATTERS_USD, is_told_less

from paceline.catalog.freshness import unranked_reason
from paceline.catalog.load import load_catalog
from paceline.errors import NoOfferError
from paceline.model.reading.load import load_workload
from paceline.planning.forecast.question import SearchOptions
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.planner import make_plan

TODAY = date(2026, 11, 20)
OPTIONS = SearchOptions(num_largest_batches=2)
PRICES = st.floats(min_value=0.05, max_value=200.0)
#: Each example makes two plans.
EXAMPLES = settings(max_examples=settings.default.max_examples // 12)


@cache
def pool():
    """Offers of single machines, one per device and number, whose price a test may set."""
    offers = {}
    for offer in load_catalog().offers:
        if unranked_reason(offer, TODAY) is None:
            offers.setdefault((offer.device_name, offer.num_devices), offer)
    return tuple(offers.values())


@st.composite
def catalogues(draw):
    chosen = draw(st.lists(st.sampled_from(pool()), min_size=2, max_size=8, unique_by=id))
    return tuple(replace(offer, usd_per_hour=draw(PRICES)) for offer in chosen)


@cache
def workload():
    return load_workload("resnet50")


def best(offers, **goal):
    facts = replace(load_catalog(), offers=tuple(offers))
    try:
        plan = make_plan(
            workload(), Goal(**{"max_devices": 8, **goal}), Work(), facts, today=TODAY,
            options=OPTIONS,
        )  # fmt: skip
    except NoOfferError:
        return None
    return plan.choices[0]


@pytest.mark.kernels
@EXAMPLES
@given(catalogues(), st.data())
def test_the_order_of_offers_does_not_matter(offers, data):
    shuffled = data.draw(st.permutations(offers))
    first, second = best(offers), best(shuffled)
    assert (first is None) == (second is None)
    assume(first is not None)
    for end in ("low", "mid", "high"):
        one, other = getattr(first.cost_usd, end), getattr(second.cost_usd, end)
        assert one == pytest.approx(other, rel=ASKED_TOGETHER)


@EXAMPLES
@given(catalogues(), st.floats(min_value=1.5, max_value=10.0))
def test_prices_in_another_currency_leave_the_answer_alone(offers, factor):
    dearer = [replace(o, usd_per_hour=factor * o.usd_per_hour) for o in offers]
    first, second = best(offers), best(dearer)
    assert (first is None) == (second is None)
    assume(first is not None)
    assert abs(second.cost_usd.mid / first.cost_usd.mid / factor - 1.0) < 1e-9


@EXAMPLES
@given(catalogues(), st.floats(min_value=3600.0, max_value=1e7), st.floats(1.0, 20.0))
def test_more_time_never_costs_more(offers, deadline_s, factor):
    short, long = best(offers, deadline_s=deadline_s), best(offers, deadline_s=factor * deadline_s)
    assume(short is not None)
    assert not is_told_less(short.cost_usd, long.cost_usd, matters=MATTERS_USD)


@EXAMPLES
@given(catalogues(), st.floats(min_value=0.5, max_value=0.95))
def test_more_confidence_never_costs_less(offers, confidence):
    bold = best(offers, deadline_s=2e5, confidence=0.5)
    careful = best(offers, deadline_s=2e5, confidence=confidence)
    assume(careful is not None)
    assert not is_told_less(careful.cost_usd, bold.cost_usd, matters=MATTERS_USD)


@EXAMPLES
@given(catalogues(), st.floats(min_value=1.0, max_value=5000.0))
def test_what_keeps_a_budget_keeps_it_at_the_stated_chance(offers, budget_usd):
    choice = best(offers, budget_usd=budget_usd)
    assume(choice is not None)
    assert choice.cost_usd.mid <= budget_usd
    assert choice.chance_cost >= 0.8
