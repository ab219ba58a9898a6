"""The tool that holds predicted memory against a GPU, as far as it runs without one."""

import sys

import pytest
from gpu import memory as gpu_memory
from gpu.memory import Figures, measured, off_frac, predicted, record, rows

from paceline.measurements.records import record_from_line, record_to_line
from paceline.model.graph.costs import Configuration
from warm_workers import WORKERS


def figures(live=2e6, allocated=3e6, reserved=4e6, process=5e8):
    return Figures(
        live_bytes=live, allocated_bytes=allocated, reserved_bytes=reserved, process_bytes=process
    )


def test_without_a_gpu_nothing_is_done_and_nothing_fails(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpu_memory, "open_nvml", lambda: None)
    monkeypatch.setattr(sys, "argv", ["gpu_memory.py", "--out", str(tmp_path / "records.jsonl")])
    gpu_memory.main()
    assert "needs an NVIDIA GPU" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.fixture
def forks(monkeypatch):
    """Its workers begin with PyTorch imported."""
    monkeypatch.setattr(gpu_memory, "subprocess", WORKERS)


def test_the_workers_measure_a_job_and_the_driver_is_asked_before_and_while_it_runs(forks):
    used = iter((1e9, 1.5e9))
    seen, software = measured("mlp", 4, device="cpu", used_bytes=lambda: next(used))
    assert seen.process_bytes == 0.5e9
    on_cpu = Configuration(precision="fp32", platform="cpu", optimizer_kernel="plain")
    assert abs(off_frac(seen, predicted("mlp", 4, on_cpu))) <= 0.02
    assert software["framework_version"].startswith("2.")


def test_a_job_that_fails_says_why(forks):
    with pytest.raises(RuntimeError, match="mlp: RuntimeError"):
        measured("mlp", -1, device="cpu", used_bytes=lambda: None)


@pytest.mark.parametrize("job", ["mlp", "gpt2", "lora"])
def test_live_allocated_reserved_and_process_are_in_order(job):
    told = predicted(job, 8)
    assert told.live_bytes <= told.allocated_bytes <= told.reserved_bytes < told.process_bytes


def test_what_was_seen_is_a_record_like_all_others():
    software = {"framework_version": "2.13.0", "platform_version": None, "python_version": "3.11"}
    kept = record("mlp", 8, figures(), software, device_name="A100", driver="580.1")
    assert record_from_line(record_to_line(kept)) == kept
    assert kept.reserved_bytes == 4e6


def test_figures_stand_side_by_side_and_the_error_is_of_live_tensors():
    seen, told = figures(process=None), figures(live=2.1e6)
    assert off_frac(seen, told) == pytest.approx(0.05)
    lines = list(rows("mlp", seen, told))
    assert lines[0].split() == ["mlp", "live", "2.0", "MB", "2.1", "MB", "+5.0%"]
    assert not any("process" in line for line in lines)
