"""Where no configuration suits a device, the search ends, and says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from paceline.catalog.load import load_catalog
from paceline.errors import PacelineError
from paceline.model.reading.load import load_workload
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.planner import make_plan

TODAY = date(2026, 11, 20)


@pytest.mark.parametrize(
    ("device", "goal"),
    [("k80", {}), ("t4", {"precisions": ("fp8",)}), ("v100", {"precisions": ("bf16",)})],
)
def test_a_device_without_a_configuration_ends_the_search(device, goal):
    catalog = load_catalog()
    offers = tuple(o for o in catalog.offers if o.cloud in ("aws", "gcp"))
    wanted = Goal(devices=(device,), **goal)
    facts = replace(catalog, offers=offers)
    with pytest.raises(PacelineError):
        make_plan(load_workload("alexnet"), wanted, Work(), facts, today=TODAY)
