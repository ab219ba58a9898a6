"""Times between two events: what the call alone takes is taken off, op by op."""

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("scipy")
import pandas as pd
from fit.operators import events, usual_intervals_s

_EMPTY_S = {"add": 25e-6, "ln": 45e-6}


def calls(device, kernel_s):
    parts = [
        pd.DataFrame({
            "source_name": device, "op": op, "flop": 0.0, "peak": 1e13, "l2_bytes": 1e7,
            "moved_bytes": 1e12 * kernel_s, "memory_bytes_per_s": 1e12,
            "time_s": empty_s + np.maximum(kernel_s, 2e-6),
        })
        for op, empty_s in _EMPTY_S.items()
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def test_each_op_loses_the_time_of_its_own_call():
    kernel_s = np.array([1e-7, 1e-6, 2e-4, 1e-3])
    found = events(calls("a", kernel_s), above_floor=3.0)
    assert len(found) == 4
    np.testing.assert_allclose(found.time_s, found.moved_bytes / 1e12, rtol=1e-6)


def test_a_device_without_short_calls_loses_what_others_lose():
    """Its shortest call, 1 ms here, is no empty interval."""
    short, long = np.array([1e-7, 2e-4]), np.array([1e-3, 2e-3])
    rows = pd.concat([calls("a", short), calls("b", long)], ignore_index=True)
    found = events(rows, above_floor=3.0)
    b = found[found.source_name == "b"]
    np.testing.assert_allclose(b.time_s, b.moved_bytes / 1e12, rtol=1e-6)
    assert dict(usual_intervals_s(rows).round(9)) == _EMPTY_S
