"""The course of live bytes over a pass."""

import numpy as np
import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.live_bytes import live_by_owner, memory_course
from paceline.model.lowering import lifetimes, lower
from paceline.model.reading.load import load_workload

CASES = [("resnet50", {}), ("gpt2", {"checkpointing": "block"}), ("lstm", {"precision": "fp32"})]


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_highest_point_is_the_peak_of_the_memory_table(name, settings):
    graph, configuration = load_workload(name).passes[0].graph, Configuration(**settings)
    lowered = lower(graph, configuration)
    course = memory_course(graph, lowered, batch=8, seq=64)
    table = lowered.memory.by_owner @ monomials(8, 64)[0]
    assert course.peak_bytes == pytest.approx(table.sum(axis=1).max())
    assert max(course.moments_bytes) == course.peak_bytes
    assert 1 <= course.peak_op <= course.num_ops == len(lowered.costs.order)


def test_what_is_resident_is_there_from_the_first_op_to_the_last():
    graph = load_workload("resnet50").passes[0].graph
    lived, num_ops = lifetimes(graph, Configuration()), 10_000
    live = live_by_owner(lived, num_ops=num_ops, batch=4, seq=1)
    resident = lived.bytes_at(4, 1)[lived.is_resident()].sum()
    assert (live.sum(axis=1) >= resident * (1 - 1e-12)).all()
    assert live[-1].sum() < live.sum(axis=1).max()


def test_a_training_step_rises_through_the_forward_and_peaks_in_the_backward():
    graph = load_workload("resnet50").passes[0].graph
    course = memory_course(graph, lower(graph, Configuration()), batch=32, seq=1)
    forward = [
        m for m, p in zip(course.moments_bytes, course.phases, strict=True) if p == "forward"
    ]
    assert np.all(np.diff(forward) >= -0.02 * course.peak_bytes)
    assert course.peak_phase == "backward"


def test_a_pass_shorter_than_the_moments_has_one_per_op():
    graph = load_workload("mnist-cnn", task="infer").passes[0].graph
    course = memory_course(graph, lower(graph, Configuration()), batch=1, seq=1)
    assert len(course.moments_bytes) == len(course.phases) <= course.num_ops


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_owners_add_up_to_every_moment(name, settings):
    graph, configuration = load_workload(name).passes[0].graph, Configuration(**settings)
    course = memory_course(graph, lower(graph, configuration), batch=8, seq=64)
    assert np.sum(course.owned_bytes, axis=0) == pytest.approx(course.moments_bytes)
    assert len(course.owners) == len(course.owned_bytes)
    assert course.starts[0] == 1
    assert {"parameter", "gradient", "activation"} <= set(course.owners)
