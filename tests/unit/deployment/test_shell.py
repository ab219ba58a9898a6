from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.deployment.shell import Variable, export, join, require

NASTY = [
    "two words",
    "it's",
    'say "hi"',
    "$(touch pwned)",
    "`touch pwned`",
    "${HOME}",
    "a\nb",
    "; touch pwned",
    "--flag=$HOME",
    "\\",
    "",
    "ünï→",
    "%s\\n",
    "!event",
    "*",
]
_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


def _words_seen(line: str) -> list[str]:
    """What a program is given when a shell runs ``line``, words ended by a byte no text holds."""
    script = f'set -- {line}\nfor word in "$@"; do printf \'%s\\1\' "$word"; done'
    result = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    return result.stdout.decode().split("\1")[:-1]


@pytest.mark.parametrize("word", NASTY)
def test_a_word_reaches_the_program_as_it_is(word: str) -> None:
    assert _words_seen(join(["first", word, "last"])) == ["first", word, "last"]


@settings(max_examples=30)
@given(st.lists(_TEXT.filter(lambda text: "\1" not in text), max_size=4))
def test_any_words_reach_the_program_as_they_are(words: list[str]) -> None:
    assert _words_seen(join(words)) == words


@pytest.mark.parametrize("value", NASTY)
def test_an_export_keeps_its_value(value: str) -> None:
    script = export("PLACE", value) + "\nprintf '%s' \"$PLACE\""
    seen = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert seen.stdout.decode() == value


@pytest.mark.parametrize("value", NASTY)
def test_a_variable_is_one_word_whatever_it_holds(value: str) -> None:
    line = join(["first", Variable("PLACE", prefix="--at=", suffix=":1")])
    assert _words_seen(f"first x; {export('PLACE', value)}; set -- {line}")[-1] == f"--at={value}:1"


def test_a_missing_variable_stops_the_script_and_says_what_it_is() -> None:
    script = require("DATA_DIR", "folder with the data")
    result = subprocess.run(["sh", "-c", script], capture_output=True, env={})
    assert result.returncode != 0
    assert b"folder with the data" in result.stderr
