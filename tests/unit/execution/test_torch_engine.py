"""The PyTorch engine for real: small models, two ranks, the edge of memory, a user's own module."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from run_machines import cpu_place

from paceline.execution.cells import Cell
from paceline.execution.conditions import Settings
from paceline.execution.measure import measure_cells
from paceline.execution.stacks import own_python, stack_specs
from paceline.measurements.store import Store

STACK = own_python(stack_specs()["torch"], Path(sys.executable))
SETTINGS = Settings(
    timeout_s=120.0,
    num_threads=1,
    timing={
        "min_samples": 3, "max_samples": 5, "min_s": 0.0, "max_s": 1.0, "max_warmup_s": 0.2,
        "min_sample_s": 0.001,
    },
)  # fmt: skip
PLACE = cpu_place()
CELL = Cell(
    workload="mnist-cnn", mode="step", batch_per_device=2, num_devices=1, precision="fp32",
    compiler="eager", stack="torch",
)  # fmt: skip


def measure(tmp_path, cell, settings=SETTINGS):
    with Store(tmp_path / "store") as store:
        (record,) = measure_cells([cell], {"torch": STACK}, PLACE, store, settings)
    return record


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    """One measured step of a network of images."""
    return measure(tmp_path_factory.mktemp("step"), CELL)


def test_a_step_is_measured_with_its_memory_and_its_share_of_the_processor(step):
    assert (step.outcome, step.reason) == ("ok", "")
    assert len(step.samples_s) >= 3
    assert step.samples_per_s == pytest.approx(2 / step.median_s)
    assert step.process_bytes > 50e6
    assert step.sample_unit == "images"
    assert step.stack.startswith("torch")
    assert step.framework_version in step.stack


def test_a_text_keeps_the_length_it_was_measured_at_and_an_image_has_none(tmp_path, step):
    assert measure(tmp_path, replace(CELL, workload="lstm", seq=16)).seq == 16
    assert step.seq is None


def test_inference_is_a_task_of_its_own_without_an_optimizer(tmp_path, step):
    record = measure(tmp_path, replace(CELL, mode="forward"))
    assert (record.outcome, record.task, record.optimizer) == ("ok", "infer", None)
    assert record.cell != step.cell


def test_two_ranks_take_the_same_steps_and_answer_once(tmp_path):
    record = measure(tmp_path, replace(CELL, num_devices=2))
    assert (record.outcome, record.reason) == ("ok", "")
    assert (record.num_devices, record.strategy) == (2, "dp2")
    assert record.samples_per_s == pytest.approx(4 / record.median_s)


def test_a_batch_beyond_the_cap_is_out_of_memory(tmp_path):
    settings = replace(SETTINGS, memory_bytes=900e6)
    record = measure(tmp_path, replace(CELL, batch_per_device=20_000), settings)
    assert record.outcome == "out-of-memory"
    assert record.samples_s == ()


def test_a_users_own_module_is_measured_from_its_folder(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def build():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(8, 4))\n"
        "def broken():\n"
        "    raise ValueError('no such width')\n"
    )
    settings = replace(SETTINGS, user_folder=tmp_path)
    assert measure(tmp_path, replace(CELL, workload="mine:build"), settings).outcome == "ok"
    failed = measure(tmp_path, replace(CELL, workload="mine:broken"), settings)
    assert (failed.outcome, failed.reason) == ("failed", "ValueError: no such width")


def test_a_precision_that_the_engine_lacks_is_skipped(tmp_path):
    record = measure(tmp_path, replace(CELL, precision="int4"))
    assert record.outcome == "skipped"
    assert "no precision `int4`" in record.reason


@pytest.mark.slow
def test_compiled_code_gives_the_same_numbers_and_a_profile_is_written(tmp_path):
    settings = replace(SETTINGS, profile_folder=tmp_path)
    record = measure(tmp_path, replace(CELL, compiler="compiled"), settings)
    assert record.outcome == "ok", record.reason
    assert record.numerical_difference < 1e-4
    assert record.compile_s > 0
    (trace,) = tmp_path.glob("*.json")
    assert json.loads(trace.read_text())["traceEvents"]
