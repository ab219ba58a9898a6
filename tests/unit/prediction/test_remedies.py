"""What would lower a peak: the same figures by two roads, and in the right direction."""

import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.live_bytes import memory_course
from paceline.model.lowering import lifetimes, lower
from paceline.model.reading.load import load_workload
from paceline.model.settings import read_settings
from paceline.prediction.memory.allocator import replay
from paceline.prediction.memory.remedies import memory_remedies

CASES = [("resnet50", "train", 32, 1), ("gpt2", "train", 8, 1024), ("bert-base", "train", 16, 128),
         ("gpt2", "infer", 4, 512), ("lstm", "train", 64, 200)]  # fmt: skip


def remedied(name, task, batch, seq):
    graph = load_workload(name, task=task).passes[0].graph
    lowered = lower(graph, Configuration())
    return graph, memory_remedies(graph, lowered, task=task, batch=batch, seq=seq)


@pytest.mark.parametrize(("name", "task", "batch", "seq"), CASES)
def test_each_saving_is_that_of_the_rewrite_storage_by_storage(name, task, batch, seq):
    graph, remedies = remedied(name, task, batch, seq)
    before = memory_course(graph, lower(graph, Configuration()), batch=batch, seq=seq).peak_bytes
    assert remedies
    for one in remedies:
        configuration = read_settings(one.settings, Configuration())
        after = memory_course(graph, lower(graph, configuration), batch=batch, seq=seq).peak_bytes
        assert one.peak_bytes == pytest.approx(after, rel=1e-9)
        assert one.saved_bytes == pytest.approx(before - after, rel=1e-6)


@pytest.mark.parametrize(("name", "task", "batch", "seq"), CASES[:2])
def test_the_allocator_saves_what_is_told(name, task, batch, seq):
    """Up to 5 %: a block is handed out whole where less than 1 MiB of it would be left."""
    graph, remedies = remedied(name, task, batch, seq)
    before = replay(lifetimes(graph, Configuration()), batch=batch, seq=seq).allocated_bytes
    for one in remedies:
        configuration = read_settings(one.settings, Configuration())
        after = replay(lifetimes(graph, configuration), batch=batch, seq=seq).allocated_bytes
        assert before - after == pytest.approx(one.saved_bytes, rel=0.05, abs=8e6)


@pytest.mark.parametrize(("name", "task", "batch", "seq"), CASES)
def test_most_comes_first_and_trifles_are_left_out(name, task, batch, seq):
    _, remedies = remedied(name, task, batch, seq)
    saved = [one.saved_bytes for one in remedies]
    assert saved == sorted(saved, reverse=True)
    assert all(one.saved_bytes >= 0.01 * (one.saved_bytes + one.peak_bytes) for one in remedies)


def test_recomputing_costs_at_most_one_more_forward_pass_and_offload_none():
    _, remedies = remedied("resnet50", "train", 32, 1)
    work = {one.settings: one.flop_factor for one in remedies}
    assert 1.0 < work["checkpointing=block"] <= work["checkpointing=full"] <= 1.36
    assert work["offload=activations"] == pytest.approx(1.0, rel=1e-3)


def test_what_is_done_already_is_no_remedy():
    graph = load_workload("resnet50").passes[0].graph
    lowered = lower(graph, Configuration(checkpointing="block"))
    found = memory_remedies(graph, lowered, task="train", batch=32, seq=1)
    assert "checkpointing=block" not in [one.settings for one in found]
