"""A host that waits for the device within a step."""

import dataclasses

import numpy as np
import pytest
from tests.unit.prediction.passes import device, lowered, matmul, stream

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Phase
from paceline.model.rewrite.optimizer import find_optimizer
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.host_dispatch import (
    beyond_queue_s,
    dispatch_s,
    host_pace,
    waits_of,
)
from paceline.prediction.step.one_pass import predict_pass

TABLE = DeviceTable.from_devices([device()])
ONE = Points(batch=np.ones(1), seq=np.ones(1))
_WAITS = builtin_calibration().constants["host_waits"]
WAIT_S, NUMBER_S = _WAITS["wait_s"], _WAITS["number_s"]
LARGE, SMALL = matmul(4096, 4096, 4096), stream(64)
WAIT = stream(64, kind=OpKind.HOST_WAIT)
NO_WAIT = stream(64, kind=OpKind.COPY)


def predicted(one, **changes):
    return predict_pass(one, TABLE, ONE, **changes)


def with_waits(*is_wait, configuration=None):
    """Products and small ops in turn, with a copy after each pair for which the host may wait."""
    rows = [row for wait in is_wait for row in (LARGE, SMALL, WAIT if wait else NO_WAIT)]
    return lowered(*rows, configuration=configuration)


def of_numbers(count):
    """A pass with a tensor made of a Python list of ``count`` numbers."""
    one = with_waits(True)
    dims = one.costs.dims.copy()
    dims[2], dims[2, :2, 0] = 0.0, (count / 64, 64)
    costs = dataclasses.replace(one.costs, dims=dims, variant=np.array([0, 0, 1], np.int16))
    return dataclasses.replace(one, costs=costs)


def test_each_wait_is_counted_and_lengthens_the_step_by_what_is_told():
    steps = [predicted(with_waits(*([True] * n + [False] * (6 - n)))) for n in range(7)]
    seconds = [step.mid_s.item() for step in steps]
    assert [step.num_waits for step in steps] == list(range(7))
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[6]
    assert steps[0].wait_s.item() == 0.0
    assert steps[6].wait_s.item() == pytest.approx(seconds[6] - seconds[0], rel=1e-3)


def test_a_step_whose_every_op_is_waited_for_takes_the_sum_of_host_and_device():
    step = predicted(lowered(WAIT, WAIT, WAIT, WAIT))
    fixed_s = builtin_calibration().constants["host"]["step_s"]["torch"]
    parts_s = step.host_s + step.device_s + 4 * WAIT_S + fixed_s
    assert step.mid_s.item() == pytest.approx(parts_s.item())


def test_beside_a_host_that_takes_no_time_only_starting_again_is_lost():
    builtin = builtin_calibration()
    constants = dict(builtin.constants)
    constants["host"] = dict(constants["host"])
    times = constants["host"]["per_kernel_s"]["torch"]
    none = {name: dict.fromkeys(one, 0.0) for name, one in times.items()}
    constants["host"]["per_kernel_s"] = {"torch": none}
    fast = dataclasses.replace(builtin, constants=constants)
    step = predicted(with_waits(True, True, True), calibration=fast)
    assert step.wait_s.item() == pytest.approx(3 * WAIT_S, rel=1e-3)


def test_a_python_list_costs_the_host_each_of_its_numbers():
    short, long = (predicted(of_numbers(count)) for count in (16384, 24576))
    listed_s = 8192 * NUMBER_S
    assert (long.host_s - short.host_s).item() == pytest.approx(listed_s, rel=1e-3)
    assert (long.mid_s - short.mid_s).item() == pytest.approx(listed_s, rel=1e-3)


def test_a_processor_waits_for_nobody():
    one = with_waits(True, True, configuration=Configuration(platform="cpu"))
    assert waits_of(one).size == 0
    assert predicted(one).wait_s.item() == 0.0


def test_host_time_of_ops_is_that_of_any_copy():
    calibration = builtin_calibration()
    waiting, plain = (dispatch_s(with_waits(w), "torch", TABLE, calibration) for w in (True, False))
    assert waiting.tolist() == plain.tolist()


def test_later_machines_dispatch_faster_and_an_unknown_year_is_the_reference():
    named = ("7.0", "8.0", "10.0", None)
    table = DeviceTable.from_devices(
        [device(str(one), compute_capability=one, year=None) for one in named]
    )
    older, reference, later, unknown = host_pace(table, "torch", builtin_calibration())
    assert older > reference == unknown == 1.0 > later > 0.3
    work = with_waits(False, False)
    host_s = predict_pass(work, table, ONE).host_s[:, 0]
    np.testing.assert_allclose(host_s / host_s[1], [older, 1.0, later, 1.0], rtol=1e-5)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_board_dispatches_at_the_clock_of_its_own_processor(framework):
    """Whatever its year: AGX Orin at 2.2 GHz, NX at 2.0, Nano at 1.7, beside a server's 3.4."""
    families = ("Jetson AGX Orin", "Jetson Orin NX", "Jetson Orin Nano Super")
    table = DeviceTable.from_devices([device(family=name, year=2024) for name in families])
    pace = host_pace(table, framework, builtin_calibration())
    assert pace == pytest.approx([3.4 / 2.2, 3.4 / 2.0, 3.4 / 1.7])


def updated_by(num_launches, *, platform="cuda", optimizer="bert-adam"):
    """Products, then an update of as many small launches, whose own time is nothing beside them."""
    update = stream(64, phase=Phase.OPTIMIZER, kind=OpKind.OPTIMIZER, kernels=num_launches)
    one = lowered(*[LARGE] * 400, update, configuration=Configuration(platform=platform))
    variant = np.append(np.zeros(400, np.int16), np.int16(find_optimizer(optimizer).variant))
    return dataclasses.replace(one, costs=dataclasses.replace(one.costs, variant=variant))


def test_an_update_is_hidden_as_far_as_the_queue_holds_its_launches():
    """The host is far ahead of the device: each launch beyond the queue then takes its dispatch."""
    queued = int(_WAITS["queued_launches"])
    none, full, double = (predicted(updated_by(n)).update_s.item() for n in (1, queued, 2 * queued))
    per_launch_s = builtin_calibration().constants["host"]["per_kernel_s"]["torch"]["eager"]
    pace = host_pace(TABLE, "torch", builtin_calibration())[0]
    assert full - none < 2 * queued * builtin_calibration().constants["device"]["launch_gap_s"]
    assert double == pytest.approx(queued * per_launch_s["forward"] * pace, rel=0.01)


def test_more_launches_of_an_update_never_take_less():
    seconds = [predicted(updated_by(n)).mid_s.item() for n in (1, 500, 1000, 2000, 4000, 8000)]
    assert seconds == sorted(seconds)


def test_a_library_keeps_ahead_of_the_device():
    of_library, of_script = (
        predicted(updated_by(3000, optimizer=name)).mid_s.item() for name in ("adam", "bert-adam")
    )
    none = predicted(updated_by(1)).mid_s.item()
    assert of_library - none < 0.2 * (of_script - none)


def test_a_processor_that_runs_the_update_itself_has_no_queue():
    one = updated_by(4096, platform="cpu")
    late_s = beyond_queue_s(one, dispatch_s(one, "torch", TABLE, builtin_calibration()),
                            builtin_calibration())  # fmt: skip
    assert late_s.item() == 0.0
