"""Live, allocated, reserved, process: each is the one before and what is added to it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Owner
from paceline.model.lowering import Lifetimes, lower
from paceline.model.reading.load import load_workload
from paceline.prediction.memory.allocator import replay
from paceline.prediction.memory.peak import (
    live_at_peak,
    peak_by_owner_bytes,
    peak_memory_bytes,
    process_memory,
)
from paceline.prediction.prediction import Points

MIB = 2**20
PLATFORMS = ("cuda", "rocm", "cpu", "xla")
POINTS = Points(batch=np.array([1.0, 8.0, 64.0]), seq=np.array([128.0, 512.0, 1024.0]))


@pytest.fixture(scope="module")
def memory():
    return lower(load_workload("gpt2").passes[0].graph, Configuration()).memory


def allocated_bytes(memory, platform):
    """Live tensors at the peak, each rounded up by half the allocator's granularity."""
    live, num_allocations = live_at_peak(memory, POINTS)
    return live + 0.5 * process_memory(platform).round_bytes * num_allocations


def reserved_bytes(allocated, platform):
    """Segments that the caching allocator holds at that peak, median over jobs."""
    added = process_memory(platform)
    return allocated * (1 + added.fragmentation_mid_frac) + added.slack_mid_bytes


@pytest.mark.parametrize("platform", PLATFORMS)
def test_process_is_reserved_and_workspaces_and_context(memory, platform):
    added = process_memory(platform)
    allocated = allocated_bytes(memory, platform)
    _, mid, _ = peak_memory_bytes(memory, POINTS, platform=platform)
    reserved = reserved_bytes(allocated, platform)
    assert mid - reserved == pytest.approx(added.workspace_bytes + added.context_mid_bytes)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_each_figure_is_at_least_the_one_before(memory, platform):
    live = peak_by_owner_bytes(memory, POINTS).sum(axis=0)
    allocated = allocated_bytes(memory, platform)
    reserved = reserved_bytes(allocated, platform)
    low, mid, high = peak_memory_bytes(memory, POINTS, platform=platform)
    assert (live <= allocated).all()
    assert (allocated <= reserved).all()
    assert (reserved < mid).all()
    assert (live + process_memory(platform).context_low_bytes <= low).all()
    assert (low <= mid).all()
    assert (mid < high).all()


def test_an_empty_job_is_the_context_and_the_workspaces():
    nothing = lower(load_workload("mnist-cnn", task="infer").passes[0].graph, Configuration())
    tiny = Points(batch=np.ones(1), seq=np.ones(1))
    _, mid, _ = peak_memory_bytes(nothing.memory, tiny, platform="cuda")
    added = process_memory("cuda")
    rest = mid[0] - added.context_mid_bytes - added.workspace_bytes - added.slack_mid_bytes
    assert 0 < rest < 1e6


@st.composite
def jobs(draw):
    """Storages of a few bytes to 40 MiB that come and go, some of them resident."""
    count = draw(st.integers(1, 40))
    size = np.array(draw(st.lists(st.integers(1, 40 * MIB), min_size=count, max_size=count)))
    birth = np.array(draw(st.lists(st.integers(-1, 30), min_size=count, max_size=count)))
    length = np.array(draw(st.lists(st.integers(0, 20), min_size=count, max_size=count)))
    num_bytes = np.zeros((count, 9))
    num_bytes[:, 0] = size
    return Lifetimes(
        num_bytes=num_bytes,
        owner=np.full(count, int(Owner.ACTIVATION)),
        birth=birth,
        death=np.maximum(birth, 0) + length,
    )


def live_peak(job, round_bytes):
    sizes = -(-job.num_bytes[:, 0] // round_bytes) * round_bytes
    times = np.arange(0, 60)[:, None]
    alive = (np.maximum(job.birth, 0) <= times) & (times <= job.death)
    return (alive * sizes).sum(axis=1).max()


@given(jobs())
def test_a_replay_holds_what_lives_rounded_and_little_more(job):
    """Of a block at most 1 MiB is handed out beside what was asked for."""
    peak = replay(job, batch=1)
    assert live_peak(job, 512) <= peak.allocated_bytes
    assert peak.allocated_bytes <= live_peak(job, 512) + MIB * len(job.birth)
    assert peak.allocated_bytes <= peak.reserved_bytes
    assert peak.reserved_bytes % (2 * MIB) == 0


@given(jobs(), st.integers(2, 5))
def test_a_later_step_meets_the_segments_of_the_first(job, num_steps):
    """Segments are kept: reserved never falls, and what was reserved once is enough."""
    one, many = replay(job, batch=1, num_steps=1), replay(job, batch=1, num_steps=num_steps)
    assert one.reserved_bytes <= many.reserved_bytes
    assert replay(job, batch=1, capacity_bytes=many.reserved_bytes, num_steps=num_steps).fits


@given(jobs())
def test_less_than_what_lives_never_fits(job):
    assert not replay(job, batch=1, capacity_bytes=live_peak(job, 512) - 1).fits


@given(jobs(), st.floats(1.0, 64.0))
def test_shorter_sequences_before_the_longest_leave_segments_behind(job, seq):
    """What is alive at the longest stays the same; what the process holds never shrinks by them."""
    longer = replace(job, num_bytes=np.roll(job.num_bytes, 2, axis=1))
    one, varied = (replay(longer, batch=1, seq=seq, varies=v) for v in (False, True))
    assert varied.allocated_bytes >= one.allocated_bytes - MIB * len(job.birth)
    assert varied.reserved_bytes >= one.allocated_bytes - MIB * len(job.birth)


@given(jobs(), st.lists(st.integers(1, 64 * MIB), min_size=1, max_size=8))
def test_what_is_there_first_leaves_its_segments_or_gives_them_back(job, first):
    """All of it at once is the least that is reserved, and a job takes what it finds."""
    plain = replay(job, batch=1)
    kept, gone = (
        replay(job, batch=1, first_bytes=first, keeps_first=keeps) for keeps in (True, False)
    )
    assert min(kept.allocated_bytes, gone.allocated_bytes) >= sum(first)
    assert min(kept.reserved_bytes, gone.reserved_bytes) >= sum(first)
    for one in (kept, gone):
        assert one.reserved_bytes <= plain.reserved_bytes + sum(first) + 20 * MIB * len(first)
    assert gone.reserved_bytes >= plain.reserved_bytes


@given(jobs())
def test_lengths_that_no_tensor_has_change_no_replay(job):
    one, varied = (replay(job, batch=1, num_steps=17, varies=v) for v in (False, True))
    assert one == varied
