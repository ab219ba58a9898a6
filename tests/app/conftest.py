"""Commands run in this process, and print for the same width whatever terminal runs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from refusals import Outcome

from paceline.app.cli import main


@pytest.fixture(autouse=True)
def usual_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command as its words are typed."""

    def run_command(*arguments: str) -> Outcome:
        status = main(arguments)
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run_command
