"""Graphs at any side: polynomials through five sides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidInputError
from paceline.model.graph.sides import NUM_SIDES, Sides, at_position, differences
from paceline.model.graph.store import save_sides, save_workload
from paceline.model.reading.load import load_workload

SIDES = Sides(usual=572, first=540, step=16, least=188)


@given(st.lists(st.integers(-50, 50), min_size=5, max_size=5), st.integers(-8, 300))
def test_whole_numbers_of_the_fourth_power_are_whole_everywhere(coefficients, position):
    values = np.array([[np.polyval(coefficients, float(at)) for at in range(NUM_SIDES)]])
    found = at_position(differences(values), position)
    assert found.tolist() == [np.polyval(coefficients, float(position))]


def test_a_constant_has_no_noise_however_far():
    assert at_position(differences(np.full((1, NUM_SIDES), 0.1)), 10_000).tolist() == [0.1]


def test_sides_are_counted_from_the_first_and_others_are_refused_with_their_neighbours():
    assert SIDES.traced() == (540, 556, 572, 588, 604)
    assert SIDES.position(572, name="x") == 2
    assert SIDES.position(188, name="x") == -22
    with pytest.raises(InvalidInputError, match="12 above a multiple of 16, from 188") as refused:
        SIDES.position(600, name="x")
    assert refused.value.hint == "give --image-size 588 or 604"
    with pytest.raises(InvalidInputError) as refused:
        SIDES.position(100, name="x")
    assert refused.value.hint == "give --image-size 188 or 204"


def test_a_model_whose_operations_change_with_the_side_is_not_written(tmp_path):
    others = [load_workload(name, task="infer") for name in ("lstm", "mnist-cnn")]
    sides = Sides(usual=2, first=2, step=1, least=1)
    with pytest.raises(ValueError, match="change with the side"):
        save_sides([others[0], *[others[1]] * 4], sides, tmp_path / "no.npz")


def test_a_shipped_graph_of_pictures_answers_at_other_sides_without_a_worker(monkeypatch):
    monkeypatch.setattr("paceline.model.reading.worker.run_worker", None)
    usual, twice = (load_workload("published_volumes:vnet", image_size=s) for s in (None, 64))
    assert twice.input_description == "volumes of 64×64×64 voxels"
    assert twice.sample_bytes == 8 * usual.sample_bytes
    with pytest.raises(InvalidInputError, match="multiple of 8"):
        load_workload("published_volumes:vnet", image_size=30)


def test_what_is_saved_at_a_side_is_of_that_side(tmp_path):
    at = load_workload("published_volumes:vnet", task="infer", image_size=64)
    save_workload(at, tmp_path / "at.npz")
    again = load_workload(str(tmp_path / "at.npz"), image_size=64)
    assert np.array_equal(again.passes[0].graph.ops.flop, at.passes[0].graph.ops.flop)
    with pytest.raises(InvalidInputError, match="traced on volumes of 64"):
        load_workload(str(tmp_path / "at.npz"), image_size=32)
