"""Two timelines against the loop they replace."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.prediction.step.timeline import step_ends_s, waiting_end_s

TIMES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30)


def step_end_s(host, device):
    return step_ends_s(host, device, device.shape[-1])[0]


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


@given(TIMES, st.integers(0, 30))
def test_the_first_ops_end_as_they_do_alone(times, num_before):
    host, device = np.array(times, dtype=np.float32).T
    count = min(num_before, len(times))
    end, before = step_ends_s(host, device, count)
    assert float(end) == loop(host, device)
    assert float(before) == loop(host[:count], device[:count])


def test_each_device_has_the_host_beside_it():
    """A row of host times per device answers as each device alone."""
    host, busy = np.float32([[1, 2, 3], [4, 5, 6]]), np.float32([[5, 1, 1], [1, 1, 9]])
    together = step_end_s(host[:, None], busy[:, None])[:, 0]
    assert together.tolist() == [float(step_end_s(h, d)) for h, d in zip(host, busy, strict=True)]


def test_no_ops_take_no_time():
    assert step_end_s(np.zeros(0, np.float32), np.zeros((2, 3, 0), np.float32)).tolist() == [
        [0, 0, 0],
        [0, 0, 0],
    ]


WAITS = st.sets(st.integers(0, 29))


def waiting_loop(host, device, waits):
    clock = end = 0
    for op, (h, d) in enumerate(zip(host, device, strict=True)):
        clock += h
        end = max(end, clock) + d
        clock = max(clock, end) if op in waits else clock
    return end


def ended(times, waits):
    host, device = np.array(times, dtype=np.float32).T
    chosen = np.array(sorted(w for w in waits if w < len(times)), dtype=np.intp)
    return float(waiting_end_s(host, device, chosen))


@given(TIMES, WAITS)
def test_stretches_between_waits_add_up_to_the_loop(times, waits):
    host, device = np.array(times, dtype=np.float32).T
    assert ended(times, waits) == waiting_loop(host, device, waits)


@given(TIMES)
def test_without_waits_it_is_one_stretch_and_with_all_the_sum_of_both(times):
    host, device = np.array(times, dtype=np.float32).T
    assert ended(times, ()) == float(step_end_s(host, device))
    assert ended(times, range(len(times))) == float((host + device).sum())


@given(TIMES, WAITS, st.integers(0, 29))
def test_another_wait_is_never_faster(times, waits, another):
    assert ended(times, waits | {another}) >= ended(times, waits)


@given(TIMES, WAITS)
def test_a_host_that_takes_no_time_loses_none_by_waiting(times, waits):
    device_only = [(0, d) for _, d in times]
    assert ended(device_only, waits) == sum(d for _, d in times)


def test_the_end_moves_no_more_than_the_ops_it_is_the_sum_of():
    """A sum in 32 bits would move by many times their last bit."""
    draw = np.random.default_rng(0)
    device = draw.uniform(1e-6, 1e-3, 4_000).astype(np.float32)
    moved = np.nextafter(device, draw.choice([0.0, 1.0], device.shape).astype(np.float32))
    host = np.full(device.shape, 5e-6, dtype=np.float32)
    ends = [float(step_end_s(host, times)) for times in (device, moved)]
    assert abs(ends[1] / ends[0] - 1.0) < 1e-8
