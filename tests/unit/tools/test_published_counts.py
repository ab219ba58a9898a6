"""Names of published rows build the network whose parameters are published beside them."""

import csv
from pathlib import Path

import pytest

from paceline.model.names.registry import known_models
from paceline.scoring.completion import completed
from paceline.scoring.readings import UnresolvedRowError, read_job
from paceline.scoring.rows import parse_row

TRUTH = Path(__file__).parents[4] / "shared" / "truth" / "e2e"
#: Prefix of the entry, and why its published count is another.
OTHERWISE = {
    "timm:ghostnetv3_": "published with its branches merged, as it runs after training",
    "timm:vit_base_patch16_224_miil": "published with a head of 1,000 classes",
}


@pytest.mark.truth
@pytest.mark.skipif(not TRUTH.exists(), reason="no published measurements here")
def test_timm_names_build_what_was_timed():
    sizes = {one.entry: one.parameters for one in known_models()}
    with (TRUTH / "timm.csv").open(encoding="utf-8", newline="") as file:
        published = {row["model"]: row for row in csv.DictReader(file) if row["params_m"]}
    wrong, compared = {}, 0
    for name, row in published.items():
        try:
            entry = read_job(parse_row(completed(row))).entry
        except UnresolvedRowError:
            continue
        if entry in sizes and not entry.startswith(tuple(OTHERWISE)):
            compared += 1
            ratio = sizes[entry] / 1e6 / float(row["params_m"])
            if abs(ratio - 1) > 0.02:
                wrong[name] = (entry, ratio)
    assert wrong == {}
    assert compared > 1_000
