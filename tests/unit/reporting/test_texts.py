"""Sentences folded at the width of a terminal."""

from __future__ import annotations

import sys

import pytest

from paceline.app.output import answer_of
from paceline.app.verbs.run import tell
from paceline.reporting.texts import folded

_NOTICE = "step 40: slower than predicted, " + "by a long way " * 12 + "in backward"


@pytest.mark.parametrize("width", [40, 80, 140])
def test_folded_lines_fit_and_lose_no_word(width: int):
    text = f"{_NOTICE}\n  {_NOTICE}\nshort"
    lines = folded(text, width).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == text.split()
    assert lines[-1] == "short"


def test_a_command_to_copy_stays_on_its_line():
    command = "next: paceline run -- python train.py " + "--flag " * 30
    assert folded(command, 80) == command


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_notice_is_folded_on_a_terminal_and_whole_in_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    tell(_NOTICE)
    lines = capsys.readouterr().err.splitlines()
    assert all(one.startswith("paceline: ") for one in lines)
    assert (max(map(len, lines)) <= 80) == is_terminal
    assert (len(lines) == 1) != is_terminal


def test_lines_of_an_answer_are_folded_and_its_markdown_is_not():
    answer = answer_of("run", None, (_NOTICE,), "as it is")
    assert max(map(len, answer.text(80).splitlines())) <= 80
    assert answer.text(80).endswith("\n\nas it is")
    assert answer.markdown() == f"{_NOTICE}\n\nas it is"
