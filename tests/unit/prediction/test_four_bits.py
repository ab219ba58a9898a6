"""Arithmetic in 4 bits: units that have it are faster, others widen its weights."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.sustained_rate import steady_row_times
from paceline.prediction.prediction import Points
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate

_CATALOG = load_catalog()


def _seconds(device: str, *precisions: str, prompt: int, batch: float = 1.0) -> list[float]:
    """Time per token where requests are many, else to the first token of a long prompt."""
    jobs = [
        Job.parse(
            f"llama-3-8b infer {one} compiled dp1 batch={batch} prompt={prompt} output=1 "
            "profile=trtllm",
            lambda name, task: load_workload(name, task=task),
        )
        for one in precisions
    ]
    machine = Machine.of(find_device(_CATALOG, device))
    steps = simulate(jobs, [machine] * len(jobs))
    steps.check()
    return [float(value) for value in steps.prompt_s]


def test_units_of_four_bits_read_prompts_faster_than_those_of_eight() -> None:
    four, eight, sixteen = _seconds("B200", "nvfp4", "fp8", "bf16", prompt=8192)
    assert 0.45 * eight < four < 0.9 * eight
    assert eight < sixteen


def test_units_without_four_bits_multiply_in_sixteen() -> None:
    four, sixteen = _seconds("H100", "nvfp4", "bf16", prompt=8192)
    assert four == pytest.approx(sixteen, rel=0.35)
    assert four > 0.8 * sixteen


def test_the_catalogue_has_peaks_of_four_bits_where_units_have_them() -> None:
    for device in _CATALOG.devices:
        four, eight = (device.peak_flop_per_s.get(key) for key in ("fp4", "fp8"))
        if four is not None:
            assert eight is not None
            assert 2.0 <= four / eight <= 4.0
    assert "fp4" in find_device(_CATALOG, "GB300").peak_flop_per_s
    assert "fp4" not in find_device(_CATALOG, "H200").peak_flop_per_s


def test_training_in_four_bits_needs_their_units() -> None:
    """Half of the time of 8 bits at best, as casts, attention and updates stay as wide."""
    graph = load_workload("llama-3-8b").passes[0].graph
    table = DeviceTable.from_devices([find_device(_CATALOG, name) for name in ("B200", "H100")])
    at = Points(batch=np.ones(1), seq=np.full(1, 8192.0))
    took_s = {}
    for precision in ("nvfp4", "fp8"):
        lowered = lower(graph, Configuration(precision=precision))
        shapes = evaluate_shapes(lowered.costs, at)
        row_s = steady_row_times(lowered, shapes, table, builtin_calibration()).device_s
        took_s[precision] = (row_s[:, 0] * lowered.costs.count).sum(axis=1)
    assert 0.5 * took_s["fp8"][0] < took_s["nvfp4"][0] < 0.95 * took_s["fp8"][0]
    assert np.isnan(took_s["nvfp4"][1])
    assert np.isfinite(took_s["fp8"]).all()
