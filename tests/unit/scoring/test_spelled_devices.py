"""How published tables spell devices: timm, Lambda, MLPerf, drivers, clouds and shops.

``spelled_devices.csv`` holds a spelling and the device it must mean; an empty device is a name
that must not be answered: a slice, two devices at once, a size that nobody sold, or one that the
catalogue has not.
"""

import csv
from pathlib import Path

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.catalog.naming.device_words import without_count
from paceline.errors import PacelineError
from paceline.scoring.naming.devices import resolve_device

CATALOG = load_catalog()
TABLE = Path(__file__).with_name("spelled_devices.csv").read_text(encoding="utf-8")
SURVEY = tuple(csv.DictReader(TABLE.splitlines()))


def device_or_none(spelling):
    try:
        return resolve_device(CATALOG, spelling, None, None).name
    except PacelineError:
        return ""


def test_a_spelling_means_its_device_and_no_other():
    meant = {line["spelling"]: device_or_none(line["spelling"]) for line in SURVEY}
    assert meant == {line["spelling"]: line["device"] for line in SURVEY}


def test_the_catalogues_own_names_mean_themselves():
    for device in CATALOG.devices:
        assert resolve_device(CATALOG, device.name, None, None).name == device.name


def test_a_spelling_means_the_same_where_it_is_typed():
    """But for machines of clouds, which hold devices and are none, and remarks behind a comma."""
    machines = {offer.instance_type for offer in CATALOG.offers}
    for line in SURVEY:
        spelling = line["spelling"]
        if line["device"] and spelling.lower() not in machines and ", " not in spelling:
            assert find_device(CATALOG, without_count(spelling)[0]).name == line["device"], line
