"""``paceline lifecycle``, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.app.api.decisions import lifecycle
from paceline.app.api.pages import ModelOptions, page_of
from paceline.app.main import main

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
    clouds = [one["choice"]["place"]["cloud"] for one in split["phases"]]
    assert clouds[0] == "own"
    assert "own" not in clouds[1:]
    parts = [one["machines_usd"]["mid"] + one["moving_usd"] for one in split["phases"]]
    assert split["total_usd"]["mid"] == pytest.approx(sum(parts))


def test_the_page_has_every_phase_its_reason_and_a_bar_for_each_way() -> None:
    options = ModelOptions(as_of="2026-11-20")
    page = page_of(str(EXAMPLE), options)
    found = lifecycle(EXAMPLE, as_of="2026-11-20")
    (chart,) = (chart for section in page.sections for chart in section.charts)
    drawn: dict[str, float] = {}
    for point in chart.spec["data"]["values"]:
        drawn[point["way"]] = drawn.get(point["way"], 0.0) + point["usd"]
    assert found.one_place is not None
    ways = (found.split, found.one_place)
    assert list(drawn.values()) == pytest.approx([way.total_usd.mid for way in ways])
    told = "\n".join(line for section in page.sections for line in section.lines)
    assert all(one.reason in told for one in found.split.phases)
    rented = {
        c.place.offer for w in ways for c in (o.choice for o in w.phases) if c.place.priced_on
    }
    assert all(any(offer in source for source in page.sources) for offer in rented)


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
