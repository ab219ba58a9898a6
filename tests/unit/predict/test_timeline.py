"""Two timelines against the loop they replace."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.predict.timeline import step_end_s

TIMES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30)


def loop(host, device):
    dispatched = end = 0
    for h, d in zip(host, device, strict=True):
        dispatched += h
        end = max(end, dispatched) + d
    return end


@given(TIMES)
def test_the_closed_form_equals_the_loop(times):
    host, device = np.array(times, dtype=np.float32).T
    assert float(step_end_s(host, device)) == loop(host, device)


def test_no_ops_take_no_time():
    assert step_end_s(np.zeros(0, np.float32), np.zeros((2, 3, 0), np.float32)).tolist() == [
        [0, 0, 0],
        [0, 0, 0],
    ]
