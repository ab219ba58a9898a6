from __future__ import annotations

import math
import re
import statistics
from dataclasses import replace
from datetime import date
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_offer
from paceline.errors import InvalidInputError, MissingFactError
from paceline.planning.places.interruption import Checkpointing
from paceline.planning.places.price import (
    PRICE_COMMON_FRAC,
    PRICE_LOG_SIGMA_PER_SQRT_YEAR,
    JobDemand,
    RentalTerms,
    price_job,
    rental_terms,
)

TODAY = date(2026, 11, 20)
CATALOG = load_catalog()
P4D = find_offer(CATALOG, "aws/p4d.24xlarge")
SAVING = Checkpointing(save_s=60, restart_s=600)


def test_on_demand_is_hours_times_price() -> None:
    terms = RentalTerms(term="on-demand", usd_per_hour=2.0)
    price = price_job(JobDemand(run_s=36_000, num_nodes=3), terms)
    assert price.total_usd.mid == pytest.approx(60.0)
    assert price.wall_s == 36_000


def test_short_jobs_pay_the_minimum_and_whole_granules() -> None:
    terms = RentalTerms(term="on-demand", usd_per_hour=3.6, granularity_s=3600, minimum_s=7200)
    assert price_job(JobDemand(run_s=10), terms).compute_usd == pytest.approx(7.2)
    assert price_job(JobDemand(run_s=7201), terms).compute_usd == pytest.approx(10.8)


def test_a_commitment_is_paid_whether_used_or_not() -> None:
    terms = RentalTerms(term="reserved-1y", usd_per_hour=1.0, commitment_s=3600 * 8766)
    assert price_job(JobDemand(run_s=3600), terms).compute_usd == pytest.approx(8766)


def test_storage_and_traffic_are_added_and_unknown_prices_refused() -> None:
    terms = rental_terms(P4D, today=TODAY)
    demand = JobDemand(run_s=3600, storage_bytes=150e9, egress_bytes=10e9)
    price = price_job(demand, terms)
    assert price.egress_usd == pytest.approx(0.9)
    assert 0 < price.storage_usd < 0.05
    parts = price.compute_usd + price.storage_usd + price.egress_usd
    assert price.total_usd.mid == pytest.approx(parts)
    with pytest.raises(MissingFactError):
        price_job(demand, replace(terms, egress_usd_per_byte=None))


def test_spot_needs_checkpoints_and_pays_for_interruptions() -> None:
    terms = rental_terms(P4D, term="spot", today=TODAY)
    with pytest.raises(InvalidInputError):
        price_job(JobDemand(run_s=1e6), terms)
    spot = price_job(JobDemand(run_s=1e6, num_nodes=4, checkpointing=SAVING), terms)
    assert spot.run.num_interruptions > 0.1
    assert spot.wall_s > 1e6
    undisturbed_usd = 4 * 1e6 / 3600 * terms.usd_per_hour
    assert spot.compute_usd > undisturbed_usd
    assert spot.total_usd.low < spot.total_usd.mid < spot.total_usd.high


def test_reserved_terms_need_a_known_discount() -> None:
    with pytest.raises(MissingFactError):
        rental_terms(find_offer(CATALOG, "lambda/gpu_8x_a100"), term="reserved-1y", today=TODAY)
    g5 = rental_terms(find_offer(CATALOG, "aws/g5.xlarge"), term="reserved-3y", today=TODAY)
    assert g5.usd_per_hour == pytest.approx(0.402, rel=0.01)  # AWS, page of G5 instances
    gcp = rental_terms(find_offer(CATALOG, "gcp/a2-ultragpu-1g"), term="reserved-3y", today=TODAY)
    assert gcp.usd_per_hour == pytest.approx(0.45 * 5.5238)


@pytest.mark.parametrize("name", ["aws/g5.xlarge", "gcp/a2-ultragpu-1g"])
def test_a_term_is_paid_in_whole_and_a_job_uses_its_own_time(name: str) -> None:
    demand = JobDemand(run_s=100 * 3600.0)
    prices = {
        term: price_job(demand, rental_terms(find_offer(CATALOG, name), term=term, today=TODAY))
        for term in ("on-demand", "reserved-1y", "reserved-3y")
    }
    for price in prices.values():
        assert price.used_usd <= price.compute_usd * (1 + 1e-9)
    assert prices["on-demand"].used_usd == pytest.approx(prices["on-demand"].compute_usd)
    assert prices["reserved-3y"].used_usd < prices["reserved-1y"].used_usd
    hours = prices["reserved-3y"].compute_usd / prices["reserved-3y"].used_usd * 100
    assert hours == pytest.approx(3 * 8766, rel=0.01)


@given(days=st.integers(0, 2000), more_days=st.integers(1, 2000))
def test_an_older_price_has_a_wider_interval(days: int, more_days: int) -> None:
    def width(today: date) -> float:
        total = price_job(JobDemand(run_s=3600), rental_terms(P4D, today=today)).total_usd
        return total.high / total.low

    seen = P4D.priced_on.toordinal()
    younger, older = (date.fromordinal(seen + d) for d in (days, days + more_days))
    assert width(younger) < width(older)


def test_another_region_widens_the_interval() -> None:
    here, there = (rental_terms(P4D, today=TODAY, region=r) for r in ("us-east", "eu"))
    assert here.price_log_sigma < there.price_log_sigma


@given(run_s=st.floats(60, 1e7), factor=st.floats(0.1, 0.99), num_nodes=st.integers(1, 16))
def test_a_cheaper_equal_machine_never_costs_more(
    run_s: float, factor: float, num_nodes: int
) -> None:
    demand = JobDemand(run_s=run_s, num_nodes=num_nodes, checkpointing=SAVING)
    dear = RentalTerms(
        term="spot", usd_per_hour=2.0, interruption_frac_per_month=(0.05, 0.1, 0.2), wait_s=300
    )
    cheap = replace(dear, usd_per_hour=2.0 * factor)
    assert price_job(demand, cheap).total_usd.mid < price_job(demand, dear).total_usd.mid


def test_every_price_says_where_its_billing_rules_come_from() -> None:
    for offer in CATALOG.offers:
        if offer.usd_per_hour is not None:
            notes = " ".join(rental_terms(offer, today=TODAY).assumptions)
            assert f"billing of {offer.cloud}" in notes
            assert re.search(r"price seen|undated", notes)


def test_price_drift_is_what_the_histories_show() -> None:
    """Root mean square of log price changes per year over every dated pair of one offer."""
    squares, years = 0.0, 0.0
    for offer in CATALOG.offers:
        seen = [(_day(text), usd) for text, usd in offer.price_history]
        if offer.usd_per_hour and offer.priced_on:
            seen.append((offer.priced_on, offer.usd_per_hour))
        for (day, before), (later, after) in pairwise(seen):
            age_years = (later - day).days / 365.25
            if age_years > 0.05:
                squares += math.log(after / before) ** 2
                years += age_years
    assert math.sqrt(squares / years) == pytest.approx(PRICE_LOG_SIGMA_PER_SQRT_YEAR, rel=0.1)


def test_prices_of_a_provider_move_together_as_the_histories_show() -> None:
    """Pooled over pairs of devices at one provider: AWS cut four at once, Lambda raised seven."""
    changes: dict[str, dict[str, list[float]]] = {}
    for offer in CATALOG.offers:
        if offer.price_history and offer.usd_per_hour and offer.priced_on:
            text, usd = offer.price_history[0]
            years = (offer.priced_on - _day(text)).days / 365.25
            change = math.log(offer.usd_per_hour / usd) / math.sqrt(years)
            of_cloud = changes.setdefault(offer.cloud, {})
            of_cloud.setdefault(offer.device_name, []).append(change)
    common = apart = 0.0
    for by_device in changes.values():
        moved = [statistics.fmean(values) for values in by_device.values()]
        for one, other in combinations(moved, 2):
            common, apart = common + one * other, apart + (one**2 + other**2) / 2
    assert sorted(changes) == ["aws", "lambda"]
    assert common / apart == pytest.approx(PRICE_COMMON_FRAC, rel=0.05)


def _day(text: str) -> date:
    parts = [int(part) for part in text.split("-")]
    return date(*(parts + [7, 1][len(parts) - 1 :] if len(parts) < 3 else parts))


@given(per_hour=st.floats(1e-4, 0.5), hours=st.floats(1.0, 200.0), nodes=st.integers(1, 8))
def test_stated_interruptions_take_back_as_many_machines_as_they_say(per_hour, hours, nodes):
    demand = JobDemand(run_s=hours * 3600.0, num_nodes=nodes, checkpointing=SAVING)
    terms = rental_terms(P4D, term="spot", today=TODAY, interruptions_per_hour=per_hour)
    run = price_job(demand, terms).run
    assert run.num_interruptions == pytest.approx(per_hour * nodes * run.paid_s / 3600.0)
    assert not any("interruptions" in note for note in terms.assumptions)


@pytest.mark.parametrize("term", ["on-demand", "spot", "reserved-3y"])
def test_a_price_of_ones_own_is_certain_whether_or_not_one_is_known(term) -> None:
    """Of the price alone: how often machines are taken back is known as well as before."""
    bare = replace(P4D, cloud="nowhere", usd_per_hour=None, spot_usd_per_hour=None)
    with pytest.raises(MissingFactError):
        rental_terms(bare, term=term, today=TODAY)
    for offer in (P4D, bare):
        terms = rental_terms(offer, term=term, today=TODAY, usd_per_hour=3.0)
        assert (terms.usd_per_hour, terms.price_log_sigma) == (3.0, 0.0)
        assert "the price is yours" in terms.assumptions
        assert not any(note.startswith("price seen") for note in terms.assumptions)


@pytest.mark.parametrize(
    ("beside", "left_out"),
    [
        ({}, ["storage and traffic not counted"]),
        ({"storage_bytes": 1e9}, ["traffic not counted"]),
        ({"egress_bytes": 1e9}, ["storage not counted"]),
        ({"storage_bytes": 1e9, "egress_bytes": 1e9}, []),
    ],
)
def test_what_a_bill_leaves_out_is_told(beside: dict[str, float], left_out: list[str]) -> None:
    terms = RentalTerms(
        term="on-demand",
        usd_per_hour=7.2,
        egress_usd_per_byte=1e-10,
        storage_usd_per_byte_month=1e-11,
    )
    told = price_job(JobDemand(run_s=3600, setup_s=600, **beside), terms).assumptions
    assert [line for line in told if line.endswith("not counted")] == left_out
    assert any(line.startswith("10.0 min") for line in told)
