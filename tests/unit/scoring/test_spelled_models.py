"""How published tables spell models: libraries, hubs, zoos, benchmark suites, papers.

``spelled_models.csv`` holds a spelling and the entry that it must mean in training; an empty entry
is a name that must not be answered, because it names several networks or none.
"""

import csv
from pathlib import Path

from paceline.model.names.lookup import library_entry, library_names
from paceline.scoring.naming.models import UnresolvedRowError, resolve_model
from paceline.scoring.rows import parse_row
from paceline.scoring.tables import read_table
from paceline.shipped import shipped_rows

SURVEY = tuple(
    csv.DictReader(
        Path(__file__).with_name("spelled_models.csv").read_text(encoding="utf-8").splitlines()
    )
)


def entry(name):
    row = {"model": name, "task": "train", "gpu": "A100", "framework": "PyTorch 2.1"}
    return resolve_model(parse_row(row)).entry


def entry_or_none(name):
    try:
        return entry(name)
    except UnresolvedRowError:
        return ""


def test_a_spelling_means_its_model_and_no_other():
    meant = {line["spelling"]: entry_or_none(line["spelling"]) for line in SURVEY}
    assert meant == {line["spelling"]: line["entry"] for line in SURVEY}


def test_a_librarys_own_names_mean_themselves():
    for name in (*library_names("timm"), *library_names("torchvision")):
        found = library_entry(name)
        assert found is not None
        assert found.partition(":")[2] == name


def test_numbers_that_a_separator_parts_are_not_one_number():
    assert entry("RegNetY-1.6GF") == "torchvision:regnet_y_1_6gf"
    assert entry("RegNetY-16GF") == "torchvision:regnet_y_16gf"


def test_targets_of_mlperf_and_decorations_of_hubs_are_no_part_of_a_name():
    assert entry("llama2-70b-99.9") == entry("llama2-70b")
    assert entry("mosaicml/mpt-7b-chat") == entry("mpt-7b")
    assert entry("openai/whisper-large-v3") != entry("openai/whisper-large")


def test_every_line_of_the_tables_of_names_has_its_cells():
    for table in ("refused_models.csv", "precision_words.csv"):
        assert all(None not in row and row["pattern"] for row in read_table(table)), table
    for row in shipped_rows("model", "aliases.csv"):
        assert None not in row
        assert bool(row["pattern"]) != bool(row["words"])
