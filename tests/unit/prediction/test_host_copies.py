"""What offload pays: bytes over the host link."""

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass

POINTS = Points(batch=np.array([4.0]), seq=np.array([1024.0]))


def busy_s(device, **settings):
    graph = load_workload("gpt2").passes[0].graph
    table = DeviceTable.from_devices((find_device(load_catalog(), device),))
    return float(
        predict_pass(lower(graph, Configuration(**settings)), table, POINTS).device_s[0, 0]
    )


@pytest.mark.parametrize("device", ["a100", "RTX 3090"])
def test_an_update_on_the_host_moves_gradients_down_and_parameters_up(device):
    """8 bytes per parameter over the link, instead of an update on the device."""
    one = find_device(load_catalog(), device)
    rate = one.pcie_bytes_per_s * builtin_calibration().constant("host", "link_efficiency_frac")
    added_s = busy_s(device, offload="optimizer") - busy_s(device)
    copies_s = 8 * 124_439_808 / rate
    assert 0.5 * copies_s < added_s < copies_s


def test_offload_is_never_faster():
    assert busy_s("a100", offload="activations") > busy_s("a100")
    assert busy_s("h100", offload="optimizer") > busy_s("h100")


def test_a_faster_link_is_never_slower():
    slow, fast = (busy_s(d, offload="activations") - busy_s(d) for d in ("V100", "h100"))
    assert fast < slow
