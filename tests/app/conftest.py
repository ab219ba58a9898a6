"""Every command of these tests prints for the same width, whatever terminal runs them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def usual_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
