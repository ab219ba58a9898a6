"""Price feeds: what they quote, and what of it is believed.

Two of the SkyPilot tables are rows of skypilot-org/skypilot-catalog, catalogs/v8 (nebius at commit
0082b04, gcp machines at 006059e), with made-up accelerator rows for gcp. Two are whole, with their
line ends: hyperbolic's at 0082b04 and seeweb's at 004a1ae. gpuhunt's and Azure's are made by hand
in their documented formats.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from paceline.app.api.prices import offers_history, offers_refresh, offers_rollback
from paceline.catalog.feeds import Feed, read_quotes, shipped_feeds
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_offer
from paceline.catalog.quotes import Quote, settle, with_quotes
from paceline.catalog.refreshed import FOLDER_VARIABLE, current_quotes, keep_quotes, table_names
from paceline.catalog.tables import shipped_catalog
from paceline.errors import InvalidInputError, UnknownNameError

FEEDS = Path(__file__).parent / "feeds"
NEBIUS, GCP = FEEDS / "skypilot_nebius.csv", FEEDS / "skypilot_gcp.csv"
DAY = date(2026, 11, 20)
CATALOG = shipped_catalog()
H100 = "nebius/gpu-h100-sxm_8gpu-128vcpu-1600gb"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "offers"))
    return tmp_path / "offers"


def quotes_of(path: Path, cloud: str) -> tuple[Quote, ...]:
    feed = Feed(name=path.name, url=str(path), cloud=cloud)
    return read_quotes(path.read_text(), feed, CATALOG, DAY)


def test_a_machine_of_several_regions_has_one_price_and_its_lowest() -> None:
    settled = settle(CATALOG, quotes_of(NEBIUS, "nebius"))
    names = [quote.name for quote in settled.quotes]
    assert len(names) == len(set(names)) == 9
    assert not settled.held_back
    assert settled.num_left_out == 0


def test_machines_without_an_accelerator_are_no_offers() -> None:
    assert not [q for q in quotes_of(NEBIUS, "nebius") if q.instance_type.startswith("cpu")]


def test_a_whole_table_of_another_provider_is_read() -> None:
    quotes = quotes_of(FEEDS / "skypilot_hyperbolic.csv", "hyperbolic")
    found = {quote.instance_type: (quote.usd_per_hour, quote.region) for quote in quotes}
    assert found == {
        "1x-H100-75-722": (1.29, "default"),
        "2x-H100-149-1443": (2.58, "default"),
        "3x-H100-224-2165": (3.87, "default"),
    }


def test_a_whole_table_keeps_every_accelerator_that_is_known_for_certain() -> None:
    quotes = quotes_of(FEEDS / "skypilot_seeweb.csv", "seeweb")
    settled = settle(CATALOG, quotes)
    kept = {(q.accelerator, q.num_devices): q.usd_per_hour for q in settled.quotes}
    assert (len(quotes), len(settled.quotes), settled.num_left_out) == (27, 17, 10)
    assert not settled.held_back
    # No form is named for an A100, an H100 or an H200: each could be a PCIe or an SXM card.
    assert not [name for name, _ in kept if name[:4] in {"A100", "H100", "H200"}]
    for name, one in kept.items():
        assert one == pytest.approx(name[1] * kept[name[0], 1])


def test_parts_that_a_provider_prices_apart_are_added() -> None:
    found = {(q.instance_type, q.region): q for q in quotes_of(GCP, "gcp")}
    one = found["a2-highgpu-1g", "us-central1"]
    assert one.usd_per_hour == pytest.approx(0.73948 + 2.933908)
    assert one.spot_usd_per_hour == pytest.approx(0.36975 + 1.466957)
    assert ("a2-highgpu-1g", "europe-west4") not in found  # no accelerator is priced there


def test_other_facts_of_a_known_offer_stay() -> None:
    catalog = with_quotes(CATALOG, settle(CATALOG, quotes_of(NEBIUS, "nebius")).quotes)
    before, after = find_offer(CATALOG, H100), find_offer(catalog, H100)
    assert after.priced_on == DAY
    assert after.source.text.startswith("feed ")
    assert (before.priced_on.isoformat(), before.usd_per_hour) in after.price_history
    prices = {
        "usd_per_hour", "spot_usd_per_hour", "region", "priced_on", "spot_on", "source",
        "lowest_usd_per_hour", "lowest_region", "price_history", "status", "is_price_complete",
    }  # fmt: skip
    fields = [name for name in before.__dataclass_fields__ if name not in prices]
    assert [getattr(before, n) for n in fields] == [getattr(after, n) for n in fields]


def test_gpuhunt_says_spot_in_rows_of_its_own() -> None:
    text = (
        "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size\n"
        "p4d.24xlarge,us-east-1,21.9,96,1152,8,A100,40,False,\n"
        "p4d.24xlarge,us-east-1,9.5,96,1152,8,A100,40,True,\n"
        "m5.large,us-east-1,0.1,2,8,0,,,False,\n"
    )
    (quote,) = read_quotes(text, Feed(name="x", url="x", cloud="aws"), CATALOG, DAY)
    assert (quote.name, quote.usd_per_hour, quote.spot_usd_per_hour) == (
        "aws/p4d.24xlarge", 21.9, 9.5,
    )  # fmt: skip


def azure_item(**changes: object) -> dict[str, object]:
    return {
        "currencyCode": "USD", "retailPrice": 0.95, "armRegionName": "eastus",
        "armSkuName": "Standard_NC6", "skuName": "NC6", "unitOfMeasure": "1 Hour",
        "productName": "Virtual Machines NC Series", **changes,
    }  # fmt: skip


def test_azure_pages_follow_one_another() -> None:
    pages = [
        {"Items": [azure_item(), azure_item(productName="NC Windows", retailPrice=2.0)]},
        {"Items": [azure_item(skuName="NC6 Spot", retailPrice=0.2)]},
    ]
    text = "\n".join(json.dumps(page) for page in pages)
    (quote,) = read_quotes(text, shipped_feeds()["azure"], CATALOG, DAY)
    assert (quote.name, quote.usd_per_hour, quote.spot_usd_per_hour) == (
        "azure/Standard_NC6", 0.95, 0.2,
    )  # fmt: skip


def scaled(text: str, factor: float) -> str:
    lines = [line.split(",") for line in text.splitlines()]
    return "\n".join([",".join(lines[0])] + [_cheaper(line, factor) for line in lines[1:]]) + "\n"


def _cheaper(cells: list[str], factor: float) -> str:
    return ",".join([*cells[:5], str(float(cells[5]) * factor), *cells[6:]])


def mutants() -> dict[str, tuple[str, str]]:
    """Feeds that say nothing true, and the day they are said to be of."""
    text, day = NEBIUS.read_text(), "2026-11-20"
    return {
        "a hundredth": (scaled(text, 0.01), day),
        "a hundredfold": (scaled(text, 100), day),
        "no price": (scaled(text, float("nan")), day),
        "below zero": (scaled(text, -1), day),
        "column renamed": (text.replace("Price,", "Cost,"), day),
        "a page of HTML": ("<!doctype html>\n<html><body>Not found</body></html>\n", day),
        "cut off": (text[: int(len(text) * 0.9)], day),
        "older": (text, "2025-01-01"),
        "empty": ("", day),
        "heading only": (text.splitlines()[0] + "\n", day),
        "HTML in names": (text.replace("gpu-", "<script>gpu-"), day),
        "not UTF-8": (text.replace("gpu-", "gpu-\udcff"), day),
        "counts swapped": (
            text.replace(",H100,8,", ",H100,1,").replace(",H200,8,", ",H200,3,"),
            day,
        ),
        "other currency": (json.dumps({"Items": [azure_item(currencyCode="EUR")]}), day),
        "cut JSON": (json.dumps({"Items": [azure_item()]})[:-5], day),
        "deep JSON": ("{" + '"Items":' + "[" * 100_000, day),
    }


@pytest.mark.parametrize("name", mutants())
def test_a_broken_feed_changes_nothing(name: str, own_folder: Path, tmp_path: Path) -> None:
    offers_refresh([str(NEBIUS)], seen_on="2026-11-20", cloud="nebius")
    before = {path.name: path.read_bytes() for path in own_folder.iterdir()}
    text, day = mutants()[name]
    path = tmp_path / "feed.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInputError):
        offers_refresh([str(path)], seen_on=day, cloud="nebius")
    assert {path.name: path.read_bytes() for path in own_folder.iterdir()} == before


def test_one_doubtful_price_is_held_back_and_the_others_taken(tmp_path: Path) -> None:
    rows = NEBIUS.read_text().replace(",23.60,", ",0.236,")
    path = tmp_path / "feed.csv"
    path.write_text(rows)
    found = offers_refresh([str(path)], seen_on="2026-11-20", cloud="nebius")
    (held,) = found.held_back
    assert (held.name, held.old_usd_per_hour, held.quoted_usd_per_hour) == (H100, 23.6, 0.236)
    assert find_offer(load_catalog(), H100).usd_per_hour == 23.6
    assert find_offer(load_catalog(), H100.replace("8gpu-128", "1gpu-16").replace("1600", "200"))


def test_a_file_says_of_which_day_it_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="which day"):
        offers_refresh([str(NEBIUS)], cloud="nebius")
    with pytest.raises(InvalidInputError, match="not come yet"):
        offers_refresh([str(NEBIUS)], cloud="nebius", seen_on="2999-01-01")
    with pytest.raises(UnknownNameError):
        offers_refresh(["nebiuss"])


def test_back_to_any_earlier_state() -> None:
    first = offers_refresh([str(NEBIUS)], seen_on="2026-11-20", cloud="nebius").table
    second = offers_refresh([str(GCP)], seen_on="2026-11-20", cloud="gcp").table
    assert [kept.name for kept in offers_history()] == [second, first]
    assert len(current_quotes()) == 9 + 2
    back = offers_rollback()
    assert back is not None
    assert (back.name, len(current_quotes())) == (first, 9)
    assert offers_rollback(shipped=True) is None
    assert [o.name for o in load_catalog().offers] == [o.name for o in CATALOG.offers]
    assert load_catalog() is CATALOG


def test_what_is_kept_reads_as_it_was_written() -> None:
    quotes = settle(CATALOG, quotes_of(NEBIUS, "nebius")).quotes
    keep_quotes(quotes, datetime(2026, 11, 20, tzinfo=UTC))
    assert current_quotes() == quotes


def test_a_dry_run_writes_nothing(own_folder: Path) -> None:
    found = offers_refresh([str(NEBIUS)], seen_on="2026-11-20", cloud="nebius", dry_run=True)
    assert found.table is None
    assert not own_folder.exists()


def test_an_older_quote_moves_no_price() -> None:
    offer = find_offer(CATALOG, H100)
    old = [replace(q, priced_on=date(2020, 1, 1)) for q in quotes_of(NEBIUS, "nebius")]
    assert find_offer(with_quotes(CATALOG, old), H100) == offer


_REFRESH = """
import sys
from paceline.app.api.prices import offers_refresh
while True:
    offers_refresh([sys.argv[1]], seen_on="2026-11-20", cloud=sys.argv[2])
"""


@pytest.mark.parametrize("num_kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_killed_half_way_the_old_or_the_new_prices_are_there(num_kills: int) -> None:
    for seed in range(num_kills):
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _REFRESH,
                str((NEBIUS, GCP)[seed % 2]),
                ("nebius", "gcp")[seed % 2],
            ],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        before = len(table_names())
        while len(table_names()) <= before + seed % 7:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert {len(current_quotes()), len(load_catalog().offers) - len(CATALOG.offers)} <= {
            0, 2, 3, 9, 11,
        }  # fmt: skip
