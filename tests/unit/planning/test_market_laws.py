"""Laws of the choice over random markets and goals."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from paceline.catalog.entities import Catalog, Offer
from paceline.catalog.freshness import unranked_reason
from paceline.catalog.load import load_catalog
from paceline.errors import PacelineError
from paceline.model.graph.workload import Workload
from paceline.model.reading.load import load_workload
from paceline.planfile import PlanFile
from paceline.planning.forecast.question import SearchOptions
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.planner import make_plan
from paceline.planning.search.evaluation import hour_value_usd

TODAY = date(2026, 11, 20)
CATALOG = load_catalog()
RANKABLE = tuple(
    o for o in CATALOG.offers if unranked_reason(o, TODAY) is None and o.num_devices >= 1
)
#: Each example makes two plans.
_FEW = settings.default.max_examples // 10
OPTIONS = SearchOptions(max_batch=256, num_largest_batches=2, max_choices=3)

markets = st.lists(st.sampled_from(RANKABLE), min_size=2, max_size=8, unique_by=lambda o: o.name)
goals = st.builds(
    Goal,
    deadline_s=st.one_of(st.none(), st.floats(3600, 1e6)),
    budget_usd=st.one_of(st.none(), st.floats(5, 500)),
    max_devices=st.sampled_from([1, 4, 8]),
)
factors = st.floats(0.3, 0.95)


@cache
def workload(name: str) -> Workload:
    return load_workload(name)


def plan(offers: list[Offer], goal: Goal, model: str) -> PlanFile | None:
    market = Catalog(
        version=CATALOG.version, devices=CATALOG.devices, links=CATALOG.links, offers=tuple(offers)
    )
    try:
        return make_plan(workload(model), goal, Work(), market, today=TODAY, options=OPTIONS)
    except PacelineError:
        return None


@settings(max_examples=_FEW, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    offers=markets,
    goal=goals,
    factor=factors,
    index=st.integers(0, 7),
    model=st.sampled_from(["resnet50", "bert-base"]),
)
def test_adding_a_cheaper_equal_offer_raises_the_cost_by_nothing_that_matters(
    offers: list[Offer], goal: Goal, factor: float, index: int, model: str
) -> None:
    before = plan(offers, replace(goal, objective="cost"), model)
    assume(before is not None)
    twin = offers[index % len(offers)]
    cheaper = replace(
        twin,
        name=f"{twin.cloud}/twin",
        instance_type="twin",
        usd_per_hour=factor * twin.usd_per_hour,
    )
    after = plan([*offers, cheaper], replace(goal, objective="cost"), model)
    assert after is not None
    one, other = before.choices[0].cost_usd, after.choices[0].cost_usd
    matters = max(0.1 * one.mid, hour_value_usd(goal) / 60.0)
    assert other.mid <= max(one.high, one.mid + matters)


@settings(max_examples=_FEW, deadline=None, suppress_health_check=list(HealthCheck))
@given(offers=markets, goal=goals, factor=factors)
def test_when_every_price_and_an_hour_fall_the_cost_falls_with_them(
    offers: list[Offer], goal: Goal, factor: float
) -> None:
    goal = replace(goal, objective="cost", budget_usd=None)
    before = plan(offers, goal, "bert-base")
    assume(before is not None)
    cheaper = [replace(o, usd_per_hour=factor * o.usd_per_hour) for o in offers]
    goal = replace(goal, hour_value_usd=factor * hour_value_usd(goal))
    after = plan(cheaper, goal, "bert-base")
    ratio = after.choices[0].cost_usd.mid / before.choices[0].cost_usd.mid
    assert abs(ratio / factor - 1) < 1e-6
