from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.columns import take_rows
from paceline.model.graph.graph import EXPONENTS, Owner, monomials
from paceline.model.graph.program import OUTLIVES, Program, Stores
from paceline.model.memory_table import live_bytes, memory_table
from paceline.model.reading.load import load_workload

MODELS = ["resnet50", "gpt2", "lstm", "vgg16"]
PROGRAMS = {name: Program.from_graph(load_workload(name).passes[0].graph) for name in MODELS}
LIVE = {name: live_bytes(program)[0] for name, program in PROGRAMS.items()}
TABLES = {name: memory_table(program) for name, program in PROGRAMS.items()}


@pytest.mark.parametrize("name", MODELS)
@given(batch=st.integers(1, 5000), seq=st.integers(1, 20_000))
@settings(max_examples=25)
def test_pruned_moments_hold_the_peak_everywhere(name, batch, seq):
    at = monomials(batch, seq)[0]
    whole = (LIVE[name].sum(axis=1) @ at).max()
    kept = (TABLES[name].by_owner.sum(axis=1) @ at).max()
    assert whole * (1 - 1e-3) <= kept <= whole


def test_live_bytes_are_what_a_loop_over_storages_counts():
    program = PROGRAMS["lstm"]
    at = monomials(3, 7)[0]
    by_owner, count = live_bytes(program)
    stores = program.stores
    size = stores.num_bytes() @ at
    for op in range(len(program.ops)):
        alive = (stores.birth <= op) & (stores.death >= op)
        assert count[op] == alive.sum()
        for owner in Owner:
            expected = size[alive & (stores.owner == owner)].sum()
            assert by_owner[op, owner] @ at == pytest.approx(expected)


def test_few_moments_are_kept():
    assert all(len(table.op) < 20 for table in TABLES.values())


#: What strategies shard away: gradients (ZeRO-2), or all that is kept between steps.
SHARDED = (
    (Owner.GRADIENT,),
    (Owner.PARAMETER, Owner.GRADIENT, Owner.OPTIMIZER_STATE, Owner.MASTER_WEIGHT),
)


@pytest.mark.parametrize("removed", SHARDED, ids=["gradients", "all state"])
@pytest.mark.parametrize("name", MODELS)
@given(batch=st.integers(1, 5000), seq=st.integers(1, 20_000))
@settings(max_examples=25)
def test_the_peak_without_what_is_sharded_is_also_kept(name, removed, batch, seq):
    live, table = LIVE[name], TABLES[name]
    kept = [owner for owner in Owner if owner not in removed]
    at = monomials(batch, seq)[0]
    whole = (live[:, kept].sum(axis=1) @ at).max()
    pruned = (table.by_owner[:, kept].sum(axis=1) @ at).max()
    assert whole * (1 - 1e-3) <= pruned <= whole


@pytest.mark.parametrize("name", MODELS)
@given(batch=st.integers(1, 5000), seq=st.integers(1, 20_000))
@settings(max_examples=25)
def test_the_largest_storage_that_comes_or_goes_is_kept(name, batch, seq):
    """Gradients come in the pass and outlive it; inputs are there before and go in it."""
    stores, at = PROGRAMS[name].stores, monomials(batch, seq)[0]
    passes = (stores.birth >= 0) | (stores.death < OUTLIVES)
    largest = (stores.num_bytes()[passes] @ at).max()
    assert (TABLES[name].largest_bytes @ at).max() == pytest.approx(largest)


def made_up(sizes, op, owner=Owner.ACTIVATION):
    """A program of three ops; each storage, of ``sizes`` (num_storages, 9), is alive in one."""
    program = PROGRAMS["lstm"]
    count = len(sizes)
    stores = Stores(
        elements=np.asarray(sizes, float), element_bytes=np.ones(count),
        owner=np.full(count, owner, int), birth=np.asarray(op),
        death=np.asarray(op), is_floating=np.ones(count, bool),
        is_wide=np.zeros(count, bool), is_trainable=np.zeros(count, bool),
    )  # fmt: skip
    none = program.reads.kept(np.zeros(len(program.reads.op), bool))
    ops = take_rows(program.ops, np.arange(3))
    return replace(program, ops=ops, reads=none, writes=none, stores=stores)


def of(**powers):
    """Bytes as a polynomial: ``of(b=3, s=2, b2=1)`` is 3 B + 2 S + B²."""
    exponents = {"one": (0, 0), "b": (1, 0), "s": (0, 1), "bs": (1, 1), "s2": (0, 2)}
    row = np.zeros(len(EXPONENTS))
    for name, value in powers.items():
        row[EXPONENTS.index(exponents[name])] = value
    return row


@pytest.mark.parametrize(
    ("first", "second", "points"),
    [
        (of(one=1000), of(b=1), [(1, 1), (4096, 1)]),
        (of(b=100), of(bs=1), [(1, 1), (1, 4096)]),
        (of(b=1000), of(s=1), [(1, 1), (1, 16384)]),
        (of(s=3000), of(s2=1), [(1, 1), (1, 16384)]),
        (of(one=3e5), of(b=1), [(1, 1), (1_000_000, 1)]),
    ],
)
def test_two_moments_that_are_the_peak_at_different_sizes_are_both_kept(first, second, points):
    """One storage during the first op, another during the third, nothing between."""
    program = made_up([first, second], [0, 2])
    table = memory_table(program)
    assert table.op.tolist() == [0, 2]
    for batch, seq in points:
        at = monomials(batch, seq)[0]
        peak = (table.by_owner.sum(axis=1) @ at).max()
        assert peak == max(first @ at, second @ at)


def test_a_moment_that_is_the_peak_once_others_are_sharded_away_is_kept():
    """Whole, the gradient of the third op is the peak; without it the state of the second."""
    owners = [Owner.ACTIVATION, Owner.OPTIMIZER_STATE, Owner.GRADIENT]
    table = memory_table(made_up([of(b=1000), of(b=3000), of(b=9000)], [0, 1, 2], owners))
    assert table.op.tolist() == [0, 1, 2]
    assert table.num_allocations.tolist() == [1, 1, 1]
