"""The largest batch is found, and no rank waits for one that ran out of memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.unit.loop.saved_runs import launch

from paceline.loop.errors import LoopError
from paceline.loop.largest_batch import find_batch


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setattr("paceline.loop.largest_batch.gc.collect", lambda: None)


def stepping(largest: int, tried: list[int]):
    def step(batch: int) -> None:
        tried.append(batch)
        if batch > largest:
            raise MemoryError

    return step


@pytest.mark.parametrize("start", [1, 3, 64])
@pytest.mark.parametrize("largest", [65, 127])
def test_the_largest_is_found_in_few_trials(start: int, largest: int) -> None:
    tried: list[int] = []
    assert find_batch(stepping(largest, tried), start=start, limit=4096) == largest
    assert len(tried) <= 24


def test_the_limit_ends_the_search_and_too_little_memory_is_said() -> None:
    assert find_batch(stepping(10**6, []), limit=96) == 96
    with pytest.raises(LoopError, match="a batch of 4 does not fit"):
        find_batch(stepping(0, []), start=4)
    with pytest.raises(LoopError):
        find_batch(stepping(1, []), start=0)


def test_an_error_that_is_not_of_memory_is_the_users() -> None:
    def broken(batch: int) -> None:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        find_batch(broken)


def search(rank: int, ranks: int, out: str) -> None:
    found = find_batch(stepping([40, 23][rank], []))
    Path(f"{out}.{rank}").write_text(json.dumps(found))


def test_all_ranks_get_what_the_smallest_can(tmp_path: Path) -> None:
    assert launch(2, search, str(tmp_path / "found")) == [0, 0]
    assert [(tmp_path / f"found.{rank}").read_text() for rank in (0, 1)] == ["23", "23"]
