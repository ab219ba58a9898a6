"""Laws that the shipped tables obey, and the traps of their sources."""

from __future__ import annotations

import csv
import math
from collections import Counter
from datetime import date
from importlib import resources

import pytest

from paceline.catalog.load import load_catalog

CATALOG = load_catalog()
DEVICES = {d.name: d for d in CATALOG.devices}
OFFERS = {o.name: o for o in CATALOG.offers}
FIRST_DAY = date(2010, 1, 1)


def rows(table: str) -> list[dict[str, str]]:
    text = resources.files("paceline.catalog").joinpath("data", table).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("things", [CATALOG.devices, CATALOG.links, CATALOG.offers])
def test_names_are_unique(things) -> None:
    repeated = [name for name, count in Counter(t.name for t in things).items() if count > 1]
    assert repeated == []


def test_no_row_has_more_or_fewer_cells_than_its_header() -> None:
    folder = resources.files("paceline.catalog").joinpath("data")
    for table in (t.name for t in folder.iterdir() if t.name.endswith(".csv")):
        for row in rows(table):
            assert None not in row, table
            assert None not in row.values(), table


def test_every_number_is_positive_and_finite() -> None:
    for thing in (*CATALOG.devices, *CATALOG.links, *CATALOG.offers):
        for field in type(thing).__dataclass_fields__:
            value = getattr(thing, field)
            numbers = value.values() if field == "peak_flop_per_s" else [value]
            for number in numbers:
                if isinstance(number, int | float) and not isinstance(number, bool):
                    assert number > 0, (thing.name, field)
                    assert math.isfinite(number), (thing.name, field)


def test_every_fact_has_a_source() -> None:
    for device in CATALOG.devices:
        assert device.sources, device.name
        assert all(len(s.text) > 3 for s in device.sources), device.name
    for thing in (*CATALOG.offers, *CATALOG.links):
        assert len(thing.source.text) > 3, thing.name


def test_dates_lie_in_the_past_and_after_2010() -> None:
    for offer in CATALOG.offers:
        for day in (offer.priced_on, offer.spot_on):
            assert day is None or FIRST_DAY <= day <= date.today(), offer.name
        assert offer.ends_on is None or offer.ends_on > FIRST_DAY, offer.name


def test_every_offer_names_a_device_that_exists() -> None:
    assert {o.device_name for o in CATALOG.offers} - set(DEVICES) == {None}


def test_spot_is_below_on_demand_and_no_price_is_a_missing_price_marker() -> None:
    for offer in CATALOG.offers:
        if offer.usd_per_hour and offer.spot_usd_per_hour:
            assert offer.spot_usd_per_hour < offer.usd_per_hour, offer.name
        assert offer.usd_per_hour not in (700.0, 0.0, 0.01), offer.name


def test_price_per_device_is_near_the_median_of_the_device() -> None:
    """A price of 0.01 for a B200, or of a GPU without its host, would stand out here."""
    by_device: dict[str, list[tuple[float, str]]] = {}
    for offer in CATALOG.offers:
        if offer.usd_per_hour and offer.device_name:
            price = offer.usd_per_hour / offer.num_devices
            by_device.setdefault(offer.device_name, []).append((price, offer.name))
    for prices in by_device.values():
        median = sorted(prices)[len(prices) // 2][0]
        for price, name in prices:
            assert median / 20 < price < median * 20, name


def test_one_default_variant_per_family_at_most() -> None:
    defaults = Counter(d.family for d in CATALOG.devices if d.is_default_variant)
    assert max(defaults.values()) == 1


def test_dense_peaks_do_not_exceed_the_architecture_arithmetic() -> None:
    """SMs x FLOP per clock and SM x boost clock bounds every matrix peak; sparse rates break it."""
    num_checked = 0
    for device in CATALOG.devices:
        if device.name == "Arc B580 12GB":  # rated at 2.85 GHz, above the listed boost clock
            continue
        if not device.num_sms or not device.boost_clock_hz or device.compute_capability == "8.7":
            continue
        for rate in device.generation.rates:
            bound = device.num_sms * rate.flop_per_clock_per_sm * device.boost_clock_hz
            peak = device.peak_flop_per_s.get(rate.precision)
            if peak is not None and rate.segment != "consumer":
                num_checked += 1
                assert peak <= 1.03 * bound, (device.name, rate.precision, peak / bound)
    assert num_checked > 300


def test_vectors_that_run_faster_in_fp16_set_its_rate() -> None:
    for device in CATALOG.devices:
        rates = device.peak_flop_per_s
        if rates.get("fp16_vector", 0.0) > 1.2 * rates.get("fp32", math.inf):
            assert rates.get("fp16", 0.0) >= rates["fp16_vector"], device.name


def test_geforce_cards_run_half_rate_with_fp32_accumulate() -> None:
    for device in CATALOG.devices:
        rates = {(r.segment, r.precision): r.flop_per_clock_per_sm for r in device.generation.rates}
        if device.name.startswith("GeForce RTX") and (rate := rates.get(("consumer", "fp16"))):
            assert device.num_sms
            assert device.boost_clock_hz
            bound = device.num_sms * rate * device.boost_clock_hz
            assert device.peak_flop_per_s["fp16"] == pytest.approx(bound, rel=0.01), device.name


@pytest.mark.parametrize(
    ("name", "precision", "published"),
    [
        ("A10G", "fp16", 70e12),
        ("A30", "fp16_vector", 41.3e12),
        ("Tesla T4", "fp16_vector", 16.2e12),
        ("H100 SXM5 80GB", "fp16_vector", 133.8e12),
        ("TITAN V", "fp16", 110e12),
        ("B200 SXM", "fp32", 80e12),
        ("B300 SXM", "int8", 150e12),
        ("Gaudi 3 (HL-325L)", "bf16", 1677e12),
        ("Instinct MI300X", "fp32", 163.4e12),
    ],
)
def test_conflicting_peaks_are_settled_as_decided(name: str, precision: str, published: float):
    assert DEVICES[name].peak_flop_per_s[precision] == pytest.approx(published, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("A10G", "num_sms", 80),
        ("L4", "num_sms", 58),
        ("L40S", "l2_bytes", 96 * 2**20),
        ("L40S", "tdp_w", 350),
        ("A100 PCIe 80GB", "l2_bytes", 40 * 2**20),
        ("B200 SXM", "memory_bytes", 180e9),
        ("Instinct MI300X", "memory_bytes_per_s", 5.3e12),
        ("Instinct MI325X", "memory_bytes_per_s", 6.0e12),
        ("Radeon Instinct MI25", "memory_bytes_per_s", 484e9),
        ("GH200 144GB", "memory_bytes", 141e9),
        ("Tesla K80 (one of two GPUs)", "boost_clock_hz", 875e6),
        ("Tesla V100 SXM2 16GB", "tdp_w", 300),
    ],
)
def test_conflicting_facts_are_settled_as_decided(name: str, field: str, value: float) -> None:
    assert getattr(DEVICES[name], field) == pytest.approx(value)


def test_two_gpu_boards_are_listed_per_gpu() -> None:
    k80 = DEVICES["Tesla K80 (one of two GPUs)"]
    assert (k80.memory_bytes, k80.tdp_w) == (12e9, 150)
    assert OFFERS["aws/p2.16xlarge"].num_devices == 16


def test_tpu_slices_count_chips() -> None:
    """v2 to v4 and v5p name cores, two per chip; v5e and v6e name chips."""
    assert OFFERS["gcp/tpu-v4-8"].num_devices == 4
    assert OFFERS["gcp/tpu-v6e-8"].num_devices == 8


def test_fabric_rates_count_one_direction() -> None:
    h100 = DEVICES["H100 SXM5 80GB"]
    assert h100.fabric_bytes_per_s == 450e9
    nvlink4 = next(link for link in CATALOG.links if link.name == "nvlink4")
    assert nvlink4.bytes_per_s == h100.fabric_bytes_per_s


def test_gcp_prices_are_host_and_gpu_together_or_marked() -> None:
    """A GPU row alone looks 4 times too cheap; the one we could not complete says so."""
    assert OFFERS["gcp/a3-highgpu-8g"].usd_per_hour == pytest.approx(87.8325)
    assert OFFERS["gcp/a2-ultragpu-1g"].usd_per_hour == pytest.approx(5.5238)
    assert not OFFERS["gcp/a4-highgpu-8g"].is_price_complete


def test_cpu_offers_have_the_share_of_the_socket_they_rent() -> None:
    cores = {o.instance_type: o for o in CATALOG.offers if o.device_name == "AWS Graviton3"}
    assert cores["c7g.16xlarge"].num_devices == 1
    for offer in cores.values():
        assert offer.num_vcpus
        assert offer.num_devices == pytest.approx(offer.num_vcpus / 64)


def test_bus_bandwidth_between_nodes_is_not_taken_for_a_wire_rate() -> None:
    efa = next(link for link in CATALOG.links if link.name == "aws-p6b200")
    assert efa.measured_bus_bytes_per_s == pytest.approx(381.8e9)
    assert efa.measured_wire_frac == pytest.approx(0.739)


def test_imported_rows_say_so_and_are_not_called_checked() -> None:
    made_by = Counter(r["made_by"] for r in rows("devices.csv"))
    assert set(made_by) == {"reference", "hand", "techpowerup"}
    tail = [r for r in rows("devices.csv") if r["made_by"] == "techpowerup"]
    assert {r["confidence"] for r in tail} == {"read"}


def test_every_gpu_is_of_a_generation_on_record() -> None:
    gpus = [d for d in CATALOG.devices if d.kind == "gpu"]
    assert [d.name for d in gpus if not d.generation.architecture] == []
    of_cuda = [d for d in gpus if d.vendor == "NVIDIA"]
    assert [d.name for d in of_cuda if d.generation.code != d.compute_capability] == []


@pytest.mark.parametrize("vendor", ["NVIDIA", "AMD", "Google", "Intel", "AWS", "Apple"])
def test_every_vendor_is_there(vendor: str) -> None:
    assert sum(d.vendor == vendor for d in CATALOG.devices) >= 6


def test_usable_memory_is_near_the_marketed_capacity() -> None:
    told = [d for d in CATALOG.devices if d.usable_memory_bytes]
    assert len(told) > 20
    for device in told:
        assert device.memory_bytes
        assert device.usable_memory_bytes == pytest.approx(device.memory_bytes, rel=0.08)


def test_price_history_reads_as_days_and_prices() -> None:
    offer = OFFERS["aws/p4d.24xlarge"]
    assert offer.price_history == (("2022-06-23", 32.7726), ("2025-06-23", 21.9576))
