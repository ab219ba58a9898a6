"""What a device does to all its ops: a law of its multiprocessors, and its own shrunk effect."""

import dataclasses

import numpy as np
import pytest

from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.device_effects import NUM_LAWS, Effect, log10_effects, log_traits
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.row_times import row_times
from paceline.prediction.prediction import Points

from .passes import device, lowered, matmul

ONES = np.ones(1)
CALIBRATION = builtin_calibration()


def table(**facts):
    return DeviceTable.from_devices([device("X", family="Y", **facts)])


def effects(devices, **facts):
    constants = {
        **CALIBRATION.constants,
        "device_effects": {**CALIBRATION.constants["device_effects"], **facts},
    }
    changed = dataclasses.replace(CALIBRATION, constants=constants)
    return log10_effects(devices, ONES, changed)[0]


def test_twice_the_arithmetic_per_multiprocessor_is_log_two_denser():
    slow, fast = (
        log_traits(table(peak_flop_per_s={"fp16": p, "fp32": p / 8}), ONES)[0, 0]
        for p in (1e14, 2e14)
    )
    assert fast[Effect.CONV_TENSOR] - slow[Effect.CONV_TENSOR] == pytest.approx(np.log(2))
    assert fast[Effect.CONV_VECTOR] - slow[Effect.CONV_VECTOR] == pytest.approx(np.log(2))
    assert fast[Effect.STREAM] == slow[Effect.STREAM] == 0


def test_a_device_without_matrix_units_has_no_density_of_them():
    density = log_traits(table(peak_flop_per_s={"fp32": 1e13}), ONES)[0, 0]
    assert density[Effect.PRODUCT] == density[Effect.CONV_TENSOR] == 0
    assert np.isfinite(density).all()


def test_denser_multiprocessors_sustain_less_and_still_gain():
    slopes = np.array(CALIBRATION.constants["device_effects"]["slope"][0])
    assert (slopes < 1).all()
    assert slopes[Effect.CONV_TENSOR] > 0


def test_a_boost_clock_farther_above_the_base_clock_slows_matrix_units_alone():
    near, far = (
        log_traits(table(boost_clock_hz=2e9, base_clock_hz=hz), ONES)[0, 1] for hz in (1.6e9, 0.8e9)
    )
    matrix = [Effect.PRODUCT, Effect.CONV_TENSOR]
    np.testing.assert_allclose((far - near)[matrix], np.log(2))
    assert not np.delete(far, matrix).any()
    assert not log_traits(table(base_clock_hz=None), ONES)[0, 1].any()


def test_cards_for_consumers_have_a_law_of_their_own():
    """It makes them faster, as their clocks exceed the listed one, but for vector units."""
    consumer, server = (
        log_traits(table(device_class=kind), ONES)[0, 2] for kind in ("consumer", "datacenter")
    )
    reached = [Effect.PRODUCT, Effect.CONV_TENSOR, Effect.STREAM]
    assert (consumer[reached] == 1.0).all()
    assert not np.delete(consumer, reached).any()
    assert not server.any()
    slopes = np.array(CALIBRATION.constants["device_effects"]["slope"][2])
    assert (slopes[reached] < 0).all()


def test_a_device_has_its_own_effect_then_its_familys_then_none():
    own, family = [0.1, 0.2, 0.3, 0.4, 0.5], [0.4, 0.3, 0.2, 0.1, 0.0]
    law = effects(table(), device={}, family={})
    for known, expected in (
        ({"device": {"X": own}, "family": {"Y": family}}, own),
        ({"device": {}, "family": {"Y": family}}, family),
    ):
        shift = (effects(table(), **known) - law) * np.log(10)
        np.testing.assert_allclose(shift, expected, atol=1e-6)


def test_effects_are_small_beside_what_devices_differ_by():
    facts = CALIBRATION.constants["device_effects"]
    every = np.array([*facts["device"].values(), *facts["family"].values()])
    assert np.abs(every).max() < np.log(2)
    assert np.median(np.abs(every)) < 0.1


def test_a_measured_devices_effect_reaches_its_ops():
    work = lowered(matmul(4096, 4096, 4096, count=20))
    constants = {
        **CALIBRATION.constants,
        "device_effects": {
            **CALIBRATION.constants["device_effects"],
            "device": {"X": [0.0] * 5, "Z": [np.log(1.5)] * 5},
        },
    }
    changed = dataclasses.replace(CALIBRATION, constants=constants)
    devices = DeviceTable.from_devices([device("X", family="Y"), device("Z", family="Y")])
    where = Points(batch=np.array([16.0]), seq=np.ones(1))
    times = row_times(work, evaluate_shapes(work.costs, where), devices, changed)
    share = float(times.bounds.compute_frac[0, 0, 0])
    assert 0.9 < share < 1.0
    one, other = times.device_s[:, 0, 0]
    assert other / one == pytest.approx(1.5**share, rel=0.01)


@pytest.mark.parametrize("slope", [0.0, 0.9])
def test_what_the_cache_cannot_hold_comes_at_the_bandwidth_of_memory(slope):
    """One row times 800 MB of weights: no law of arithmetic makes memory faster."""
    work = lowered(matmul(1, 16384, 24576))
    sparse = device("Z", peak_flop_per_s={"fp16": 30e12, "bf16": 30e12, "fp32": 15e12})
    facts = CALIBRATION.constants["device_effects"] | {"slope": [[slope] * 5] * NUM_LAWS}
    changed = dataclasses.replace(
        CALIBRATION, constants={**CALIBRATION.constants, "device_effects": facts}
    )
    once = Points(batch=np.ones(1), seq=np.ones(1))
    table = DeviceTable.from_devices([sparse])
    times = row_times(work, evaluate_shapes(work.costs, once), table, changed)
    at_bandwidth_s = (2 * 16384 * 24576 - sparse.l2_bytes) / sparse.memory_bytes_per_s
    assert times.device_s.item() >= at_bandwidth_s
