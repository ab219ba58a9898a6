"""``loop.feed``: each sample once, in the same order whoever reads, on buffers that are reused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.loop import samples

from paceline import loop
from paceline.loop import layout
from paceline.loop.feeding.blocks import BlockOrder
from paceline.loop.feeding.feeder import DamagedData
from paceline.loop.readers import Synthetic


@pytest.fixture(autouse=True)
def _one_process(monkeypatch):
    monkeypatch.setattr(layout, "_chosen", None)


def _silent(_: str) -> None:
    pass


def _feed(data, batch, **options):
    return loop.feed(data, batch, say=_silent, **options)


def _numbers(count: int):
    return np.arange(count)[:, None].repeat(3, axis=1), np.arange(count)


def _phase(data, state, ranks: int, num_batches: int | None, **options):
    """Own samples of so many steps on all ranks, and the state after them."""
    seen, after = [], state
    for rank in range(ranks):
        layout.choose(layout.Layout(rank, ranks, rank, ranks))
        fed = _feed(data, **options)
        if state is not None:
            fed.load_state_dict(state)
        batches, steps = iter(fed), 0
        while num_batches is None or steps < num_batches:
            batch = next(batches, None)
            if batch is None:
                break
            inputs, labels = batch
            own = batch.indices[: batch.num_own]
            assert inputs[: len(own), 0].tolist() == labels[: len(own)].tolist() == own
            seen, steps = seen + own, steps + 1
        after = fed.state_dict()
        batches.close()
    return seen, after


_PHASE = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 6), st.integers(1, 5))


def _check_law(count: int, batch: int, phases, *, shuffle: bool, seed: int, epoch: int) -> None:
    """Kill after some steps, go on with other ranks and threads; the epoch is still complete."""
    data, seen = _numbers(count), []
    state = {"epoch": epoch, "position": 0, "seed": seed, "count": count}
    for ranks, threads, num_batches, ahead in phases:
        options = {"batch": batch, "shuffle": shuffle, "threads": threads, "ahead": ahead}
        found, state = _phase(data, state, ranks, num_batches, **options)
        seen += found
        if state["epoch"] != epoch:
            break
    if state["epoch"] == epoch:
        found, state = _phase(data, state, 2, None, batch=batch, shuffle=shuffle, threads=2)
        seen += found
    assert Counter(seen) == Counter(range(count))
    assert state["position"] == 0 or count == 0


_LAW = {
    "count": st.integers(1, 150),
    "batch": st.integers(1, 17),
    "phases": st.lists(_PHASE, max_size=4),
    "shuffle": st.booleans(),
    "seed": st.integers(0, 2**31),
    "epoch": st.integers(0, 100),
}


@settings(max_examples=60, deadline=None)
@given(**_LAW)
def test_each_sample_is_read_once_on_any_ranks_threads_and_kills(
    count, batch, phases, shuffle, seed, epoch
) -> None:
    _check_law(count, batch, phases, shuffle=shuffle, seed=seed, epoch=epoch)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(**_LAW)
def test_each_sample_is_read_once_in_a_thousand_cases(
    count, batch, phases, shuffle, seed, epoch
) -> None:
    _check_law(count, batch, phases, shuffle=shuffle, seed=seed, epoch=epoch)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
    st.integers(0, 2**31),
    st.integers(0, 9),
    st.data(),
)
def test_an_order_of_blocks_has_every_sample_once_and_is_the_same_in_parts(
    sizes, seed, epoch, data
) -> None:
    ends = np.cumsum(sizes).tolist()
    order = BlockOrder(ends, seed, epoch)
    whole = order[0 : len(order)]
    assert sorted(whole) == list(range(ends[-1]))
    begin = data.draw(st.integers(0, ends[-1]))
    end = data.draw(st.integers(begin, ends[-1]))
    assert order[begin:end] == whole[begin:end]


def test_a_block_is_read_once_an_epoch(tmp_path: Path, monkeypatch) -> None:
    from paceline.loop.readers.tables import ParquetFiles

    read, one = Counter(), ParquetFiles._read_group
    monkeypatch.setattr(
        ParquetFiles, "_read_group", lambda self, n: (read.update([n]), one(self, n))[1]
    )
    path = samples.parquet(tmp_path / "a.parquet", 48)
    seen = [i for b in _feed(str(path), 5, size=8, threads=2, ahead=1) for i in b.indices]
    assert sorted(seen) == list(range(48))
    assert seen != sorted(seen)
    assert max(read.values()) == 1


def _images(tmp_path: Path, bad: tuple[int, ...] = ()) -> str:
    samples.folder(tmp_path)
    for number in bad:
        path = sorted(tmp_path.rglob("*.jpg"))[number]
        path.write_bytes(path.read_bytes()[:300])
    return str(tmp_path)


def test_pixels_and_random_crops_do_not_depend_on_who_reads(tmp_path: Path) -> None:
    root = _images(tmp_path)
    options = {"size": 16, "is_random": True, "seed": 5}
    first, second = (
        {
            index: inputs
            for batch in _feed(root, rows, threads=threads, **options)
            for index, inputs in zip(batch.indices, batch[0].clone(), strict=True)
        }
        for rows, threads in ((4, 1), (5, 4))
    )
    assert first.keys() == second.keys() == set(range(12))
    assert all(torch.equal(first[i], second[i]) for i in first)
    other = next(iter(_feed(root, 12, shuffle=False, **options)))
    assert torch.equal(other[0][3], first[3])


def test_images_are_normalised_like_torchvision_does(tmp_path: Path) -> None:
    root = _images(tmp_path)
    options = {"size": 16, "shuffle": False, "threads": 1}
    plain, _ = next(iter(_feed(root, 12, **options)))
    changed, _ = next(iter(_feed(root, 12, normalise=loop.IMAGENET, **options)))
    mean, deviation = (torch.tensor(v).view(1, 3, 1, 1) for v in loop.IMAGENET)
    assert plain.dtype == torch.uint8
    torch.testing.assert_close(changed, (plain / 255 - mean) / deviation)
    assert changed.is_contiguous(memory_format=torch.channels_last)


def test_a_batch_of_damaged_samples_alone_is_normalised_to_nothing(tmp_path: Path) -> None:
    root = _images(tmp_path, bad=(0, 1))
    fed = _feed(root, 2, size=16, shuffle=False, damaged="skip", normalise=loop.IMAGENET, threads=1)
    assert [batch.indices for batch in fed] == [[2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]


_THREADS_BEFORE_AND_AFTER = """
import os, sys, torch
from paceline import loop
torch.set_num_threads(4)
fed = loop.feed(sys.argv[1], 12, size=64, normalise=loop.IMAGENET, threads=1, say=print)
count = lambda: len(os.listdir("/proc/self/task"))
before = count()
(batch, _), = fed
assert batch.numel() > 32768  # What PyTorch shares out among threads.
print(before, count())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_normalising_starts_no_team_of_threads_that_would_spin(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _THREADS_BEFORE_AND_AFTER, str(_images(tmp_path))],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "4"}, check=True,
    )  # fmt: skip
    before, after = map(int, ended.stdout.split())
    assert after < before + 3, "a team of four is three more; a reader may come or go"


def test_damaged_samples_are_refused_by_name_or_skipped_and_counted(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    root = _images(tmp_path, bad=(3, 8))
    with pytest.raises(DamagedData, match=r"class0.*jpg.*skip"):
        list(_feed(root, 4, size=16, shuffle=False))
    fed = _feed(root, 4, size=16, damaged="skip")
    batches = [(batch[0].clone(), batch[1].clone(), batch.indices) for batch in fed]
    assert sorted(i for _, _, indices in batches for i in indices) == [
        i for i in range(12) if i not in (3, 8)
    ]
    assert all(len(x) == len(y) == len(i) for x, y, i in batches)
    assert [i // 4 for _, _, indices in batches for i in indices] == [
        int(label) for _, labels, _ in batches for label in labels
    ]
    assert {Path(one.name).name for one in fed.damaged} == {"0009.jpg", "0002.jpg"}
    assert set(threading.enumerate()) <= before


def test_a_rank_without_a_whole_sample_keeps_step(tmp_path: Path) -> None:
    root = _images(tmp_path, bad=(0,))
    counts = []
    for rank in range(2):
        layout.choose(layout.Layout(rank, 2, rank, 2))
        fed = _feed(root, 1, size=16, shuffle=False, damaged="skip")
        batches = list(fed)
        counts.append((len(batches), sum(batch.num_own for batch in batches)))
    assert counts == [(6, 5), (6, 6)]


def test_batches_that_are_kept_stay_as_they_were() -> None:
    kept = [batch[0] for batch in _feed(_numbers(500), 7, shuffle=False, threads=3, ahead=2)]
    assert torch.cat(kept)[:, 0].tolist() == list(range(500))


def test_buffers_are_reused_when_nobody_holds_them() -> None:
    places = set()
    for inputs, _ in _feed(Synthetic(4000, (8, 8, 3)), 10, threads=2, ahead=2):
        places.add(inputs.data_ptr())
        inputs = None
    assert len(places) <= 20  # Of 400 batches.


def test_tokens_are_inputs_and_targets(tmp_path: Path) -> None:
    path = samples.tokens(tmp_path / "a.npy")
    inputs, targets = next(iter(_feed(str(path), 4, window=100, shuffle=False)))
    assert inputs.dtype == torch.int64
    assert inputs[1].tolist() == list(range(100, 200))
    assert targets[1].tolist() == list(range(101, 201))


def _mean_colour(pixels):
    return pixels.reshape(-1, 3).mean(axis=0).astype(np.float32) + np.random.rand()


def test_the_users_python_runs_in_processes_and_draws_the_same(tmp_path: Path) -> None:
    root = _images(tmp_path, bad=(3,))
    found = []
    for processes, batch in ((1, 4), (3, 5)):
        fed = _feed(
            root, batch, transform=_mean_colour, processes=processes, damaged="skip", ahead=3
        )
        rows = {i: x for b in fed for i, x in zip(b.indices, b[0].tolist(), strict=True)}
        found.append(rows)
    assert found[0] == found[1]
    assert sorted(found[0]) == [i for i in range(12) if i != 3]


class _Fails:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        if index == 13:
            raise KeyError("no thirteen")
        return np.zeros(2), index


def test_errors_of_the_users_python_are_raised_where_the_batch_is_asked_for() -> None:
    with pytest.raises(RuntimeError, match="no thirteen"):
        list(_feed(_Fails(), 4, shuffle=False, processes=2))


def test_state_of_other_data_is_refused() -> None:
    state = _feed(_numbers(10), 2).state_dict()
    with pytest.raises(ValueError, match="10 samples, the data has 11"):
        _feed(_numbers(11), 2).load_state_dict(state)


def test_epochs_follow_each_other_and_the_last_batch_is_dropped_on_request() -> None:
    fed = _feed(_numbers(10), 4, last="drop")
    assert len(fed) == 2
    first, second = ([b.indices for b in fed] for _ in range(2))
    assert [len(i) for i in first] == [4, 4]
    assert first != second
    assert fed.state_dict()["epoch"] == 2


@pytest.mark.parametrize(
    "options", [{"batch": 0}, {"batch": 2, "last": "no"}, {"batch": 2, "damaged": "keep"}]
)
def test_nonsense_is_refused(options) -> None:
    with pytest.raises(ValueError, match=r"batch|damaged"):
        _feed(_numbers(5), **options)
