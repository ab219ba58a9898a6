"""The suite of measurements on a GPU, as far as it runs without one."""

import sys
from collections import Counter

import pytest
from gpu import truth as gpu_truth
from gpu.truth import Machine, read_suite, run_suite, suite_items

from paceline.execution.machine.sensors import Sensors
from paceline.measurements.records import record_from_line, record_to_line
from paceline.model.graph.graph import OpKind
from paceline.model.ops.registry import DIM_NAMES
from warm_workers import WORKERS

SUITE = read_suite()
ITEMS = suite_items(SUITE["operator"], SUITE["model"])
QUICK = {
    "total_s": 300.0, "min_samples": 1, "max_samples": 1, "min_s": 0.0, "max_s": 0.0,
    "max_warmup_s": 0.0, "min_sample_s": 0.0,
}  # fmt: skip
CPU = Machine(
    device="cpu", device_name="CPU", driver_version="", fingerprint="f", sensors=Sensors(None)
)


@pytest.fixture
def forks(monkeypatch):
    """Its workers begin with PyTorch imported."""
    monkeypatch.setattr(gpu_truth, "subprocess", WORKERS)


def test_the_suite_has_twenty_models_and_every_axis():
    models = [item for item in ITEMS if item["type"] == "model"]
    assert len({item["name"] for item in models}) == 20
    assert {item["mode"] for item in models} == {"forward", "step"}
    assert {item["compiler"] for item in models} == {"eager", "compiled"}
    assert {item["precision"] for item in models} >= {"fp16", "bf16", "fp32"}
    assert len({item["batch"] for item in models}) > 1
    assert len({str(item | {"number": 0}) for item in ITEMS}) == len(ITEMS)


def test_operators_have_the_shape_numbers_of_their_kind():
    for item in [*ITEMS, *suite_items(SUITE["small"]["operators"], [])]:
        if item["type"] == "operator":
            names = DIM_NAMES.get(OpKind[item["kind"]], ("elements", "row", "streams"))
            assert len(item["shape"]) == len(names), item


def test_the_time_is_under_ten_minutes():
    assert SUITE["budget"]["total_s"] < 600


def test_without_a_gpu_nothing_is_done_and_nothing_fails(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpu_truth, "open_nvml", lambda: None)
    monkeypatch.setattr(sys, "argv", ["gpu_truth.py", "--out", str(tmp_path / "out")])
    gpu_truth.main()
    assert "needs an NVIDIA GPU" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_every_operator_runs_and_a_bad_model_does_not_end_the_suite(forks):
    pytest.importorskip("torch")
    items = suite_items(SUITE["small"]["operators"], [])
    bad = {"type": "model", "name": "no-such-model", "mode": "forward", "batch": 1}
    bad |= {"precision": "fp32", "compiler": "eager", "seq": 128, "number": -1}
    records = list(run_suite([bad, *items], QUICK, CPU))
    assert [one.outcome for one in records] == ["failed"] + ["ok"] * len(items)
    assert "no-such-model" in records[0].reason
    assert {one.workload for one in records[1:]} == {item["kind"] for item in items}
    for one in records:
        assert record_from_line(record_to_line(one)) == one
        assert (one.median_s is not None) == (one.outcome == "ok")


def test_what_the_time_does_not_reach_is_skipped_with_a_reason(forks):
    pytest.importorskip("torch")
    items = suite_items(SUITE["small"]["operators"][:1], [])
    records = list(run_suite(items, QUICK | {"total_s": -1.0}, CPU))
    assert Counter(one.outcome for one in records) == {"skipped": len(items)}
    assert all("time" in one.reason for one in records)


def test_a_worker_that_dies_costs_one_item(forks, monkeypatch, tmp_path):
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "gpu_truth_worker.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr(gpu_truth, "_TOOLS", tmp_path)
    records = list(run_suite(ITEMS[:7], QUICK, CPU))
    assert [one.outcome for one in records] == ["failed"] * 5 + ["skipped"] * 2
