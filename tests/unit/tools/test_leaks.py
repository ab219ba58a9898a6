"""Held-out rows leave no trace in a fit: deleting or scrambling them changes no bit."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.prediction.kernels.device_effects import NUM_LAWS, Effect

pytestmark = pytest.mark.slow


def make_steps(rng, num_steps=40):
    from fit.steps import OpRows, Steps

    step = np.repeat(np.arange(num_steps), 6)
    features = rng.normal(size=(len(step), 17)).astype(np.float32)
    rows = OpRows(
        features=features,
        bound_s=rng.uniform(1e-4, 1e-3, len(step)).astype(np.float32),
        power_s=np.zeros(len(step), np.float32),
        launches=np.ones(len(step), np.float32),
        step=step,
    )
    device = np.where(np.arange(num_steps) % 4 == 0, "held", "kept")
    return Steps(
        rows={"stream": rows},
        step_s=rng.uniform(1e-3, 1e-2, num_steps),
        forward_kernels=np.full(num_steps, 10.0),
        backward_kernels=np.zeros(num_steps),
        framework=np.zeros(num_steps, int),
        is_compiled=np.zeros(num_steps),
        device=device,
        source=np.full(num_steps, "table"),
        entry=np.full(num_steps, "model"),
        task=np.full(num_steps, "infer"),
        index=np.arange(num_steps),
        is_open=np.arange(num_steps) % 5 == 0,
        maturity_years=rng.uniform(-3.0, 1.0, num_steps),
        host_years=rng.uniform(-3.0, 5.0, num_steps),
    )


def fitted(steps, held):
    from accuracy.folds import fit_without
    from fit.options import FitOptions

    traits = {name: np.zeros((NUM_LAWS, len(Effect))) for name in ("held", "kept")}
    return fit_without(steps, {}, {"held"}, held, traits, FitOptions(epochs=2))


def coefficients(steps, held):
    predictor = fitted(steps, held)
    model = predictor.networks["stream"].export()
    effects = (predictor.own.detach().numpy(), predictor.table.detach().numpy())
    levels = [level for own in predictor.levels.values() for level in own.values()]
    return (*model.weights, *model.biases, model.low, model.high, *effects, np.array(levels))


def assert_equal(left, right):
    assert [a.shape for a in left] == [b.shape for b in right]
    assert all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def test_deleting_held_out_rows_changes_no_bit():
    from fit.steps import select

    steps = make_steps(np.random.default_rng(0))
    held = steps.device == "held"
    without = select(steps, np.flatnonzero(~held))
    nothing = np.zeros(len(without.step_s), bool)
    assert_equal(coefficients(steps, held), coefficients(without, nothing))


def test_scrambling_held_out_rows_changes_no_bit():
    rng = np.random.default_rng(0)
    steps = make_steps(rng)
    held = steps.device == "held"
    rows = steps.rows["stream"]
    touched = held[rows.step]
    features = np.where(touched[:, None], 1e6 * rng.normal(size=rows.features.shape), rows.features)
    scrambled = replace(
        steps,
        rows={"stream": replace(rows, features=features.astype(np.float32))},
        step_s=np.where(held, 123.0, steps.step_s),
        maturity_years=np.where(held, 99.0, steps.maturity_years),
        host_years=np.where(held, 99.0, steps.host_years),
    )
    assert_equal(coefficients(steps, held), coefficients(scrambled, held))


def test_a_held_out_device_has_no_level():
    steps = make_steps(np.random.default_rng(0))
    assert set(fitted(steps, steps.device == "held").levels) == {"kept"}


def test_rows_that_leave_open_what_ran_change_no_bit():
    steps = make_steps(np.random.default_rng(0))
    held = steps.device == "held"
    other = replace(steps, step_s=np.where(steps.is_open, 123.0, steps.step_s))
    assert_equal(coefficients(steps, held), coefficients(other, held))


def test_what_is_not_held_out_does_change_it():
    steps = make_steps(np.random.default_rng(0))
    held = steps.device == "held"
    other = replace(steps, step_s=np.where(held, steps.step_s, 2 * steps.step_s))
    first, second = coefficients(steps, held), coefficients(other, held)
    assert not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_op_rows_of_a_held_out_device_are_gone_before_any_draw():
    import pandas as pd
    from fit.operators import operators_of

    rng = np.random.default_rng(0)
    count = 400
    frame = pd.DataFrame({
        "device": np.where(np.arange(count) % 2, "held", "kept"), "rows": 64.0,
        "columns": rng.integers(64, 4096, count).astype(float), "operands": 1.0, "is_norm": 0.0,
        "is_softmax": 0.0, "flop": 0.0, "moved_bytes": rng.uniform(1e5, 1e8, count),
        "time_s": rng.uniform(1e-5, 1e-3, count), "peak": 1e13, "memory_bytes_per_s": 1e12,
        "l2_bytes": 4e7, "num_sms": 100.0, "source_name": "table",
    })  # fmt: skip
    scrambled = frame.assign(time_s=np.where(frame.device == "held", 9.0, frame.time_s))
    kept = frame[frame.device == "kept"]
    whole = operators_of({"stream": frame}, without={"held"})["stream"]
    for other in (scrambled, kept):
        alone = operators_of({"stream": other}, without={"held"})["stream"]
        assert np.array_equal(whole.log10_slowdown, alone.log10_slowdown)
        assert np.array_equal(whole.features, alone.features)
        assert np.array_equal(whole.weight, alone.weight)
