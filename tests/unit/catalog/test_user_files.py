from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device, find_offer
from paceline.catalog.offer_links import offer_links
from paceline.errors import InvalidInputError, PacelineError

GOOD = """
devices:
  - name: acme x1
    peak_flop_per_s: {fp32: 1.0e+13, bf16: 1.0e+14}
    memory_bytes: 4.8e+10
    memory_bytes_per_s: 1.0e+12
offers:
  - {name: box, device: acme x1, num_devices: 2, usd_per_hour: 1.5, priced_on: 2026-11-01}
machines:
  - {name: lab, device: rtx 3090, num_devices: 2, power_supply_w: 1200, num_free_slots: 1}
"""


def write(folder: Path, text: str, name: str = "own.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_own_devices_offers_and_machines(tmp_path: Path) -> None:
    catalog = load_catalog([write(tmp_path, GOOD)])
    assert find_device(catalog, "ACME-X1").peak_flop_per_s["bf16"] == 1e14
    offer = find_offer(catalog, "own/box")
    assert (offer.device_name, offer.usd_per_hour, offer.source.confidence) == (
        "acme x1",
        1.5,
        "user",
    )
    assert catalog.machines[0].device_name == "GeForce RTX 3090"
    assert len(load_catalog().machines) == 0


def test_toml_says_the_same(tmp_path: Path) -> None:
    text = """
    [[offers]]
    name = "box"
    device = "h100"
    usd_per_hour = 2.0
    priced_on = 2026-11-01
    """
    catalog = load_catalog([write(tmp_path, text, "own.toml")])
    assert find_offer(catalog, "own/box").device_name == "H100 SXM5 80GB"


def test_a_key_may_be_given_with_its_cloud_and_a_fabric_with_its_rate(tmp_path: Path) -> None:
    text = GOOD.replace("name: box,", "name: hall/box, cloud: hall, interconnect: nvlink,").replace(
        "    memory_bytes: 4.8e+10",
        "    fabric: acmelink\n    fabric_bytes_per_s: 2.0e+11\n    memory_bytes: 4.8e+10",
    )
    catalog = load_catalog([write(tmp_path, text)])
    offer = find_offer(catalog, "hall/box")
    assert offer.instance_type == "box"
    assert offer_links(catalog, offer).device.bytes_per_s == 2e11


def test_a_row_of_the_users_replaces_ours(tmp_path: Path) -> None:
    price = "usd_per_hour: 9, priced_on: 2026-11-01"
    text = f"offers: [{{name: p4d.24xlarge, cloud: aws, device: a100, {price}}}]"
    catalog = load_catalog([write(tmp_path, text)])
    assert find_offer(catalog, "aws/p4d.24xlarge").usd_per_hour == 9
    assert len(catalog.offers) == len(load_catalog().offers)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "just text",
        "devices: 7",
        "offers: [{name: x}]",
        "offers: [{name: x, device: h100, usd_per_hour: -1, priced_on: 2026-11-01}]",
        "offers: [{name: x, device: h100, usd_per_hour: .inf, priced_on: 2026-11-01}]",
        "offers: [{name: x, device: h100, usd_per_hour: 1, priced_on: yesterday}]",
        "offers: [{name: x, device: h999, usd_per_hour: 1, priced_on: 2026-11-01}]",
        "offers: [{name: x, device: h100, usd_per_hour: 1, priced_on: 2026-11-01, surprise: 1}]",
        "a: &a [1]\nb: *a",
        "x: !!python/object/apply:os.system ['true']",
        "{" * 2000,
        "[" * 50 + "]" * 50,
        "devices: [" + "1, " * 100_000 + "]",
        "\x00",
    ],
)
def test_bad_and_hostile_files_are_one_message(tmp_path: Path, text: str) -> None:
    with pytest.raises(PacelineError) as caught:
        load_catalog([write(tmp_path, text)])
    assert len(str(caught.value)) < 500
    assert caught.value.hint


def test_a_missing_folder_or_binary_file_is_one_message(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "missing.yaml", tmp_path, binary):
        with pytest.raises(InvalidInputError):
            load_catalog([path])


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(raw=st.binary(max_size=300), suffix=st.sampled_from([".yaml", ".toml"]))
def test_random_bytes_never_end_in_a_traceback(tmp_path: Path, raw: bytes, suffix: str) -> None:
    path = tmp_path / f"fuzz{suffix}"
    path.write_bytes(raw)
    with suppress(PacelineError):
        load_catalog([path])


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(position=st.integers(0, len(GOOD) - 1), text=st.text(max_size=8))
def test_a_damaged_good_file_never_ends_in_a_traceback(
    tmp_path: Path, position: int, text: str
) -> None:
    path = write(tmp_path, GOOD[:position] + text.replace("\ud800", "") + GOOD[position:])
    with suppress(PacelineError):
        load_catalog([path])
