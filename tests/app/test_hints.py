"""What a message tells the user to type must exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import paceline
from paceline.app.cli import build_commands
from paceline.errors import UnknownNameError

_PACKAGE = Path(paceline.__file__).parent
#: A command in backquotes, or alone in a string.
_COMMAND = re.compile(r"(?:`|^)paceline ([a-z]+[^`\n]*)(?:`|$)")


def commands_told() -> Iterator[tuple[str, str]]:
    """Every command that a string of the package tells, with the file that tells it."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in _COMMAND.finditer(node.value):
                    yield str(path.relative_to(_PACKAGE)), found[1]


@pytest.fixture(scope="module")
def known() -> click.Group:
    return build_commands()


def unknown_words(commands: click.Group, told: str) -> list[str]:
    """The verb and the options of a command that the program does not have."""
    words = re.sub(r"'[^']*'", "QUOTED", told).split()
    command: click.Command = commands
    while isinstance(command, click.Group) and words:
        verb = words.pop(0)
        if verb.startswith("-") or verb.isupper():
            break
        if verb not in command.commands:
            return [verb]
        command = command.commands[verb]
    flags = {flag for parameter in command.params for flag in parameter.opts} | {"--help"}
    return [word for word in words if word.startswith("--") and word.strip("…,") not in flags]


def test_every_command_that_a_message_names_exists(known: click.Group) -> None:
    told = list(commands_told())
    assert len(told) > 50
    assert [(path, text) for path, text in told if unknown_words(known, text)] == []


def test_a_name_of_a_short_list_is_answered_with_the_list() -> None:
    error = UnknownNameError.from_name("storage", "tape", ["nvme", "hdd"])
    assert error.hint == "known are: nvme, hdd"
