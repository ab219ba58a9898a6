"""The command line from outside: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from paceline import __version__
from paceline.app.main import VERBS, build_commands, main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def assert_helpful(status: int, out: str, err: str, *, expected: int = 2) -> None:
    """A user's mistake: nothing on stdout, one error and one hint on stderr, no traceback."""
    assert status == expected, err
    assert out == ""
    lines = err.strip().splitlines()
    assert lines[-2].startswith("error: "), err
    assert lines[-1].startswith("hint: "), err
    assert "Traceback" not in err


def test_bare_command_shows_three_commands_and_this_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, _ = run(capsys)
    assert status == 0
    assert sum(line.startswith("  paceline ") for line in out.splitlines()) == 3
    assert "This machine: " in out
    assert "prices to 20" in out
    assert len(out.splitlines()) <= 24


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"paceline {__version__}\n", "")
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == __version__


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("plam", "resnet50"),
        ("--frobnicate",),
        ("devices", "--frobnicate"),
        ("devices", "a100", "h100"),
        ("devices", "rtx4900"),
        ("devices", "--min-memory", "lots"),
        ("devices", "--min-memory", "-1GB"),
        ("devices", "--kind", "abacus"),
        ("devices", "--vendor", "NVIDIA", "--architecture", "CDNA3"),
        ("devices", "--format", "xml"),
        ("offers", "h100", "--max-price", "0.0001usd"),
        ("offers", "h100", "--max-price", "two euros"),
        ("offers", "--as-of", "yesterday"),
        ("offers", "--min-devices", "many"),
        ("plan",),
        ("plan", "resnet5000"),
        ("plan", "resnet50", "--task", "dream"),
        ("plan", "resnet50", "--deadline", "24 parsecs"),
        ("plan", "resnet50", "--deadline", "0h"),
        ("plan", "resnet50", "--deadline", "-3h"),
        ("plan", "resnet50", "--budget", "nanusd"),
        ("plan", "resnet50", "--samples", "0"),
        ("plan", "resnet50", "--samples", "-5"),
        ("plan", "resnet50", "--confidence", "2"),
        ("plan", "resnet50", "--objective", "joy"),
        ("plan", "resnet50", "--pin", "colour=red"),
        ("plan", "resnet50", "--pin", "offer"),
        ("plan", "resnet50", "--pin", "offer=nobody/nothing"),
        ("plan", "resnet50", "--device", "RTX4900"),
        ("plan", "resnet50", "--precision", "fp3"),
        ("plan", "resnet50", "--tokens", "1B", "--samples", "5"),
        ("plan", "resnet50", "--as-of", "2026-13-45"),
        ("plan", "resnet50", "--facts", "/nonexistent.toml"),
        ("plan", "resnet50", "--why-not", "RTX4900"),
        ("plan", "/nonexistent.npz"),
        ("plan", "no_such_module:build"),
        ("predict", "resnet50", "--device", "RTX4900"),
        ("predict", "resnet50", "--device", "a100", "--batch", "0"),
        ("predict", "resnet50", "--device", "a100", "--batch", "-4"),
        ("predict", "resnet50", "--device", "a100", "--batch", "eight"),
        ("predict", "resnet50", "--device", "a100", "--devices", "0"),
        ("predict", "resnet50", "--device", "a100", "--devices", "5000"),
        ("predict", "resnet50", "--device", ","),
        ("predict", "resnet50", "--compiler", "magic"),
        ("trace", "resnet50", "--batch", "0"),
        ("trace", "resnet50", "--top", "-1"),
        ("trace", "resnet50", "--compare", "checkpoint=full"),
        ("trace", "resnet50", "--rewrite", "precision=bf17"),
        ("trace", "resnet50", "--device", "RTX4900"),
        ("scale", "resnet50"),
        ("scale", "resnet50", "--device", "h100", "--counts", "1,zwei"),
        ("score", "/nonexistent.csv", "--out", "/tmp/never.csv"),
        ("stack", "resolve", "--gpu", "RTX4900"),
        ("stack", "frobnicate"),
    ],
    ids=" ".join,
)
def test_a_mistake_gets_one_message_with_a_hint(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert_helpful(*run(capsys, *arguments))


def test_a_typo_in_a_device_names_the_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "predict", "resnet50", "--device", "RTX4900")
    assert "`RTX4900`" in err
    assert "did you mean" in err
    assert "RTX 4090" in err


def test_more_devices_than_a_machine_holds_leads_to_scale(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, _, err = run(capsys, "predict", "resnet50", "--device", "a100", "--devices", "64")
    assert "paceline scale" in err


def test_a_device_that_runs_no_eager_code_names_what_it_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    question = ("predict", "resnet50", "--device", "tpu v4", "--batch", "64")
    status, out, _ = run(capsys, *question, "--compiler", "eager")
    assert status == 2
    assert "does not run eager: --compiler xla" in out
    answers = [run(capsys, *question), run(capsys, *question, "--compiler", "xla")]
    for status, out, _ in answers:
        assert status == 0
        assert "no answer" not in out


def test_a_typo_in_a_verb_names_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "plam")
    assert "did you mean `plan`" in err


def test_help_lists_every_verb_once_below_what_it_is_wanted_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The six that most people need come first."""
    _, out, _ = run(capsys, "--help")
    names = re.findall(r"^  (\w+(?: \w+)?)  ", out.partition("Plan a job:")[2], re.MULTILINE)
    assert sorted(names) == sorted(build_commands().commands)
    assert names[:6] == ["plan", "predict", "scale", "deploy", "report", "trace"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_that_fits_a_terminal(
    capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    status, out, _ = run(capsys, verb, "--help")
    assert status == 0
    assert out.startswith("Usage: paceline ")
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(
    "arguments",
    [
        ("devices", "a100"),
        ("offers", "h100"),
        ("trace", "resnet50"),
        ("predict", "resnet50", "--device", "a100", "--batch", "32"),
        ("scale", "resnet50", "--device", "h100", "--counts", "1,8"),
        ("stack", "resolve", "--gpu", "a100", "--framework", "torch"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_json_has_a_schema_version_and_units_in_its_keys(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    status, out, err = run(capsys, *arguments, "--json")
    assert status == 0, err
    answer = json.loads(out)
    assert answer["schema_version"] == 1
    assert answer["kind"]


@pytest.mark.parametrize(
    "arguments", [("devices", "a100"), ("offers", "h100"), ("trace", "resnet50")]
)
def test_markdown_has_a_table(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    status, out, _ = run(capsys, *arguments, "--format", "md")
    assert status == 0
    assert "|---" in out


def test_output_goes_to_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "a100.json"
    status, out, err = run(capsys, "devices", "a100", "--json", "-o", str(target))
    assert (status, out, err) == (0, "", f"{target} written\n")
    assert json.loads(target.read_text())["kind"] == "devices"


def test_output_into_nowhere_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert_helpful(*run(capsys, "devices", "a100", "-o", "/nonexistent/folder/file"))


def test_nothing_is_coloured_even_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, "devices", "a100")
    assert "\x1b" not in out + err


def test_tables_follow_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "devices", "a100")
    assert max(map(len, out.splitlines())) <= 80


def test_an_interrupt_ends_with_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("paceline.app.main._read", interrupt)
    status, out, err = run(capsys, "devices")
    assert (status, out) == (130, "")
    assert "interrupted" in err


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("paceline.app.main._read", stumble)
    with pytest.raises(ZeroDivisionError):
        main(["devices"])


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m paceline devices | head -1"
    ended = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        check=False,
    )
    assert ended.stderr == ""
    assert ended.stdout.startswith("device")


def test_a_reader_that_goes_away_loses_the_screen_and_not_the_plan(tmp_path: Path) -> None:
    command = f"{sys.executable} -m paceline plan mnist-cnn --cloud Lambda --explain | head -1"
    subprocess.run(["bash", "-c", command], capture_output=True, cwd=tmp_path, check=False)
    assert (tmp_path / "plan.yaml").read_text().endswith("...\n")
