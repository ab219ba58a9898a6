"""What every answer keeps to: the width of the screen, and figures with units in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from paceline import predict
from paceline.app.main import main
from paceline.reporting.tables import display_width

COMMANDS = (
    "devices a100",
    "devices --kind tpu",
    "offers h100",
    "models",
    "models llama",
    "bill aws/p4d.24xlarge 3h",
    "feed imagenet --rate 1200",
    "trace mnist-cnn --device a100 --compare checkpointing=full",
    "predict mnist-cnn --device a100,4090 --batch 1,64",
    "predict mnist-cnn --device a100 --devices 1,2",
    "scale mnist-cnn --device h100 --counts 1,8",
    "stack resolve --gpu 3090",
    "stack explain --gpu 3090",
    "stack check --gpu 3090",
    "stack images 11.8 12.4",
    "deploy --list",
    "doctor",
    "stacks list",
)
#: Endings of names that say the unit, and words for what has none.
_UNITS = re.compile(
    r"(_s|_bytes|_flop|_usd|_w|_j|_hz|_frac|_per_\w+|^flop|_factor|_gb|^num_\w+|^count"
    r"|chance_\w+|devices_per_node|_frac_by_\w+|_by_phase|^figures|^log_sigma)$"
    # Pairs of a day and US dollars per hour, as the column of the offers table is called.
    r"|^price_history$"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_STACKS", str(tmp_path))
    monkeypatch.setenv("PACELINE_STORE", str(tmp_path))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [80, 132])
def test_no_line_is_wider_than_the_screen(
    command: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(command.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if display_width(line) > width] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_figure_has_its_unit_in_its_name_or_in_that_of_what_holds_it(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    assert [path for path in _paths(answer) if not any(map(_UNITS.search, path))] == []


def _paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Names that lead to each figure that is no whole number."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _paths(item, (*path, name))
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item, path)
    elif isinstance(value, float):
        yield path


def test_what_joins_devices_is_told_once_for_every_count() -> None:
    counts = (1, 2, 4, 8)
    grid = predict("gpt2", device="h100,4090", devices=counts, batch=(1,))
    told = [one for one in grid.assumptions if ": joined " in one]
    assert len(told) == 2
    (of_h100,) = (one for one in told if one.startswith("H100"))
    numbers = re.findall(r"\b(\d)\b(?= or | by )", of_h100.partition(": joined ")[2])
    assert [int(number) for number in numbers] == [count for count in counts if count > 1]
