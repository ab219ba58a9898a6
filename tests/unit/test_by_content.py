"""Tables by their content."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.columns import ByContent
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass

DEVICES = DeviceTable.from_devices(load_catalog().devices[:3])


def test_a_table_is_equal_to_one_with_its_values_and_to_no_other() -> None:
    points = Points.of([1, 2], seq=128)
    assert ByContent(points) == ByContent(Points.of([1, 2], seq=128))
    assert hash(ByContent(points)) == hash(ByContent(Points.of([1, 2], seq=128)))
    assert ByContent(points) != ByContent(Points.of([1, 2], seq=129))
    assert ByContent(points) != ByContent(replace(points, batch=np.array([1, 2])))
    assert ByContent(DEVICES.take([0, 2])) == ByContent(DEVICES.take([0, 2]))
    assert ByContent(DEVICES.take([0, 2])) != ByContent(DEVICES.take([2, 0]))


def test_a_prediction_is_kept_and_cannot_be_written_to() -> None:
    lowered = lower(load_workload("mnist-cnn").passes[0].graph, Configuration())
    points = Points.of([8, 16], seq=1)
    first = predict_pass(lowered, DEVICES, points)
    assert predict_pass(lowered, DEVICES.take([0, 1, 2]), Points.of([8, 16], seq=1)) is first
    assert predict_pass(lowered, DEVICES, Points.of([8, 17], seq=1)) is not first
    faster = replace(DEVICES, memory_bytes_per_s=2 * DEVICES.memory_bytes_per_s)
    assert (predict_pass(lowered, faster, points).device_s < first.device_s).any()
    with pytest.raises(ValueError, match="read-only"):
        first.mid_s[0, 0] = 1.0
