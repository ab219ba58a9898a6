"""What a pass consists of adds up to what is predicted of it whole."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.breakdown import break_down
from paceline.prediction.step.one_pass import predict_pass

from .passes import device, lowered, matmul, stream

BATCH, SEQ = 16, 128
POINTS = Points(batch=np.array([float(BATCH)]), seq=np.array([float(SEQ)]))
NAME = "A100 SXM4 80GB"
TABLE = DeviceTable.from_devices([find_device(load_catalog(), NAME)])


def step_of(name):
    return lower(load_workload(name).passes[0].graph, Configuration())


@pytest.mark.parametrize("name", ["resnet50", "lstm", "gpt2"])
@pytest.mark.parametrize("shift", [0.0, math.log(1.5)])
def test_ops_add_up_to_the_step_that_is_predicted(name, shift):
    """Recurrent layers launch one kernel per position; a shift is what the user has measured."""
    step = step_of(name)
    own = replace(builtin_calibration(), device_log_shift={NAME: shift})
    whole = break_down(step, TABLE, batch=BATCH, seq=SEQ, num_ops=10**6, calibration=own)
    predicted = predict_pass(step, TABLE, POINTS, calibration=own)
    assert whole.device_s == pytest.approx(float(predicted.device_s[0, 0]), rel=1e-4)
    assert sum(op.device_s for op in whole.ops) == pytest.approx(whole.device_s)
    assert sum(op.time_frac for op in whole.ops) == pytest.approx(1.0)
    assert sum(op.flop for op in whole.ops) == pytest.approx(whole.flop)
    assert sum(whole.flop_by_phase.values()) == pytest.approx(whole.flop)
    assert sum(op.moved_bytes for op in whole.ops) == pytest.approx(whole.moved_bytes)


@pytest.mark.parametrize("name", ["resnet50", "lstm"])
def test_arithmetic_is_that_of_the_graph(name):
    step = step_of(name)
    whole = break_down(step, TABLE, batch=BATCH, seq=SEQ)
    counted = step.costs.count @ step.costs.flop @ monomials(BATCH, SEQ)[0]
    assert whole.flop == pytest.approx(counted, rel=1e-4)


@pytest.mark.kernels
def test_occurrences_count_and_the_dearest_comes_first():
    rows = (matmul(1024, 1024, 1024, count=3), stream(2**20), matmul(2048, 1024, 1024))
    table = DeviceTable.from_devices([device()])
    whole = break_down(lowered(*rows), table, batch=1, seq=1)
    one = break_down(lowered(matmul(1024, 1024, 1024)), table, batch=1, seq=1).ops[0]
    three = next(op for op in whole.ops if op.count == 3)
    assert (three.flop, three.moved_bytes) == (3 * one.flop, 3 * one.moved_bytes)
    assert three.device_s == pytest.approx(3 * one.device_s)
    assert three.bound_frac == one.bound_frac
    times = [op.device_s for op in whole.ops]
    assert times == sorted(times, reverse=True)
    assert whole.num_ops == 5
    assert len(break_down(lowered(*rows), table, batch=1, seq=1, num_ops=2).ops) == 2


def test_without_a_device_there_is_arithmetic_and_no_time():
    whole = break_down(step_of("resnet50"), None, batch=BATCH, seq=1, num_ops=10**6)
    assert (whole.device, whole.device_s, whole.waiting_frac) == (None, None, None)
    assert {(op.device_s, op.time_frac, op.limit) for op in whole.ops} == {(None, None, None)}
    flop = [op.flop for op in whole.ops]
    assert flop == sorted(flop, reverse=True)


def test_a_bound_of_an_op_that_launches_many_kernels_is_that_of_all():
    """One kernel per position: the bound of a layer grows with them, as its time does."""
    short, long = (
        max(break_down(step_of("lstm"), TABLE, batch=64, seq=seq).ops, key=lambda op: op.device_s)
        for seq in (64, 256)
    )
    assert long.kind == short.kind == "recurrent backward"
    assert long.bound_frac == pytest.approx(short.bound_frac, rel=0.05)
    assert long.device_s == pytest.approx(4 * short.device_s, rel=0.05)


def test_a_step_whose_host_never_waits_loses_nothing_so():
    assert break_down(step_of("resnet50"), TABLE, batch=BATCH, seq=1).waiting_frac == 0.0
