"""Weights as they are released: what engines serve unless a precision is asked for."""

from __future__ import annotations

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.dtypes import PRECISIONS
from paceline.model.names.registry import known_models, released_precisions
from paceline.planning.goal.goal import Goal
from paceline.planning.goal.service import Service
from paceline.planning.places.configurations import choose_configurations
from paceline.planning.places.support import newest_support
from paceline.shipped import shipped_rows
from paceline.stack.engines import find_engine

CATALOG = load_catalog()
VLLM = Service(engine=find_engine("vllm"), elsewhere=None, is_stated=False)


def chosen(device, released, **goal):
    support = newest_support(find_device(CATALOG, device))
    found = choose_configurations(
        [support], Goal(**goal), num_parameters=10**11, service=VLLM,
        released=released,
    )  # fmt: skip
    return [one.configuration.precision for one in found]


@pytest.mark.parametrize("entry", ["hf:kimi-k2", "hf:minimax-m2"])
def test_eight_bits_are_multiplied_where_units_are_and_widened_elsewhere(entry):
    released = released_precisions(entry)
    assert chosen("h200", released) == ["fp8"]
    assert chosen("a100", released) == ["int8"]


def test_what_is_asked_for_goes_before_what_is_released():
    released = released_precisions("hf:gpt-oss-20b")
    assert chosen("h100", released) == ["mxfp4"]
    assert chosen("h100", released, precisions=("bf16",)) == ["bf16"]
    assert chosen("h100", ()) == ["bf16"]


def test_every_line_names_known_models_and_precisions_with_a_source():
    known = {one.entry for one in known_models()}
    for row in shipped_rows("model", "released_formats.csv"):
        assert any(released_precisions(e) == tuple(row["precisions"].split()) for e in known)
        assert set(row["precisions"].split()) <= set(PRECISIONS)
        assert row["source"]
