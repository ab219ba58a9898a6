"""What a plan pays beside machines: files on the provider's disks, and traffic out."""

import pytest

from paceline import bill, plan
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.planning.places.interruption import MONTH_S
from paceline.planning.places.price import storage_usd_per_byte_month, traffic_out_usd_per_byte

PINNED = {"pin": "offer=aws/p4d.24xlarge", "as_of": "2026-11-20"}


def first(model: str = "vgg16", **options):
    return plan(model, **options).choices[0]


def test_traffic_out_is_paid_once_by_the_table_of_the_provider() -> None:
    without, with_it = first(**PINNED), first(**PINNED, egress="2TB")
    paid = 2e12 * traffic_out_usd_per_byte("aws")
    assert with_it.cost_usd.mid - without.cost_usd.mid == pytest.approx(paid, rel=1e-6)
    for end in ("low", "high"):
        added = getattr(with_it.cost_usd, end) - getattr(without.cost_usd, end)
        assert added == pytest.approx(paid, rel=1e-6)


def test_storage_is_paid_as_long_as_the_job_takes() -> None:
    without, with_it = first(**PINNED), first(**PINNED, storage="50TB")
    paid = 50e12 * storage_usd_per_byte_month("aws") * with_it.time_s.mid / MONTH_S
    assert with_it.cost_usd.mid - without.cost_usd.mid == pytest.approx(paid, rel=1e-6)


def test_much_traffic_moves_the_first_place_to_where_it_is_free() -> None:
    clouds = {"cloud": "aws,gcp,lambda", "as_of": "2026-11-20"}
    assert first("resnet50", **clouds, egress="100TB").place.cloud.lower() == "lambda"


def test_a_provider_whose_charge_is_not_known_is_left_out_and_named() -> None:
    found = plan("vgg16", egress="1GB", as_of="2026-11-20")
    assert all(choice.place.cloud.lower() != "vast" for choice in found.choices)
    assert any("traffic out is not known" in one.reason for one in found.rejected)


def test_a_service_has_no_end_at_which_something_is_taken_out() -> None:
    with pytest.raises(InvalidInputError, match="--egress"):
        plan("llama-3-8b", task="infer", rps=2, egress="1GB")


@pytest.mark.parametrize("term", ["reserved-1y", "reserved-3y"])
def test_a_reserved_term_is_paid_whole_as_its_bill_says(term: str) -> None:
    reserved = first(**PINNED, term=term)
    billed = bill("aws/p4d.24xlarge", "36h", term=term, as_of=PINNED["as_of"])
    assert reserved.place.term == term
    for end in ("low", "mid", "high"):
        paid = getattr(billed.total_usd, end) * reserved.place.num_nodes
        assert getattr(reserved.cost_usd, end) == pytest.approx(paid, rel=1e-6)


def test_a_service_that_runs_on_costs_less_by_what_the_term_takes_off() -> None:
    asked = {**PINNED, "task": "infer", "rps": 100}
    usual, reserved = (first("bert-base", **asked, term=t) for t in ("on-demand", "reserved-1y"))
    assert reserved.place.usd_per_hour == pytest.approx(0.6 * usual.place.usd_per_hour)


def test_a_provider_without_such_a_term_is_left_out_and_named() -> None:
    found = plan("vgg16", term="reserved-1y", as_of="2026-11-20")
    assert {choice.place.cloud for choice in found.choices} <= {"aws", "azure", "gcp"}
    assert any("reserved-1y is not known" in one.reason for one in found.rejected)


def test_no_plan_takes_more_devices_than_a_quota_gives() -> None:
    asked = {"device": "a100", "cloud": "aws,lambda", "as_of": "2026-11-20"}
    free, held = plan("resnet50", **asked), plan("resnet50", **asked, quota="aws=8,lambda:a100=1")
    most = {"aws": 8, "lambda": 1}
    taken = [(c.place.cloud, c.num_devices) for c in held.choices]
    assert taken
    assert all(number <= most[cloud] for cloud, number in taken)
    assert max(c.num_devices for c in free.choices) > 8


@pytest.mark.parametrize(
    "quota", ["nix=4", "nix:a100=4", "aws:nix=4", "aws", "aws=0", "aws=1,aws=2"]
)
def test_a_quota_that_counts_nothing_is_refused(quota: str) -> None:
    with pytest.raises((InvalidInputError, UnknownNameError)) as refused:
        plan("vgg16", quota=quota)
    assert refused.value.hint


def test_nobody_takes_back_what_is_reserved() -> None:
    with pytest.raises(InvalidInputError, match="exclude each other"):
        plan("vgg16", spot=True, term="reserved-1y")
