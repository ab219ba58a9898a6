"""Runs that are killed and taken up again do what an undisturbed one does."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from tests.unit.loop.saved_runs import COUNT, losses, run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> list:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run(1, folder / "saves", folder / "out") == [0]
    return losses(folder / "out", 1)


def test_an_undisturbed_run_reads_each_sample_once_per_epoch(undisturbed) -> None:
    for epoch in range(3):
        rows = [row[2] for row in undisturbed if row[0] == epoch]
        assert sorted(index for row in rows for index in row) == list(range(COUNT))
    assert [row[2] for row in undisturbed if row[0] == 0] != [
        row[2] for row in undisturbed if row[0] == 1
    ]


def held_against(undisturbed, found, tolerance=1e-12) -> int:
    """The step at which a run began; its losses are those of the undisturbed one from there."""
    epoch, _, samples = found[0]
    begin = next(i for i, row in enumerate(undisturbed) if (row[0], row[2]) == (epoch, samples))
    for was, now in zip(undisturbed[begin:], found, strict=False):
        assert was[0] == now[0]
        assert was[2] == now[2]
        assert abs(was[1] - now[1]) <= tolerance * max(1.0, was[1])
    return begin


def test_resumed_on_other_ranks_and_workers(undisturbed, tmp_path: Path) -> None:
    """1 → 2 → 3 ranks: 12 samples a step, 9 in the last of an epoch, which 2 does not divide."""
    saves = tmp_path / "saves"
    assert run(1, saves, tmp_path / "a", kill_at=4, wait_s=0.3) == [-9]
    assert held_against(undisturbed, losses(tmp_path / "a", 1)) == 0
    assert -9 in run(2, saves, tmp_path / "b", kill_at=4, killed=[1], workers=1, is_loud=False)
    second = losses(tmp_path / "b", 2)
    # Saved at step 2, killed after step 4 was saved: lost work is at most an interval and a save.
    assert held_against(undisturbed, second) in (2, 4)
    assert run(3, saves, tmp_path / "c") == [0, 0, 0]
    third = losses(tmp_path / "c", 3)
    begin = held_against(undisturbed, third)
    assert begin >= 4
    assert begin + len(third) == len(undisturbed)


def test_a_batch_that_ranks_do_not_divide_weighs_each_sample_alike(undisturbed, tmp_path) -> None:
    """Four ranks go on with a batch of 12 in shares of 3; the 9 left are 2, 2, 2 and 3."""
    assert run(1, tmp_path / "s", tmp_path / "a", kill_at=3, wait_s=0.3) == [-9]
    assert run(4, tmp_path / "s", tmp_path / "b", batch=12) == [0] * 4
    found = losses(tmp_path / "b", 4)
    assert held_against(undisturbed, found) + len(found) == len(undisturbed)


def test_sigterm_saves_where_it_is_and_ends(undisturbed, tmp_path: Path) -> None:
    more = {"kill_at": 5, "signal": signal.SIGTERM, "every_steps": 100}
    ended = run(2, tmp_path / "s", tmp_path / "a", workers=1, killed=[1], **more)
    assert ended == [-signal.SIGTERM] * 2
    assert run(1, tmp_path / "s", tmp_path / "b", batch=12) == [0]
    first, second = losses(tmp_path / "a", 2), losses(tmp_path / "b", 1)
    assert held_against(undisturbed, second) == len(first)


def test_finished_epochs_are_left_out_and_a_finished_run_does_nothing(
    undisturbed, tmp_path: Path
) -> None:
    assert run(1, tmp_path / "s", tmp_path / "a", epochs=True, kill_at=7, wait_s=0.3) == [-9]
    assert run(1, tmp_path / "s", tmp_path / "b", epochs=True) == [0]
    found = losses(tmp_path / "b", 1)
    assert found[0][0] == 1
    assert held_against(undisturbed, found) + len(found) == len(undisturbed)
    assert run(1, tmp_path / "s", tmp_path / "c", epochs=True) == [0]
    assert losses(tmp_path / "c", 1) == []
