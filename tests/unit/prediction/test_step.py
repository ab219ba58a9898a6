"""Laws of a predicted step: limits, monotony, abstaining, and one number by two roads."""

from statistics import NormalDist

import numpy as np
import pytest
from tests.tolerance import ASKED_TOGETHER

from paceline.dtypes import DType
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Phase
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Bound, Points
from paceline.prediction.step.one_pass import abstentions, predict_pass

from .passes import device, lowered, matmul, stream


def points(*batches):
    return Points(batch=np.array(batches, dtype=float), seq=np.ones(len(batches)))


def predict(work, devices, *batches, **options):
    table = DeviceTable.from_devices(devices)
    return predict_pass(work, table, points(*batches), **options)


BIG = lowered(matmul(4096, 4096, 4096, count=20), stream(4096 * 4096, count=20))
TINY = lowered(matmul(8, 8, 8, count=500), stream(64, count=500))


def test_no_step_beats_its_bounds():
    answer = predict(BIG, [device()], 1, 4, 16)
    flop = 20 * 2 * 4096**3 * np.array([1, 4, 16])
    assert (answer.mid_s[0] > flop / 312e12).all()
    assert (answer.mid_s >= answer.device_s).all()
    assert (answer.mid_s >= answer.host_s).all()


def test_time_does_not_fall_as_the_batch_grows():
    answer = predict(BIG, [device()], *range(1, 40))
    assert (np.diff(answer.mid_s[0]) > -0.02 * answer.mid_s[0, 1:]).all()


def test_a_tiny_model_is_bound_by_launching():
    answer = predict(TINY, [device()], 1)
    assert answer.bound[0, 0] == Bound.LAUNCH
    assert answer.mid_s[0, 0] >= answer.host_s[0, 0]


def test_a_large_product_is_bound_by_arithmetic_and_a_stream_by_memory():
    products = predict(lowered(matmul(8192, 8192, 8192, count=20)), [device()], 8)
    streams = predict(lowered(stream(2**26, count=20)), [device()], 8)
    assert products.bound[0, 0] == Bound.COMPUTE
    assert streams.bound[0, 0] == Bound.BANDWIDTH


def test_a_stream_approaches_the_bandwidth():
    elements = 2**28
    answer = predict(lowered(stream(elements, count=8)), [device()], 4)
    achieved = 8 * 4 * elements * 4 / answer.mid_s[0, 0]
    assert 0.6 * 2.0e12 < achieved < 2.0e12


def test_more_bandwidth_is_never_slower_for_streams():
    work = lowered(stream(2**26, count=20))
    slow, fast = device("A", memory_bytes_per_s=1e12), device("B", memory_bytes_per_s=2e12)
    answer = predict(work, [slow, fast], 1, 8, 64)
    assert (answer.mid_s[1] <= answer.mid_s[0]).all()


@pytest.mark.parametrize("compiler", ["eager", "compiled"])
def test_convolutions_written_by_hand_are_faster_and_products_are_as_before(compiler):
    for name, gains in (("resnet50", True), ("gpt2", False)):
        graph = load_workload(name).passes[0].graph
        library, tuned = (
            predict(
                lower(graph, Configuration(compiler=compiler, convolutions=kernels)), [device()], 64
            ).device_s[0, 0]
            for kernels in ("library", "tuned")
        )
        assert tuned < 0.9 * library if gains else tuned <= library


@pytest.mark.kernels
def test_the_answer_does_not_depend_on_what_else_is_asked():
    devices = [device("A"), device("B", num_sms=58, memory_bytes_per_s=3e11)]
    together = predict(BIG, devices, *range(1, 70))
    alone = predict(BIG, devices[1:], 33)
    assert alone.mid_s[0, 0] == pytest.approx(together.mid_s[1, 32], rel=ASKED_TOGETHER)
    assert alone.energy_j[0, 0] == pytest.approx(together.energy_j[1, 32], rel=ASKED_TOGETHER)


@pytest.mark.kernels
def test_chunks_give_what_one_call_gives():
    many = predict(BIG, [device()] * 40, *range(1, 400))
    few = predict(BIG, [device()], *range(1, 400))
    assert many.mid_s[17] == pytest.approx(few.mid_s[0], rel=ASKED_TOGETHER)


def test_the_interval_holds_the_middle_and_widens_with_ignorance():
    known, unknown = device("A100 SXM4 80GB"), device("X", family="X", architecture="Y")
    answer = predict(BIG, [known, unknown], 4)
    assert (answer.low_s < answer.mid_s).all()
    assert (answer.mid_s < answer.high_s).all()
    assert answer.log_sigma[1, 0] > answer.log_sigma[0, 0]


def test_four_of_five_steps_of_a_log_normal_lie_in_the_interval():
    answer = predict(BIG, [device()], 1, 16)
    tenth = NormalDist().inv_cdf(0.9) * answer.log_sigma
    assert np.log(answer.high_s / answer.mid_s) == pytest.approx(tenth, rel=1e-3)
    assert np.log(answer.mid_s / answer.low_s) == pytest.approx(tenth, rel=1e-3)


def test_launching_binds_where_the_host_takes_longer_or_the_device_mostly_idles():
    """Faster kernels change nothing there; up to one batch, and from it on they do."""
    work = lowered(stream(2**14, count=400))
    answer = predict(work, [device()], *(2**power for power in range(13)))
    idle_s = answer.mid_s - answer.device_s
    working_s = np.maximum(answer.compute_bound_s, answer.bandwidth_bound_s)
    is_held = (answer.host_s > answer.device_s) | (idle_s > working_s)
    assert np.array_equal(answer.bound == Bound.LAUNCH, is_held)
    assert is_held[0, 0]
    assert not is_held[0, -1]
    assert (np.diff(is_held[0].astype(int)) <= 0).all()


@pytest.mark.parametrize("name", ["lstm", "rnn"])
def test_short_steps_one_after_the_other_are_bound_by_launching_and_wide_ones_are_not(name):
    """Faster units change nothing for a small batch; a large one fills them."""
    (one,) = load_workload(name, task="infer").passes
    work = lower(one.graph, Configuration())
    answer = predict_pass(work, DeviceTable.from_devices([device()]), Points.of([1, 2**15], seq=64))
    few, many = answer.bound[0]
    assert few == Bound.LAUNCH
    assert many != Bound.LAUNCH


def test_ops_of_backward_are_dispatched_in_the_time_of_autograds_thread():
    forward_s, backward_s = (
        predict(lowered(stream(64, count=100, phase=phase)), [device()], 1).host_s[0, 0]
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    )
    fitted = builtin_calibration().constants["host"]["per_kernel_s"]["torch"]["eager"]
    assert fitted["forward"] != fitted["backward"]
    assert forward_s / backward_s == pytest.approx(fitted["forward"] / fitted["backward"])


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"memory_bytes_per_s": None}, "bandwidth"),
        ({"peak_flop_per_s": {"fp32": 1e13}}, "peak"),
        ({"num_sms": None}, "multiprocessors"),
        ({"boost_clock_hz": None}, "clock"),
    ],
)
def test_a_missing_fact_is_an_abstention_with_its_reason(change, word):
    work = lowered(
        matmul(64, 64, 64, dtype=DType.FP8), configuration=Configuration(precision="fp8")
    )
    devices = [device(peak_flop_per_s={"fp8": 1e15}), device(**change)]
    if "peak_flop_per_s" not in change:
        devices[1] = device(**change, peak_flop_per_s={"fp8": 1e15})
    answer = predict(work, devices, 1)
    reasons = abstentions(work, DeviceTable.from_devices(devices))
    assert np.isfinite(answer.mid_s[0, 0])
    assert np.isnan(answer.mid_s[1, 0])
    assert reasons[0] is None
    assert word in str(reasons[1])


def test_backward_time_is_the_part_of_backward_rows():
    work = lowered(matmul(2048, 2048, 2048), matmul(2048, 2048, 2048, phase=Phase.BACKWARD))
    answer = predict(work, [device()], 8)
    assert answer.backward_s[0, 0] == pytest.approx(answer.device_s[0, 0] / 2, rel=1e-6)


def test_energy_is_power_times_time_and_power_stays_under_the_limit():
    answer = predict(BIG, [device()], 1, 16)
    np.testing.assert_allclose(answer.energy_j, answer.power_w * answer.mid_s)
    assert (answer.power_w <= 400.0).all()
    assert (answer.power_w > 0).all()
