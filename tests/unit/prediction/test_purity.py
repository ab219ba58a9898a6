"""What a prediction depends on stands in its arguments: no file, no clock, no package metadata."""

import builtins
import dataclasses
import importlib.metadata
import io
import time
from pathlib import Path

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.breakdown import break_down
from paceline.prediction.step.one_pass import abstentions, predict_pass

CALIBRATION = builtin_calibration()
TABLE = DeviceTable.from_devices(
    [find_device(load_catalog(), name) for name in ("h100", "rtx 3090", "t4", "mi300x", "m2")]
)
ONE = Points.of([4.0], seq=512)
MANY = Points.of([64.0], seq=1024)


def blocked(*_args, **_options):
    raise AssertionError("a prediction looked beyond its arguments")


def seal(monkeypatch):
    """Put files, clock and package metadata out of reach."""
    monkeypatch.setattr(builtins, "open", blocked)
    monkeypatch.setattr(io, "open", blocked)
    for name in ("open", "read_text", "read_bytes"):
        monkeypatch.setattr(Path, name, blocked)
    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, blocked)
    monkeypatch.setattr(importlib.metadata, "version", blocked)


@pytest.mark.parametrize(
    ("model", "task", "framework", "settings"),
    [
        ("gpt2", "train", "torch", {}),
        ("resnet50", "infer", "tensorflow", {"compiler": "xla", "precision": "fp16"}),
        ("mixtral-8x7b", "infer", "vllm", {"is_served": True, "precision": "fp8"}),
        ("gpt2", "train", "torch", {"platform": "cpu", "precision": "fp32"}),
        ("gpt2", "train", "torch", {"libraries": ("torch==1.13",), "attention": "math"}),
    ],
)
def test_a_prediction_reads_nothing_but_its_arguments(model, task, framework, settings):
    passes = load_workload(model, task=task).passes
    first = TABLE.take(np.array([0]))
    lowered = [lower(one.graph, Configuration(**settings)) for one in passes]
    with pytest.MonkeyPatch.context() as patch:
        seal(patch)
        for one in lowered:
            found = predict_pass(one, TABLE, ONE, calibration=CALIBRATION, framework=framework)
            assert np.isfinite(found.mid_s[0]).all()
            abstentions(one, TABLE, CALIBRATION)
            break_down(one, first, batch=4, seq=512, calibration=CALIBRATION)


@pytest.mark.parametrize(
    ("topic", "name", "figure"),
    [
        ("power", "busy_frac", "power_w"),
        ("sustained_clock", "j_per_flop", "mid_s"),
        ("operation_energy", 2.0, "mid_s"),
    ],
)
def test_a_table_that_a_calibration_replaces_is_obeyed(topic, name, figure):
    lowered = lower(load_workload("gpt2").passes[0].graph, Configuration())
    table = CALIBRATION.constants[topic]
    changed = dataclasses.replace(
        CALIBRATION,
        constants={**CALIBRATION.constants, topic: {**table, name: 1.4 * table[name]}},
    )
    one, other = (
        getattr(predict_pass(lowered, TABLE, MANY, calibration=c), figure)[0, 0]
        for c in (CALIBRATION, changed)
    )
    assert other > one


def test_memory_of_a_process_comes_from_the_calibration_too():
    lowered = lower(load_workload("gpt2").passes[0].graph, Configuration())
    process = CALIBRATION.constants["process_memory"]
    cuda = process["cuda"] | {"workspace_bytes": "1e9"}
    changed = dataclasses.replace(
        CALIBRATION,
        constants={**CALIBRATION.constants, "process_memory": {**process, "cuda": cuda}},
    )
    one, other = (
        predict_pass(lowered, TABLE, ONE, calibration=c).memory_mid_bytes[0, 0]
        for c in (CALIBRATION, changed)
    )
    assert other - one == pytest.approx(1e9 - float(process["cuda"]["workspace_bytes"]))


def test_every_framework_with_dispatch_times_has_its_facts():
    constants = CALIBRATION.constants
    assert constants["frameworks"].keys() == constants["host"]["per_kernel_s"].keys()
    assert all(row["source"] for row in constants["frameworks"].values())
