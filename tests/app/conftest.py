"""Commands run in this process, and print the same whatever terminal and machine run them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from refusals import Outcome

from paceline.app.main import main


@pytest.fixture(autouse=True)
def usual_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def no_word_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine prints what it is at, which says nothing about the answer."""
    monkeypatch.setattr("paceline.app.progress._PATIENCE_S", threading.TIMEOUT_MAX)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command as its words are typed."""

    def run_command(*arguments: str) -> Outcome:
        status = main(arguments)
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run_command


class _Drawing:
    """What draws charts, without drawing them."""

    def vegalite_to_svg(self, spec: str) -> str:
        return f"<svg><!--{spec}--></svg>"

    def vegalite_to_png(self, spec: str, scale: float) -> bytes:
        return spec.encode()

    def javascript_bundle(self, script: str) -> str:
        return script


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are their specifications."""
    monkeypatch.setattr("paceline.reporting.charts.drawing._library", _Drawing)
