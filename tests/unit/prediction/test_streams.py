"""Laws of ops that only stream: larger is slower, and never out of proportion."""

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.graph import OpKind
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.row_times import row_times
from paceline.prediction.prediction import Points

from .passes import lowered, stream

NAMES = (
    "Tesla P100 PCIe 16GB", "Tesla V100 SXM2 16GB", "Tesla T4", "A100 SXM4 80GB", "L4",
    "GeForce RTX 4090", "H100 SXM5 80GB", "B200 SXM", "RTX PRO 6000 Blackwell Server",
)  # fmt: skip
#: From 64 elements to a billion in steps of the root of two.
SCALE = 2.0 ** np.arange(0, 24, 0.5)
OCTUPLE = 6


KINDS = [OpKind.ELEMENTWISE, OpKind.REDUCE, OpKind.SOFTMAX, OpKind.NORM]
TABLE = DeviceTable.from_devices([find_device(load_catalog(), name) for name in NAMES])


def seconds(kind: OpKind) -> tuple[np.ndarray, np.ndarray]:
    """Time of one op and its bytes over the last-level cache, (devices, sizes)."""
    work = lowered(stream(64, kind=kind))
    shapes = evaluate_shapes(work.costs, Points(batch=SCALE, seq=np.ones_like(SCALE)))
    times = row_times(work, shapes, TABLE, builtin_calibration())
    return times.device_s[:, :, 0], times.bounds.bytes_over_l2[:, :, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_more_elements_are_never_faster(kind: OpKind) -> None:
    """But for 2 % where a learned curve is flat: in launch, a few microseconds."""
    time_s, _ = seconds(kind)
    assert (time_s[:, 1:] > 0.98 * time_s[:, :-1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_eight_times_the_elements_take_at_most_eight_times_as_long(kind: OpKind) -> None:
    """A third more for what is learned; unless they leave half of the last-level cache, which is up
    to three times as fast as memory."""
    time_s, over_l2 = seconds(kind)
    ratio = time_s[:, OCTUPLE:] / time_s[:, :-OCTUPLE]
    leaves_cache = (over_l2[:, :-OCTUPLE] < 1) & (over_l2[:, OCTUPLE:] > 0.5)
    assert (ratio[~leaves_cache] < 8 * 1.3).all()
    assert (ratio < 8 * 3).all()


#: Addition of 64 tokens of width 8,192 in FP16, kernel time (vidur profiles, read 2026-11-20).
PUBLISHED_S = {"A100 SXM4 80GB": 3e-6, "H100 SXM5 80GB": 2e-6}


@pytest.mark.parametrize("name", PUBLISHED_S)
def test_a_small_addition_takes_the_few_microseconds_of_served_models(name: str) -> None:
    """Kernels timed between two events show none below some 24 µs; traces do."""
    calibration = builtin_calibration()
    elements = 64 * 8192
    addition = stream(elements) | {"read": 4 * elements}
    addition["dims"] |= {2: (2, 0)}
    work, once = lowered(addition), Points(batch=np.ones(1), seq=np.ones(1))
    table = DeviceTable.from_devices([find_device(load_catalog(), name)])
    answer = row_times(work, evaluate_shapes(work.costs, once), table, calibration).device_s.item()
    kernel_s = answer - calibration.constant("device", "launch_gap_s")
    assert PUBLISHED_S[name] / 2 < kernel_s < 2 * PUBLISHED_S[name]
