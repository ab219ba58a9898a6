"""The timing loop and the helpers that all engines share."""

import importlib.util
import itertools
import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.execution.worker import WORKERS

SPEC = importlib.util.spec_from_file_location("engine", WORKERS / "engine.py")
assert SPEC is not None
engine = importlib.util.module_from_spec(SPEC)
assert SPEC.loader is not None
SPEC.loader.exec_module(engine)

SETTINGS = {
    "min_samples": 10, "max_samples": 40, "min_s": 0.0, "max_s": 100.0, "max_warmup_s": 50.0,
    "min_sample_s": 0.0,
}  # fmt: skip


class FakeClock:
    """Time passes only while a step runs."""

    def __init__(self, steps):
        self.now = 0.0
        self.steps = iter(steps)

    def perf_counter(self):
        return self.now

    def step(self):
        self.now += next(self.steps)


def timed(monkeypatch, steps, **changes):
    clock = FakeClock(steps)
    monkeypatch.setattr(engine.time, "perf_counter", clock.perf_counter)
    settings = {**SETTINGS, **changes}
    return engine.time_steps(clock.step, lambda: None, settings, lambda **event: None)


def test_a_steady_step_is_steady_after_ten(monkeypatch):
    result = timed(monkeypatch, itertools.repeat(0.1))
    assert result["is_steady"]
    assert len(result["warmup_s"]) == 10
    assert result["samples_s"] == pytest.approx([0.1] * 10)


def test_slow_first_steps_are_no_samples(monkeypatch):
    steps = itertools.chain([5.0, 2.0, 1.0, 0.5], itertools.repeat(0.1))
    result = timed(monkeypatch, steps)
    assert result["first_step_s"] == 5.0
    assert max(result["samples_s"]) == pytest.approx(0.1)


def test_a_step_that_never_settles_is_measured_and_marked(monkeypatch):
    steps = itertools.cycle([0.1, 0.1, 0.1, 0.1, 0.1, 0.4, 0.4, 0.4, 0.4, 0.4])
    result = timed(monkeypatch, itertools.chain([0.1], steps), max_warmup_s=4.0)
    assert not result["is_steady"]
    assert result["samples_s"]


def test_short_steps_are_timed_together(monkeypatch):
    result = timed(monkeypatch, itertools.repeat(0.001), min_sample_s=0.02)
    assert result["steps_per_sample"] == 20
    assert result["samples_s"][0] == pytest.approx(0.001)


def test_time_ends_the_sampling(monkeypatch):
    result = timed(monkeypatch, itertools.repeat(10.0), max_s=25.0)
    assert len(result["samples_s"]) == 3


@pytest.mark.parametrize("alone_frac", [1.0, 0.5, 0.0])
def test_work_of_one_thread_counts_whole_and_shared_work_its_share(monkeypatch, alone_frac):
    """Of 0.1 s that two threads compute, one takes half to all; or it waits for both others."""
    spent_s = {True: 0.0, False: 0.0}

    def step():
        spent_s[True] += 0.1 * alone_frac
        spent_s[False] += 0.1

    monkeypatch.setattr(engine.time, "thread_time", lambda: spent_s[True])
    monkeypatch.setattr(engine.time, "process_time", lambda: spent_s[False] + 7.0)
    settings = {**SETTINGS, "processors": 2}
    result = engine.time_steps(step, lambda: None, settings, lambda **event: None)
    assert result["samples_s"] == pytest.approx([0.1 * max(alone_frac, 0.5)] * 10)


def test_pages_of_a_step_are_those_that_it_maps_and_writes():
    mapped_bytes = 4 * 2**20

    def step():
        with mmap.mmap(-1, mapped_bytes) as block:
            for place in range(0, mapped_bytes, mmap.PAGESIZE):
                block[place] = 1

    found = engine.time_steps(step, lambda: None, SETTINGS, lambda **event: None)["fresh_bytes"]
    assert found is None or found == pytest.approx(mapped_bytes, rel=0.1)


@pytest.mark.parametrize("every", [1, 4])
def test_a_step_that_takes_pages_now_and_then_is_timed_in_groups(monkeypatch, every):
    """Each page takes its time: the median of samples must be near the mean of steps."""
    given_bytes, steps = [0], itertools.count()
    paged_s = 40e6 / 2e9

    class Clock(FakeClock):
        def step(self):
            takes = next(steps) % every == 0
            given_bytes[0] += 40e6 * takes
            self.now += 0.01 + paged_s * takes

    clock = Clock([])
    monkeypatch.setattr(engine.time, "perf_counter", clock.perf_counter)
    monkeypatch.setattr(engine, "_handed_out_bytes", lambda: given_bytes[0])
    settings = {**SETTINGS, "min_s": 1.0}
    result = engine.time_steps(clock.step, lambda: None, settings, lambda **event: None)
    assert (result["steps_per_sample"] > 1) == (every > 1)
    mean_s = 0.01 + paged_s / every
    assert engine.median(result["samples_s"]) == pytest.approx(mean_s, rel=0.1)
    taken_s = sum(result["samples_s"]) * result["steps_per_sample"]
    assert taken_s < 2 * 5 * settings["min_s"]


def test_ranks_do_what_rank_zero_says(monkeypatch):
    clock = FakeClock(itertools.repeat(0.1))
    monkeypatch.setattr(engine.time, "perf_counter", clock.perf_counter)
    said = []

    def agree(value):
        said.append(value)
        return value

    result = engine.time_steps(clock.step, lambda: None, SETTINGS, lambda **event: None, agree)
    # One decision after each warm-up step and each sample, and one about the block.
    assert len(said) == len(result["warmup_s"]) + len(result["samples_s"]) + 1


@given(st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=30))
def test_median_agrees_with_the_standard_library(values):
    import statistics

    assert engine.median(values) == pytest.approx(statistics.median(values))


def test_inputs_are_the_same_numbers_every_time():
    first, shape = engine.sample_inputs("image", (3, 8, 8), 2, 1, 0)
    again, _ = engine.sample_inputs("image", (3, 8, 8), 2, 1, 0)
    assert first == again
    assert shape == [2, 3, 8, 8]
    assert len(first) == 2 * 3 * 8 * 8
    assert -1.0 <= min(first) < max(first) <= 1.0


def test_tokens_are_below_the_vocabulary():
    tokens, shape = engine.sample_inputs("text", None, 4, 600, 1000)
    assert shape == [4, 600]
    assert 0 <= min(tokens) < max(tokens) < 1000


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: [enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 154140672000 bytes. Error code 12 (Cannot allocate memory)",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 8589934592 bytes.",
        "ResourceExhaustedError: OOM when allocating tensor with shape[4096,4096]",
        "std::bad_alloc",
        "MXNetError: cudaMalloc retry failed: out of memory",
    ],
)
def test_frameworks_words_for_out_of_memory(message):
    assert engine.is_oom(message)


def test_other_errors_are_not_out_of_memory():
    assert not engine.is_oom("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
