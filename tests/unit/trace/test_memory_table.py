import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.trace import Owner, load_workload, monomials
from paceline.trace.memory_table import live_bytes, memory_table
from paceline.trace.program import Program

MODELS = ["resnet50", "gpt2", "lstm", "vgg16"]
PROGRAMS = {name: Program.from_graph(load_workload(name).passes[0].graph) for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
@given(batch=st.integers(1, 5000), seq=st.integers(1, 20_000))
@settings(max_examples=25)
def test_pruned_moments_hold_the_peak_everywhere(name, batch, seq):
    program = PROGRAMS[name]
    at = monomials(batch, seq)[0]
    whole = (live_bytes(program)[0].sum(axis=1) @ at).max()
    kept = (memory_table(program).by_owner.sum(axis=1) @ at).max()
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
    assert all(len(memory_table(p).op) < 20 for p in PROGRAMS.values())


def test_the_peak_without_gradients_and_state_is_also_kept():
    program = PROGRAMS["resnet50"]
    kept = [o for o in Owner if o not in (Owner.PARAMETER, Owner.GRADIENT, Owner.OPTIMIZER_STATE)]
    at = monomials(8, 1)[0]
    whole = (live_bytes(program)[0][:, kept].sum(axis=1) @ at).max()
    pruned = (memory_table(program).by_owner[:, kept].sum(axis=1) @ at).max()
    assert pruned == pytest.approx(whole, rel=1e-3)
    assert np.isfinite(pruned)
