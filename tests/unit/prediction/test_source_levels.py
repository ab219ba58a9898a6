"""Steps have a level over kernels timed alone; that of one device's tables is no user's."""

import dataclasses

import numpy as np
import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Phase
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import SourceLevels, builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.sustained_rate import steady_row_times
from paceline.prediction.prediction import Points

from .passes import device, lowered, matmul

ONCE = Points(batch=np.ones(1), seq=np.ones(1))
FORWARD = lowered(matmul(4096, 4096, 4096))
TRAINING = lowered(matmul(4096, 4096, 4096), matmul(4096, 4096, 4096, phase=Phase.BACKWARD))


def levels(device=None, family=None):
    return SourceLevels(device=device or {}, family=family or {})


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


def test_siblings_have_the_level_of_their_family():
    devices = DeviceTable.from_devices([device("X", family="Y"), device("Z", family="Y")])
    known = levels({"X": {"torch/infer": 0.1}}, {"Y": {"torch/infer": 0.3}})
    assert known.logs(devices, "torch/infer").tolist() == [0.1, 0.3]
    assert known.logs(devices, "torch/train").tolist() == [0.0, 0.0]


def with_step_level(**by_task):
    constants = {**builtin_calibration().constants, "step_level": by_task}
    return dataclasses.replace(builtin_calibration(), constants=constants)


def steps_s(work, calibration, where=ONCE):
    table = DeviceTable.from_devices([device("X")])
    return steady_row_times(work, evaluate_shapes(work.costs, where), table, calibration).device_s


def test_no_level_makes_memory_faster():
    card, bytes_moved = device("X"), 2 * 16384 * 24576
    work = lowered(matmul(1, 16384, 24576))
    time_s = steps_s(work, with_step_level(**{"torch/infer": -5.0})).item()
    assert time_s >= (bytes_moved - card.l2_bytes) / card.memory_bytes_per_s


def test_a_step_that_makes_one_token_has_no_level():
    """No table of steps has one; the pass before, over the prompt, has a level."""
    where = Points.of([1], seq=512)
    slower, none = with_step_level(**{"torch/infer": np.log(1.5)}), with_step_level()
    for name, expected in (("prefill", 1.5), ("decode", 1.0)):
        passes = load_workload("gpt2", task="infer").passes
        work = lower(next(p.graph for p in passes if p.name == name), Configuration())
        one, other = (steps_s(work, which, where).sum() for which in (slower, none))
        assert one / other == pytest.approx(expected, rel=0.02)
