"""The predictor of this machine on made-up machines whose coefficients are known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.execution.machine_model import (
    LocalModel,
    StepWork,
    fit_local,
    predict_local,
    step_work,
)
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload

TRUE = LocalModel(
    conv_flop_per_s=40e9,
    matmul_flop_per_s=60e9,
    memory_bytes_per_s=12e9,
    operand_bytes_per_s=5e9,
    fresh_bytes_per_s=2e9,
    dispatch_s=9e-6,
    shared_frac={2: 0.8},
    all_reduce_bytes_per_s={2: 1e9},
)
WRONG = replace(
    TRUE,
    conv_flop_per_s=70e9,
    matmul_flop_per_s=50e9,
    memory_bytes_per_s=9e9,
    operand_bytes_per_s=4e9,
    fresh_bytes_per_s=1.5e9,
    dispatch_s=6e-6,
)
SIZES = st.floats(0.0, 1e12)


def work(scale=1.0, *, gradient_bytes=4e8):
    return StepWork(
        conv_flop=np.array([2e9, 1e8, 0.0]) * scale,
        moved_bytes=np.array([1e7, 5e7, 3e7]) * scale,
        matmul_flop=1e9 * scale,
        operand_bytes=2e8,
        fresh_bytes=1e8,
        num_ops=300.0,
        gradient_bytes=gradient_bytes,
    )


def model_work(name, batch):
    graph = load_workload(name, task="train").passes[0].graph
    plain = Configuration(precision="fp32", platform="cpu", channels_last=False)
    return step_work(lower(graph, plain), batch=batch)


def seconds(model, asked, num_devices=1):
    step = predict_local(model, asked, num_devices=num_devices)
    assert step is not None
    return step.mid_s


def test_no_measurement_leaves_the_ceilings_as_they_are():
    assert fit_local(WRONG, []) is WRONG
    assert "no measured step" in WRONG.name


def test_measured_steps_of_one_model_predict_its_other_batches():
    pairs = [(w, seconds(TRUE, w)) for w in (model_work("alexnet", b) for b in (1, 16))]
    fitted = fit_local(WRONG, pairs)
    for batch in (4, 64):
        asked = model_work("alexnet", batch)
        assert seconds(fitted, asked) == pytest.approx(seconds(TRUE, asked), rel=0.10)


def test_measured_steps_of_one_model_predict_another():
    pairs = [(w, seconds(TRUE, w)) for w in (model_work("alexnet", b) for b in (1, 4, 16, 64))]
    fitted = fit_local(WRONG, pairs)
    asked = model_work("resnet50", 16)
    before = abs(math.log(seconds(WRONG, asked) / seconds(TRUE, asked)))
    after = abs(math.log(seconds(fitted, asked) / seconds(TRUE, asked)))
    assert after < 0.2
    assert after < before


def test_more_measurements_narrow_the_interval():
    pairs = [(w, seconds(TRUE, w)) for w in (work(s) for s in (1.0, 4.0, 16.0, 64.0))]
    before, after = (predict_local(m, work(8.0)) for m in (WRONG, fit_local(WRONG, pairs)))
    assert before is not None
    assert after is not None
    assert after.high_s / after.low_s < before.high_s / before.low_s


@given(st.floats(1.0, 1e3), st.floats(1.0, 1e3))
def test_more_work_never_takes_less_time(scale, more):
    assert seconds(TRUE, work(scale * more)) >= seconds(TRUE, work(scale))


def test_two_processes_are_never_faster_than_one_at_the_same_batch_each():
    assert seconds(TRUE, work(), 2) > seconds(TRUE, work())


def test_inference_exchanges_nothing():
    asked = work(gradient_bytes=0.0)
    assert seconds(TRUE, asked, 2) == pytest.approx(seconds(TRUE, asked) / 0.8)


@pytest.mark.parametrize("num_devices", [2, 4])
def test_a_ring_sends_its_share_of_the_gradients_twice(num_devices):
    """Patarasuk, Yuan 2009: 2 (n - 1) / n of the message, at the bus bandwidth of nccl-tests."""
    bus_bytes_per_s = 1e9
    free = replace(
        TRUE,
        memory_bytes_per_s=1e30,
        shared_frac={num_devices: 1.0},
        all_reduce_bytes_per_s={num_devices: bus_bytes_per_s},
    )
    exchanged_s = seconds(free, work(), num_devices) - seconds(free, work())
    asked_bytes = 2 * (num_devices - 1) / num_devices * work().gradient_bytes
    assert exchanged_s == pytest.approx(asked_bytes / bus_bytes_per_s)


def test_gradients_are_read_and_written_into_the_buckets_and_out_of_them():
    slower = replace(TRUE, shared_frac={2: 1.0}, all_reduce_bytes_per_s={2: 1e30})
    copied_s = seconds(slower, work(), 2) - seconds(slower, work())
    assert copied_s == pytest.approx(4 * work().gradient_bytes / TRUE.memory_bytes_per_s)


def test_a_number_of_processes_that_was_never_tried_has_no_answer():
    assert predict_local(TRUE, work(), num_devices=7) is None


def test_only_large_results_take_fresh_pages():
    assert model_work("alexnet", 1).fresh_bytes == pytest.approx(
        4 * (9216 * 4096 + 4096**2), rel=0.01
    )
    assert model_work("mnist-cnn", 1).fresh_bytes == 0.0


def test_work_of_a_model_is_its_flop():
    once, twice = model_work("alexnet", 1), model_work("alexnet", 2)
    assert twice.conv_flop.sum() == pytest.approx(2 * once.conv_flop.sum())
    assert once.gradient_bytes == pytest.approx(4 * 61_100_840, rel=1e-6)
