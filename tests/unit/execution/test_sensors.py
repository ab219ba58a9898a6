"""Readings of recorded GPUs add up to energy, power and reasons; the CPU's are real."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_machines import gpu_machine

from paceline.catalog.entities import Machine
from paceline.execution.cells import Cell
from paceline.execution.conditions import Place, Settings
from paceline.execution.machine.facts import GpuFacts
from paceline.execution.machine.nvml import GpuSample, open_nvml
from paceline.execution.machine.sensors import Reading, Sensors, summarize
from paceline.execution.recording import build_record
from paceline.execution.stacks import Stack, stack_specs
from paceline.execution.worker import WorkerResult

SAMPLE = GpuSample(
    utilization_frac=0.9,
    used_memory_bytes=10e9,
    power_w=300.0,
    energy_j=None,
    sm_clock_hz=1.98e9,
    temperature_c=60.0,
)


def reading(at_s, *gpus, **changes):
    base = Reading(
        at_s=at_s, gpus=gpus, cpu_s=at_s, resident_bytes=1e9, cpu_energy_j=None, is_shared=False
    )
    return replace(base, **changes)


class RecordedNvml:
    """Two GPUs; another process computes on the second."""

    def driver_version(self):
        return "580.82"

    def cuda_version(self):
        return "13.0"

    def gpus(self):
        return (GpuFacts(name="NVIDIA H100 80GB HBM3", vendor="NVIDIA"),) * 2

    def sample(self, index):
        return replace(SAMPLE, temperature_c=60.0 + index)

    def process_ids(self, index):
        return (os.getpid(), 999_999_999) if index == 1 else (os.getpid(),)


def test_only_watched_gpus_are_read_and_a_stranger_is_noticed():
    assert len(Sensors(RecordedNvml(), [0]).read(os.getpid()).gpus) == 1
    assert Sensors(RecordedNvml(), [0]).read(os.getpid()).is_shared is False
    assert Sensors(RecordedNvml(), [0, 1]).read(os.getpid()).is_shared is True


def test_without_a_library_there_are_no_gpus_and_sharing_is_unknown():
    read = Sensors(None, [0, 1]).read(os.getpid())
    assert read.gpus == ()
    assert read.is_shared is None
    assert read.resident_bytes > 1e6
    assert read.cpu_s > 0


@given(st.lists(st.floats(0.01, 10.0), min_size=1, max_size=20), st.floats(1.0, 1000.0))
def test_constant_power_integrates_to_power_times_time(steps, power_w):
    times = [0.0]
    for step in steps:
        times.append(times[-1] + step)
    summary = summarize(
        [reading(t, replace(SAMPLE, power_w=power_w)) for t in times], num_threads=1
    )
    assert summary is not None
    assert summary.energy_j == pytest.approx(power_w * times[-1])
    assert summary.mean_power_w == pytest.approx(power_w)


def test_the_counter_is_believed_before_the_integral():
    readings = [reading(t, replace(SAMPLE, energy_j=1000.0 + 100.0 * t)) for t in (0.0, 1.0, 2.0)]
    summary = summarize(readings, num_threads=1)
    assert summary is not None
    assert summary.energy_j == pytest.approx(200.0)


def test_energy_adds_over_gpus_and_power_is_of_one():
    summary = summarize([reading(t, SAMPLE, SAMPLE) for t in (0.0, 2.0)], num_threads=1)
    assert summary is not None
    assert summary.energy_j == pytest.approx(1200.0)
    assert summary.mean_power_w == pytest.approx(300.0)


def test_what_no_sensor_told_is_none():
    silent = GpuSample()
    summary = summarize([reading(t, silent) for t in (0.0, 1.0)], num_threads=1)
    assert summary is not None
    assert (summary.energy_j, summary.mean_power_w, summary.mean_clock_hz) == (None, None, None)
    assert (summary.utilization_frac, summary.temperature_c) == (None, None)
    assert summary.peak_device_bytes is None


def test_reasons_and_strangers_at_any_moment_count():
    throttled = replace(SAMPLE, throttle_reasons=("power limit",))
    readings = [
        reading(0.0, SAMPLE),
        reading(1.0, throttled, is_shared=True),
        reading(2.0, SAMPLE),
    ]
    summary = summarize(readings, num_threads=1)
    assert summary is not None
    assert summary.throttle_reasons == ("power limit",)
    assert summary.is_shared


def test_cpu_share_counts_the_threads_it_may_use():
    readings = [reading(0.0), reading(1.0, cpu_s=1.5)]
    summary = summarize(readings, num_threads=2)
    assert summary is not None
    assert summary.utilization_frac == pytest.approx(0.75)


def test_one_reading_says_nothing():
    assert summarize([reading(0.0)], num_threads=1) is None


def test_processor_energy_is_summed_over_packages_and_may_be_missing(tmp_path):
    for number, count in ((0, "1000000"), (1, "2000000")):
        folder = tmp_path / f"intel-rapl:{number}"
        folder.mkdir()
        (folder / "energy_uj").write_text(count)
    assert Sensors(None, rapl=tmp_path).read(os.getpid()).cpu_energy_j == pytest.approx(3.0)
    assert Sensors(None, rapl=tmp_path / "none").read(os.getpid()).cpu_energy_j is None


def gpu_record():
    cell = Cell(
        workload="m", mode="step", batch_per_device=8, num_devices=2, precision="bf16",
        compiler="eager", stack="torch",
    )  # fmt: skip
    place = Place(
        facts=gpu_machine(2),
        machine=Machine(name="m", device_name="H100 SXM5 80GB", num_devices=2),
        fingerprint="abc",
        sensors=Sensors(None),
    )
    readings = tuple(reading(t, SAMPLE, SAMPLE) for t in (0.0, 1.0, 2.0))
    answer = {"samples_s": [0.01] * 100, "warmup_s": [0.01], "framework_version": "2.13.0"}
    result = WorkerResult(ending="ok", answer=answer, readings=readings)
    stack = Stack(spec=stack_specs()["torch"], python=Path("python"))
    return build_record(cell, stack, result, place, Settings(device="cuda"))


def test_a_record_of_gpus_has_their_sensors_per_step():
    record = gpu_record()
    assert record.device_name == "H100 SXM5 80GB"
    assert record.process_bytes == 10e9
    assert record.energy_j == pytest.approx(1200.0 / 200)
    assert record.power_limit_w == 700.0
    assert record.clock_hz == 1.98e9
    assert record.samples_per_s == pytest.approx(1600)
    assert record.strategy == "dp2"


@pytest.mark.gpu
def test_sensors_of_this_machine():
    nvml = open_nvml()
    assert nvml is not None
    readings = [Sensors(nvml, [0]).read(os.getpid()) for _ in range(3)]
    summary = summarize(readings, num_threads=1)
    assert summary is not None
    assert summary.peak_device_bytes > 0
