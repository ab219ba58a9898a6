"""Where the time goes, on a narrow screen too."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import paceline
from paceline.reporting.screens.traces import op_table
from paceline.reporting.tables import display_width, text_table


@cache
def traced(device: str | None) -> Any:
    return paceline.trace("gpt2", device=device)


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("device", ["a100", None])
def test_ops_of_one_kind_are_told_apart_at_every_width(device: str | None, width: int) -> None:
    table = text_table(op_table(traced(device).passes[0].ops), width=width)
    header = table.splitlines()[0].split()
    assert "shape" in header
    assert ("limit" in header) == (device is not None)
    assert max(map(display_width, table.splitlines())) <= width
