"""A room that takes away only so much heat limits one's own machines, and says by how much."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.app.main import main

FACTS = """\
machines:
  - name: desk
    device: GeForce RTX 4090
    num_devices: 4
"""


def plan(folder: Path, limit: str, *more: str) -> int:
    (folder / "own.yaml").write_text(FACTS, encoding="utf-8")
    facts = str(folder / "own.yaml")
    return main(["plan", "resnet50", "--facts", facts, "--cooling-limit", limit, *more])


def test_the_limit_that_the_hint_names_is_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(tmp_path, "100W", "--cloud", "own") == 4
    found = re.search(r"keeps --cooling-limit (\S+)", capsys.readouterr().err)
    assert found is not None
    assert plan(tmp_path, found.group(1), "--cloud", "own") == 0
    assert "of heat in the own room" in capsys.readouterr().out


def test_what_is_rented_warms_another_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(tmp_path, "1W", "--cloud", "own,lambda", "--json") == 0
    assert "too hot for the room" in capsys.readouterr().out
