"""What a plan pays beside machines: files on the provider's disks, and traffic out."""

import pytest

from paceline import plan
from paceline.errors import InvalidInputError
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
