"""Every command answers as JSON, which is the only thing on stdout then."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from refusals import Outcome

from paceline.app.main import build_commands


def commands(group: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    below = getattr(group, "commands", {})
    if not below:
        yield path, group
    for name, command in below.items():
        yield from commands(command, f"{path} {name}".strip())


COMMANDS = dict(commands(build_commands()))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_the_option(path: str) -> None:
    assert any("--json" in parameter.opts for parameter in COMMANDS[path].params)


def test_what_only_writes_files_names_them(tmp_path: Path, run: Callable[..., Outcome]) -> None:
    pytest.importorskip("vl_convert")
    page = tmp_path / "page.html"
    made = run("report", "mnist-cnn", "--device", "a100", "--html", str(page), "--json")
    assert made.status == 0, made.err
    assert json.loads(made.out)["rows"] == [str(page)]


def test_what_removes_says_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Outcome]
) -> None:
    monkeypatch.setenv("PACELINE_STACKS", str(tmp_path))
    assert json.loads(run("stacks", "remove", "torch", "--json").out)["torch"] is False
    assert run("stacks", "remove", "torch").out == "torch: was not there\n"
