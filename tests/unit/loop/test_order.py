"""Laws of the order of samples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from paceline.loop import order  # noqa: E402

EPOCHS = st.builds(
    order.Epoch,
    count=st.integers(1, 300),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 1000),
    is_shuffled=st.booleans(),
    global_batch=st.integers(1, 70),
    drops_last=st.booleans(),
    indices=st.none(),
)


@given(EPOCHS, st.integers(1, 9), st.data())
def test_all_ranks_read_every_sample_once_wherever_they_begin(epoch, ranks, data) -> None:
    start = data.draw(st.integers(0, epoch.count))
    parts = [list(order.shares(epoch, start, rank, ranks)) for rank in range(ranks)]
    seen = []
    for shares in zip(*parts, strict=True):
        own = [index for share in shares for index in share.indices[: share.num_own]]
        assert len(own) == shares[0].batch == sum(share.num_own for share in shares)
        assert max(s.num_own for s in shares) - min(s.num_own for s in shares) <= 1
        assert all(len(share.indices) == max(1, share.num_own) for share in shares)
        seen += own
    end = order.end_of(epoch, start)
    assert seen == order.samples_at(epoch, start, end)
    assert len(parts[0]) == order.num_batches(epoch, start)
    whole = order.samples_at(epoch, 0, epoch.count)
    assert sorted(whole) == list(range(epoch.count))
    assert whole[start:end] == seen


@given(EPOCHS, st.lists(st.tuples(st.integers(1, 8), st.integers(0, 12)), max_size=6))
def test_kills_and_other_ranks_change_no_batch(epoch, lives) -> None:
    """A run that is killed again and again reads what an undisturbed one does."""
    undisturbed = [share.indices for share in order.shares(epoch, 0, 0, 1)]
    position, seen = 0, []
    for ranks, num_steps in [*lives, (1, 10**6)]:
        parts = [order.shares(epoch, position, rank, ranks) for rank in range(ranks)]
        for shares, _ in zip(zip(*parts, strict=True), range(num_steps), strict=False):
            seen.append([index for share in shares for index in share.indices[: share.num_own]])
            size, own = order.sizes_at(epoch, position, 0, ranks)
            assert (size, own) == (shares[0].batch, shares[0].num_own)
            position += size
    assert seen == undisturbed


def test_epochs_and_seeds_differ_and_shuffle_well() -> None:
    orders = {
        tuple(order.permuted(torch.arange(50), 50, seed, epoch).tolist())
        for seed in range(20)
        for epoch in range(20)
    }
    assert len(orders) == 400
    first = [found[0] for found in orders]
    assert len(set(first)) == 50
    # Neighbours do not stay neighbours: their mean distance is a third of the length.
    large = order.permuted(torch.arange(30_000), 30_000, 7, 1)
    distance = (large[1:] - large[:-1]).abs().double().mean().item()
    assert 9_700 < distance < 10_300


def test_a_position_of_ten_billion_costs_nothing() -> None:
    count = 10**10
    found = order.permuted(torch.tensor([0, count // 2, count - 1]), count, 3, 2)
    assert len(set(found.tolist())) == 3
    assert all(0 <= one < count for one in found.tolist())


def test_an_order_given_by_a_sampler_is_kept() -> None:
    epoch = order.Epoch(6, 1, 0, True, 4, False, [9, 9, 3, 1, 0, 2])
    assert [share.indices for share in order.shares(epoch, 2, 0, 1)] == [[3, 1, 0, 2]]


@given(st.integers(0, 2**63), st.integers(0, 10**6), st.integers(0, 10**12))
def test_seeds_of_samples_are_64_bits_and_differ(seed, epoch, index) -> None:
    found = order.seed_of(seed, epoch, index)
    assert 0 <= found < 2**64
    assert found != order.seed_of(seed, epoch + 1, index) != order.seed_of(seed, epoch, index + 1)
