"""Tables have habits in common; a user's own job has none of them."""

import dataclasses

import numpy as np
import pytest

from paceline.predict import DeviceTable, Points, builtin_calibration
from paceline.predict.calibration import SourceLevels
from paceline.predict.kernels import evaluate_shapes
from paceline.predict.sustained import steady_row_times
from paceline.trace.graph import Phase

from .passes import device, lowered, matmul

ONCE = Points(batch=np.ones(1), seq=np.ones(1))
FORWARD = lowered(matmul(4096, 4096, 4096))
TRAINING = lowered(matmul(4096, 4096, 4096), matmul(4096, 4096, 4096, phase=Phase.BACKWARD))


def levels(every=None, device=None, family=None):
    return SourceLevels(every=every or {}, device=device or {}, family=family or {})


def times_s(work, devices, known, framework="torch"):
    calibration = dataclasses.replace(builtin_calibration(), source_levels=known)
    shapes = evaluate_shapes(work.costs, ONCE)
    return steady_row_times(work, shapes, devices, calibration, framework=framework).device_s[
        :, 0, 0
    ]


def test_users_have_no_level():
    assert builtin_calibration().source_levels is None


@pytest.mark.parametrize(
    ("work", "framework", "expected"),
    [(FORWARD, "torch", 1.2), (TRAINING, "torch", 1.0), (FORWARD, "tensorflow", 1.0)],
)
def test_a_table_has_the_level_of_its_framework_and_task(work, framework, expected):
    devices = DeviceTable.from_devices([device("X"), device("Y")])
    known = levels(device={"X": {"torch/infer": np.log(1.2)}})
    one, other = times_s(work, devices, known, framework)
    assert one / other == pytest.approx(expected, rel=1e-5)


def test_levels_add_up_and_siblings_have_that_of_their_family():
    devices = DeviceTable.from_devices([device("X", family="Y"), device("Z", family="Y")])
    known = levels({"torch/infer": 0.2}, {"X": {"torch/infer": 0.1}}, {"Y": {"torch/infer": 0.3}})
    np.testing.assert_allclose(np.log(known.factors(devices, "torch/infer")), [0.3, 0.5], rtol=1e-5)
    assert known.factors(devices, "torch/train").tolist() == [1.0, 1.0]


def test_no_level_makes_memory_faster():
    card = device("X")
    work, bytes_moved = lowered(matmul(1, 16384, 24576)), 2 * 16384 * 24576
    (time_s,) = times_s(work, DeviceTable.from_devices([card]), levels({"torch/infer": -5.0}))
    assert time_s >= (bytes_moved - card.l2_bytes) / card.memory_bytes_per_s
