"""Strategies that cannot run, or should not: one clear answer each, with what would do."""

from __future__ import annotations

import pytest

from paceline.app.main import main

H100 = ("--device", "H100")
IMPOSSIBLE = {
    "heads": (
        ("gpt2", *H100, "--counts", "8", "--strategy", "tp8"),
        "does not divide 12 attention heads",
        "divides the number of heads",
    ),
    "widths": (
        ("resnet50", *H100, "--counts", "3", "--strategy", "tp3"),
        "does not divide 64 features",
        "divides the widths",
    ),
    "devices": (
        ("gpt2", *H100, "--counts", "12", "--strategy", "tp5"),
        "12 devices are no multiple of the 5 ranks",
        "take 15 devices",
    ),
    "batch": (
        ("gpt2", *H100, "--counts", "6", "--strategy", "dp3.tp2", "--global-batch", "8"),
        "a global batch of 8 does not divide into 3 replicas",
        "take a multiple of 3, such as 9",
    ),
    "microbatches": (
        ("gpt2", *H100, "--counts", "8", "--strategy", "dp8/mb3", "--global-batch", "64"),
        "8 replicas × 3 microbatches",
        "take a multiple of 24",
    ),
    "sequence": (
        ("gpt2", *H100, "--counts", "4", "--strategy", "tp4+sp", "--seq", "1001"),
        "cuts each sequence into 4 pieces; 1001 does not divide",
        "a multiple of 4",
    ),
    "stages": (
        ("gpt2", *H100, "--counts", "64", "--strategy", "pp64@1f1b/mb64"),
        "64 pipeline stages are more than the model's",
        "use at most",
    ),
    "interleaving": (
        ("resnet50", *H100, "--counts", "8", "--strategy", "pp8@interleaved2/mb12"),
        "interleaved schedules need a multiple of 8 microbatches, not 12",
        "take 16",
    ),
    "tensor parallel across Ethernet": (
        ("gpt2", "--device", "T4", "--counts", "16", "--strategy", "tp16"),
        "GB/s per device",
        "keep `tp` inside a node",
    ),
    "no link between nodes": (
        ("gpt2", "--offer", "azure/Standard_NC6s_v3", "--counts", "4", "--strategy", "dp4"),
        "needs a link between nodes; there is none",
        "choose machines with one",
    ),
    "no experts": (
        ("gpt2", *H100, "--counts", "8", "--strategy", "ep8"),
        "finds no experts",
        "use `dp`, `tp` or `pp`",
    ),
    "one process on two nodes": (
        ("gpt2", *H100, "--counts", "16", "--strategy", "dp16+single-process"),
        "one process drives at most the 8 devices of a node",
        "a process per device",
    ),
    "order of axes": (
        ("gpt2", *H100, "--counts", "8", "--strategy", "tp4.dp2"),
        "an order that has no cost model",
        "write the axes as dp . tp",
    ),
    "notation": (
        ("gpt2", *H100, "--counts", "8", "--strategy", "tp8x"),
        "no axis `tp8x`",
        "write strategies like",
    ),
}


def test_stages_alone_take_the_usual_schedule_and_show_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["scale", "gpt2", *H100, "--counts", "4", "--strategy", "pp4"]) == 0
    assert "pp4@1f1b/mb8" in capsys.readouterr().out


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_scale_says_why_a_strategy_cannot_run_and_what_would(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, problem, remedy = IMPOSSIBLE[name]
    assert main(["scale", *asked]) == 2
    written = capsys.readouterr()
    error, hint = written.err.strip().splitlines()[-2:]
    assert written.out == ""
    assert error.startswith("error: ")
    assert problem in error
    assert hint.startswith("hint: ")
    assert remedy in hint


def test_a_plan_says_why_a_pinned_strategy_cannot_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("--pin", "strategy=tp8", "--pin", "nodes=1", "--device", "H100")
    assert main(["plan", "gpt2", *asked]) == 2
    error, hint = capsys.readouterr().err.strip().splitlines()[-2:]
    assert "does not divide 12 attention heads" in error
    assert "divides the number of heads" in hint
