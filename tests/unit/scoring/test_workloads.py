"""The cache of traced workloads helps where it can and never stands in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.model.reading.load import load_workload
from paceline.scoring import workloads
from paceline.scoring.workloads import WorkloadKey, cached_workload

KEY = WorkloadKey(entry="mnist-cnn", task="train", image_size=None, optimizer=None)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Entries that were traced, in order; each gives the same small model."""
    entries: list[str] = []

    def trace(entry: str, **_: object) -> object:
        entries.append(entry)
        return load_workload("mnist-cnn")

    monkeypatch.setattr(workloads, "load_workload", trace)
    return entries


def test_a_model_is_traced_once(tmp_path: Path, traced: list[str]) -> None:
    first, second = (cached_workload(KEY, cache_folder=tmp_path) for _ in range(2))
    assert traced == ["mnist-cnn"]
    assert first.passes[0].graph.ops.flop.tolist() == second.passes[0].graph.ops.flop.tolist()


def test_a_damaged_file_is_traced_again_and_replaced(tmp_path: Path, traced: list[str]) -> None:
    cached_workload(KEY, cache_folder=tmp_path)
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(b"broken")
    cached_workload(KEY, cache_folder=tmp_path)
    assert traced == ["mnist-cnn"] * 2
    assert kept.read_bytes() == whole


def test_a_folder_that_cannot_be_made_costs_a_trace_each_time(
    tmp_path: Path, traced: list[str]
) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    for _ in range(2):
        cached_workload(KEY, cache_folder=tmp_path / "cache")
    assert traced == ["mnist-cnn"] * 2


def test_a_shipped_graph_that_changed_is_read_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, traced: list[str]
) -> None:
    graph = tmp_path / "shipped"
    monkeypatch.setattr(workloads, "shipped_file", lambda *_: graph)
    for content in (b"today's", b"today's", b"tomorrow's"):
        graph.write_bytes(content)
        workloads._shipped_digest.cache_clear()
        cached_workload(KEY, cache_folder=tmp_path / "cache")
    workloads._shipped_digest.cache_clear()
    assert traced == ["mnist-cnn"] * 2
