from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline.errors import UnknownNameError
from paceline.planning.places.ownership import (
    HOURS_PER_MONTH,
    OwnedCosts,
    break_even_months,
    break_even_utilisation_frac,
    electricity_usd_per_kwh,
    ownership_bill,
    ownership_facts,
    rent_or_buy,
    rent_usd,
)

RTX_4090 = OwnedCosts(
    price_usd=3000, busy_power_w=650, idle_power_w=90, usd_per_kwh=0.3, utilisation_frac=0.5
)

machines = st.builds(
    OwnedCosts,
    price_usd=st.floats(100, 1e6),
    busy_power_w=st.floats(10, 20_000),
    idle_power_w=st.floats(0, 500),
    usd_per_kwh=st.floats(0, 0.5),
    pue=st.floats(1, 2),
    utilisation_frac=st.floats(0.01, 1),
    lifetime_years=st.floats(1, 8),
    residual_frac=st.one_of(st.just(0.0), st.floats(0.05, 0.9)),
    upkeep_frac_per_year=st.floats(0, 0.25),
    staff_usd_per_year=st.floats(0, 50_000),
    space_usd_per_kw_month=st.floats(0, 250),
    capital_frac_per_year=st.floats(0, 0.12),
)


def test_a_card_by_hand() -> None:
    """3,000 USD, 12 months at half use: 370 W x 8,766 h x 0.30 USD/kWh = 973 USD."""
    bill = ownership_bill(RTX_4090, 12)
    assert bill.electricity_usd == pytest.approx(0.370 * 8766 * 0.3)
    assert bill.total_usd == pytest.approx(3000 + 0.370 * 8766 * 0.3)
    assert bill.usd_per_busy_hour == pytest.approx(bill.total_usd / 4383)


@given(costs=machines, months=st.floats(0.1, 120))
def test_the_parts_add_up(costs: OwnedCosts, months: float) -> None:
    bill = ownership_bill(costs, months)
    parts = (
        bill.purchase_usd, bill.electricity_usd, bill.upkeep_usd, bill.staff_usd, bill.space_usd,
        bill.capital_usd, -bill.resale_usd,
    )  # fmt: skip
    assert bill.total_usd == pytest.approx(sum(parts))
    assert 0 <= bill.resale_usd <= costs.price_usd


@given(costs=machines, rate=st.floats(0.05, 100))
def test_break_even_is_the_crossing_of_the_two_curves(costs: OwnedCosts, rate: float) -> None:
    """The curves are computed again here, on a grid, without the bill."""
    months = np.linspace(0.01, 240, 20_000)
    hours = months * HOURS_PER_MONTH
    mean_kw = costs.utilisation_frac * costs.busy_power_w / 1e3
    mean_kw += (1 - costs.utilisation_frac) * costs.idle_power_w / 1e3
    per_month_usd = (
        mean_kw * costs.pue * HOURS_PER_MONTH * costs.usd_per_kwh
        + costs.price_usd * (costs.upkeep_frac_per_year + costs.capital_frac_per_year) / 12
        + costs.staff_usd_per_year / 12
        + costs.space_usd_per_kw_month * costs.busy_power_w / 1e3
    )
    worth = (
        costs.residual_frac ** (months / 12 / costs.lifetime_years) if costs.residual_frac else 0
    )
    own = costs.price_usd * (1 - worth) + per_month_usd * months
    rent = rate * costs.utilisation_frac * hours
    crossed = np.flatnonzero(rent >= own)
    found = break_even_months(costs, rate)
    if found is None:
        assert rent[-1] < own[-1]
    elif crossed.size and crossed[0] > 0:
        assert found == pytest.approx(months[crossed[0]], abs=months[1] - months[0])


@given(costs=machines, rate=st.floats(0.05, 100), months=st.floats(1, 120))
def test_at_the_break_even_utilisation_both_cost_the_same(
    costs: OwnedCosts, rate: float, months: float
) -> None:
    share = break_even_utilisation_frac(costs, rate, months)
    assume(share is not None)
    at = replace(costs, utilisation_frac=share)
    own, rent = ownership_bill(at, months).total_usd, rent_usd(rate, at, months)
    assert own == pytest.approx(rent, rel=1e-6, abs=0.01)


@given(costs=machines, rate=st.floats(0.05, 100), cheaper=st.floats(0.1, 1))
def test_a_cheaper_machine_breaks_even_no_later(
    costs: OwnedCosts, rate: float, cheaper: float
) -> None:
    dear = break_even_months(costs, rate)
    cheap = break_even_months(replace(costs, price_usd=costs.price_usd * cheaper), rate)
    if dear is not None:
        assert cheap is not None
        assert cheap <= dear + 1e-6


def test_sensitivity_orders_inputs_by_their_swing() -> None:
    result = rent_or_buy(RTX_4090, 0.6, 36, [("usd_per_kwh", 0.1, 0.4), ("price_usd", 2900, 3100)])
    assert [s.name for s in result.sensitivity] == ["usd_per_kwh", "price_usd"]
    assert result.sensitivity[1].high_usd - result.sensitivity[1].low_usd == pytest.approx(200)
    assert result.cheaper == "own"
    assert result.break_even_busy_hours == pytest.approx(
        result.break_even_months * HOURS_PER_MONTH * 0.5
    )


def test_an_idle_machine_never_pays() -> None:
    rarely = replace(RTX_4090, utilisation_frac=0.001)
    assert rent_or_buy(rarely, 0.6, 60).cheaper == "rent"
    assert break_even_months(rarely, 0.6) is None


def test_published_break_even_of_an_h100_server_lies_in_its_band() -> None:
    """Server of 300-350 k USD against 8 H100 at 2.5-4 USD an hour, well used: 14 to 18 months
    (v2-pseo-ai.pages.dev GPU TCO analysis, in the ownership table)."""
    server = OwnedCosts(
        price_usd=325_000,
        busy_power_w=7650,
        usd_per_kwh=0.08,
        pue=1.2,
        utilisation_frac=0.9,
        space_usd_per_kw_month=200,
    )
    assert 12 < break_even_months(server, 8 * 4.0) < 20


def test_facts_have_sources_and_regions() -> None:
    assert electricity_usd_per_kwh("europe").value == pytest.approx(0.204)
    assert all(len(fact.source) > 10 for fact in ownership_facts())
    with pytest.raises(UnknownNameError):
        electricity_usd_per_kwh("Atlantis")
