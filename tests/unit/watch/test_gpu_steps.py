"""Parts of a step on a GPU: laws on made-up intervals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.watch.diagnosis.gpu_steps import GpuStep, gpu_step_of
from paceline.watch.observer import torch_gpu

_LETTERS = st.sampled_from("nkhpdbw")
_TIMES = st.integers(0, 3_000_000)
_INTERVALS = st.lists(st.tuples(_LETTERS, _TIMES, _TIMES, st.integers(0, 3)), min_size=1)


def record(*rows: tuple[str, int, int, int], bounds: tuple[int, ...] = (0, 1_000_000)) -> Any:
    kinds, starts, durations, streams = zip(*rows, strict=True)
    return {
        "bounds_ns": bounds, "kinds": "".join(kinds), "starts_ns": starts,
        "durations_ns": durations, "streams": streams, "calls": {},
    }  # fmt: skip


def parts_us(*rows: tuple[str, int, int, int], **more: Any) -> list[float]:
    one = gpu_step_of(record(*rows, **more))
    assert one is not None
    named = (one.compute_s, one.communication_s, one.copies_s, one.idle_s)
    return [round(1e6 * part, 3) for part in named]


def test_what_kernels_hide_is_no_part_of_its_own():
    reduced = ("n", 100_000, 400_000, 1)
    assert parts_us(("k", 0, 600_000, 0), reduced) == [600, 0, 0, 400]
    assert parts_us(("k", 0, 200_000, 0), reduced) == [200, 300, 0, 500]
    assert parts_us(("h", 0, 700_000, 2), reduced) == [0, 400, 300, 300]


def test_work_of_two_streams_at_once_counts_once():
    assert parts_us(("k", 0, 500_000, 0), ("k", 200_000, 500_000, 1)) == [700, 0, 0, 300]


def test_what_lies_outside_of_the_steps_is_cut_off():
    rows = (("k", 0, 1_500_000, 0), ("k", 3_500_000, 9_000_000, 0))
    assert parts_us(*rows, bounds=(1_000_000, 2_500_000, 4_000_000)) == [500, 0, 0, 1000]


@given(rows=_INTERVALS)
def test_parts_add_up_to_a_step(rows: list[tuple[str, int, int, int]]):
    bounds = (500_000, 1_500_000, 2_500_000)
    one = gpu_step_of(record(*rows, bounds=bounds))
    assert one is not None
    parts = (one.compute_s, one.communication_s, one.copies_s, one.idle_s)
    assert min(parts) >= 0.0
    assert sum(parts) == pytest.approx(one.step_s) == pytest.approx(0.001)


@given(rows=_INTERVALS, added=st.tuples(st.just("k"), _TIMES, _TIMES, st.just(5)))
def test_a_further_kernel_adds_to_compute_and_to_nothing_else(
    rows: list[tuple[str, int, int, int]], added: tuple[str, int, int, int]
):
    bounds = (0, 3_000_000)
    before, after = np.array(parts_us(*rows, bounds=bounds)), parts_us(*rows, added, bounds=bounds)
    change = np.array(after) - before
    assert change[0] >= -0.01
    assert (change[1:] <= 0.01).all()


def test_nothing_recorded_is_no_step():
    assert gpu_step_of({}) is None
    assert gpu_step_of({"bounds_ns": [0, 1], "kinds": ""}) is None


def _activity(name: str, start: int, duration: int, *, on: str = "CUDA", note: bool = False):
    return SimpleNamespace(
        name=lambda: name, start_ns=lambda: start, duration_ns=lambda: duration,
        device_type=lambda: f"DeviceType.{on}", device_resource_id=lambda: 7,
        is_user_annotation=lambda: note,
    )  # fmt: skip


def test_activities_of_a_profiler_become_columns():
    seen = [
        _activity("Memcpy HtoD (Pageable -> Device)", 1_100, 10),
        _activity("Memcpy HtoD (Pinned -> Device)", 1_120, 10),
        _activity("Memcpy DtoH (Device -> Pinned)", 1_140, 10),
        _activity("Memcpy DtoD (Device -> Device)", 1_150, 10),
        _activity("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1_160, 10),
        _activity("sm90_xmma_gemm_f16f16", 1_000, 90),
        _activity("nccl:all_reduce", 1_160, 10, note=True),
        _activity("sm90_xmma_gemm_f16f16", 100, 90),
        _activity("cudaLaunchKernel", 1_000, 5, on="CPU"),
        _activity("cudaLaunchKernel", 1_020, 6, on="CPU"),
        _activity("aten::mm", 1_020, 6, on="CPU"),
    ]
    found = torch_gpu.record(seen, 900, [50, 400])
    assert found["kinds"] == "khpdwn"
    assert found["starts_ns"][0] == 100
    assert found["calls"] == {"cudaLaunchKernel": (2, 11)}
    one = gpu_step_of(found)
    assert isinstance(one, GpuStep)
    assert (one.num_launches, one.num_waits) == (2.0, 0.0)
    assert one.pageable_s == pytest.approx(10e-9)


class _Event:
    """An event of a GPU whose clock is a counter of milliseconds."""

    now_ms = 0.0

    def __init__(self, *, enable_timing: bool):
        assert enable_timing

    def record(self, _stream: object) -> None:
        self.at_ms = _Event.now_ms

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: _Event) -> float:
        return other.at_ms - self.at_ms


class _Profiler:
    def __init__(self, activities: list[str]):
        self.calls = [activities[0]]
        self.profiler = self
        self.kineto_results = SimpleNamespace(events=lambda: self.seen)
        self.seen: list[Any] = []

    def prepare_trace(self) -> None:
        self.calls.append("prepare")

    def start_trace(self) -> None:
        self.calls.append("start")

    def stop_trace(self) -> None:
        self.calls.append("stop")


@pytest.fixture
def gpu() -> SimpleNamespace:
    kinds = SimpleNamespace(CUDA="cuda")
    profiler = SimpleNamespace(ProfilerActivity=kinds, profile=_Profiler)
    cuda = SimpleNamespace(
        Event=_Event, current_stream=lambda _device: None, synchronize=lambda _device: None
    )
    return SimpleNamespace(cuda=cuda, profiler=profiler)


def test_steps_end_when_the_gpu_comes_to_their_end(gpu: SimpleNamespace):
    stamps = torch_gpu.Stamps(gpu, "cuda:0")
    for _Event.now_ms in (10.0, 15.0, 27.0):
        stamps.stamp()
    assert stamps.steps_ns() == [5_000_000, 12_000_000]


def test_a_profile_lays_steps_of_the_gpu_beside_what_the_profiler_saw(gpu: SimpleNamespace):
    _Event.now_ms = 100.0
    profile = torch_gpu.Profile(gpu, "cuda:0")
    profile.begin()
    stamps = torch_gpu.Stamps(gpu, "cuda:0")
    for _Event.now_ms in (102.0, 104.0, 106.0, 108.0):
        stamps.stamp()
    started_ns = profile.origin_ns
    profile.profiler.seen = [
        _activity("before", started_ns + 500_000, 1_000_000),
        _activity("kernel", started_ns + 3_000_000, 3_000_000),
    ]
    found = profile.end(stamps)
    assert profile.profiler.calls == ["cuda", "prepare", "start", "stop"]
    assert found["bounds_ns"] == [2_000_000, 4_000_000, 6_000_000, 8_000_000]
    assert (found["kinds"], found["starts_ns"]) == ("k", [3_000_000])
    one = gpu_step_of(found)
    assert one is not None
    assert (one.compute_s, one.step_s) == (pytest.approx(0.001), pytest.approx(0.002))
