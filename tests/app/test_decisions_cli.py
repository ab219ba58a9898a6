"""The verbs `own`, `pool` and `feed`, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.app.main import main

EXAMPLES = Path(__file__).parents[2] / "examples/scenarios"


def test_own_judges_each_purchase(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["own", str(EXAMPLES / "purchases.toml")]) == 0
    out = capsys.readouterr().out
    assert "Buy: over 60 months" in out
    assert "Rent: over 3 months" in out
    assert "runpod/1x GeForce RTX 4090" in out
    assert max(map(len, out.splitlines())) <= 100


def test_own_as_json_carries_units(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["own", str(EXAMPLES / "purchases.toml"), "--name", "lab-five-years", "--json"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert json.loads(text)
    assert '"break_even_months"' in text
    assert '"own_usd"' in text


def test_fits_lists_cards_and_judges_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    facts = tmp_path / "own.yaml"
    facts.write_text("machines: [{name: desk, power_supply_w: 650, num_free_slots: 1}]")
    assert main(["fits", "desk", "--facts", str(facts)]) == 0
    out = capsys.readouterr().out
    assert "GeForce RTX 4060" in out
    assert "GeForce RTX 4090" not in out
    assert main(["fits", "desk", "--device", "4090", "--facts", str(facts)]) == 3
    told = capsys.readouterr()
    assert "supply" in told.out
    assert "error: the machine cannot take 1 × GeForce RTX 4090\nhint: " in told.err
    assert main(["fits", "desk", "--device", "4060", "--facts", str(facts)]) == 0


def test_fits_says_how_many_cards_would_fit_where_so_many_do_not(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    facts = tmp_path / "own.yaml"
    facts.write_text("machines: [{name: tower, power_supply_w: 1200, num_free_slots: 4}]")
    asked = ["fits", "tower", "--device", "4090", "--facts", str(facts), "--cards"]
    assert main([*asked, "4"]) == 3
    hint = capsys.readouterr().err.splitlines()[-1]
    most = int(hint.removeprefix("hint: --cards ").split()[0])
    assert [main([*asked, str(n)]) for n in (most, most + 1)] == [0, 3]


def test_bill_prices_spot_with_its_interruptions(capsys: pytest.CaptureFixture[str]) -> None:
    day = ["--as-of", "2026-11-20"]
    assert main(["bill", "aws/p4d.24xlarge", "36h", "--nodes", "4", "--term", "spot", *day]) == 0
    out = capsys.readouterr().out
    assert "interruptions expected" in out
    assert "price seen 2025-07-28" in out
    assert main(["bill", "aws/p4d.24xlarge", "36h", "--egress", "100GB", *day]) == 0
    assert "traffic out" in capsys.readouterr().out


def test_a_bill_counts_no_price_that_was_seen_later_and_says_where_it_was_seen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["bill", "aws/p4d.24xlarge", "36h", "--as-of"]
    assert main([*asked, "1999-01-01"]) == 2
    assert "no on-demand price is known" in capsys.readouterr().err
    assert main([*asked, "2026-11-20", "--region", "eu-central-1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "price of us-east-1: that of eu-central-1 is not known" in told
    assert main([*asked, "2026-11-20", "--region", "us-east"]) == 0
    assert "is not known" not in capsys.readouterr().out


def test_pool_shows_the_schedule_and_the_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pool", str(EXAMPLES / "pool.yaml")]) == 0
    out = capsys.readouterr().out
    assert "the best schedule" in out
    assert "side by side" in out
    for job in ("classifier", "reader", "second reader", "digits"):
        assert job in out


def test_feed_names_the_limit_and_the_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feed", "imagenet", "--cores", "4", "--rate", "1500", "--devices", "2"]) == 0
    out = capsys.readouterr().out
    assert "devices busy" in out
    assert "send uint8" in out
    assert "no number of workers would do" in out
    assert main(["feed", "imagenet", "--storage", "network-disk", "--cores", "64"]) == 0
    assert "limited by storage" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["own", "missing.toml"],
        ["own", str(EXAMPLES / "purchases.toml"), "--name", "yacht"],
        ["pool", "missing.yaml"],
        ["fits", "nobody"],
        ["bill", "nowhere/x", "1h"],
        ["bill", "aws/p4d.24xlarge", "soon"],
        ["bill", "aws/p4d.24xlarge", "1h", "--nodes", "0"],
        ["bill", "aws/p4d.24xlarge", "1h", "--term", "barter"],
        ["bill", "lambda/gpu_8x_a100", "1h", "--term", "reserved-1y"],
        ["feed", "imagenet", "--measured", "0"],
        ["feed", "holograms"],
        ["feed", "imagenet", "--cores", "0"],
        ["feed", "imagenet", "--storage", "tape"],
        ["feed", "imagenet", "--sent-as", "float8"],
    ],
)
def test_mistakes_are_one_message_with_a_hint(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "hint:" in captured.err
    assert "Traceback" not in captured.err


def test_a_machine_that_takes_no_card_says_so(tmp_path, capsys) -> None:
    facts = tmp_path / "box.yaml"
    facts.write_text(
        "machines: [{name: box, device: rtx 3060 12gb, num_devices: 1, power_supply_w: 300}]",
        encoding="utf-8",
    )
    assert main(["fits", "box", "--facts", str(facts)]) == 3
    assert "no card of the catalogue fits" in capsys.readouterr().out
    assert main(["fits", "box", "--facts", str(facts), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["rows"] == []
    assert main(["fits", "box", "--facts", str(facts), "--device", "3090"]) == 3
    told = " ".join(capsys.readouterr().out.replace("↳", " ").split())
    assert "its 300 W supply sustains 240 W" in told


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--months", "-3", "months is -3"), ("--utilisation", "50%", "write 0.5")],
)
def test_a_figure_that_cannot_be_is_named(run, option: str, value: str, said: str) -> None:
    outcome = run("own", "4x4090", option, value)
    assert outcome.status == 2
    assert said in outcome.err
