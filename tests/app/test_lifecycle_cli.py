"""``paceline lifecycle``, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.app.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples/scenarios/lifecycle.yaml"
DAY = ["--as-of", "2026-11-20"]


def test_the_table_has_a_row_per_phase_and_their_sum(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lifecycle", str(EXAMPLE), *DAY]) == 0
    out = capsys.readouterr().out
    first_words = [line.partition(" ")[0] for line in out.splitlines()]
    for word in ("develop", "train", "serve", "together", "assumed:", "why:"):
        assert word in first_words
    assert "your own workstation is enough" in out
    assert "one place for all" in out
    assert max(map(len, out.splitlines())) <= 100


def test_the_data_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lifecycle", str(EXAMPLE), *DAY, "--json"]) == 0
    split = json.loads(capsys.readouterr().out)["split"]
    parts = [one["machines_usd"]["mid"] + one["moving_usd"] for one in split["phases"]]
    assert split["total_usd"]["mid"] == pytest.approx(sum(parts))


def test_markdown_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lifecycle", str(EXAMPLE), *DAY, "--format", "md"]) == 0
    assert "| develop | Own 1×RTX 3090 |" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["missing.yaml"], [str(EXAMPLE), "--as-of", "soon"], []])
def test_a_mistake_is_one_message_with_a_hint(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lifecycle", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hint:" in captured.err
