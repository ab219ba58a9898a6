"""Limits and laws of the tile model of attention."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.graph import OpKind
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.attention_tiles import AttentionConstants, attention_tiled_s
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.product_tiles import Engine
from paceline.prediction.kernels.row_times import row_times
from paceline.prediction.prediction import Points

from .passes import lowered, matmul

NAMES = ("A100 SXM4 80GB", "L40S", "H100 SXM5 80GB", "B200 SXM")
HEADS, HEAD_SIZE = 32.0, 128.0
KEYS = 2.0 ** np.arange(4, 20)


def constants(name):
    return AttentionConstants.from_mapping(builtin_calibration().constants["attention_tiles"][name])


def engine(name, **changed):
    device = find_device(load_catalog(), name)
    facts = {
        "num_sms": device.num_sms, "clock_hz": device.boost_clock_hz,
        "peak_flop_per_s": device.peak_flop_per_s["bf16"],
        "memory_bytes_per_s": device.memory_bytes_per_s, "element_bytes": 2.0,
    }  # fmt: skip
    return Engine(**{k: np.float64(v) for k, v in (facts | changed).items()}, has_matrix_units=True)


def work_of(batch, q_len, kv_len, *, causal=0.0):
    """Shape numbers with FLOP and bytes."""
    seen = kv_len - causal * q_len / 2
    flop = 4 * batch * HEADS * q_len * seen * HEAD_SIZE
    moved = 2 * batch * HEADS * HEAD_SIZE * (2 * q_len + 2 * kv_len)
    return (batch, HEADS, HEADS, q_len, kv_len, HEAD_SIZE, causal), (flop, moved)


@pytest.mark.parametrize("name", NAMES)
def test_long_decode_takes_its_bytes_over_the_bandwidth_reached(name):
    dims, work = work_of(64.0, 1.0, 2.0**20)
    device, own = engine(name), constants("decode")
    expected = work[1] / (device.memory_bytes_per_s * own.memory_frac)
    assert expected <= attention_tiled_s(dims, work, device, own) < 1.2 * expected


@pytest.mark.parametrize("name", NAMES)
def test_long_prefill_never_beats_the_peak_and_reaches_a_third(name):
    dims, work = work_of(4.0, 2.0**16, 2.0**16, causal=1.0)
    device = engine(name)
    reached = work[0] / attention_tiled_s(dims, work, device, constants("prefill"))
    assert 1 / 3 < reached / device.peak_flop_per_s < 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("op", ["decode", "prefill"])
def test_twice_the_keys_or_sequences_are_never_faster(name, op):
    q_len = np.ones_like(KEYS) if op == "decode" else KEYS
    for dims, work in (work_of(8.0, q_len, KEYS), work_of(KEYS / 16, 1.0, 1024.0)):
        time_s = attention_tiled_s(dims, work, engine(name), constants(op))
        assert (np.diff(time_s) >= 0).all()


@pytest.mark.parametrize("better", ["memory_bytes_per_s", "peak_flop_per_s", "clock_hz"])
def test_better_hardware_is_never_slower(better):
    dims, work = work_of(8.0, KEYS, KEYS, causal=1.0)
    base, own = engine("L40S"), constants("prefill")
    twice = engine("L40S", **{better: 2 * getattr(base, better)})
    now, then = (attention_tiled_s(dims, work, one, own) for one in (base, twice))
    assert (then <= now * (1 + 1e-9)).all()


def test_handing_partial_results_over_costs_where_keys_are_split_and_nowhere_else():
    """One short query over long keys is split; a full device of queries is not."""
    own = constants("decode")
    dearer = replace(own, split_cycles=own.split_cycles + 1e3)
    few, many = work_of(0.125, 1.0, 2.0**15), work_of(4096.0, 1.0, 2.0**15)
    slower = [
        attention_tiled_s(*work, engine("H100 SXM5 80GB"), dearer)
        > attention_tiled_s(*work, engine("H100 SXM5 80GB"), own)
        for work in (few, many)
    ]
    assert [bool(one) for one in slower] == [True, False]


def test_what_lies_in_the_cache_is_read_faster():
    dims, work = work_of(8.0, 1.0, 4096.0)
    cold, warm = (engine("L40S"), engine("L40S"))
    warm = Engine(**{f: getattr(warm, f) for f in Engine.__slots__} | {"hit_frac": 1.0})
    own = constants("decode")
    assert attention_tiled_s(dims, work, warm, own) < attention_tiled_s(dims, work, cold, own)


def attention_row(q_len, power):
    """A causal row of 32 heads over 4,096 keys per batch item; its query rows are a monomial."""
    flop = 4 * 32 * 4096 * 128
    dims = {0: (1, 1), 1: (32, 0), 2: (32, 0), 3: (q_len, power), 4: (4096, 0), 5: (128, 0)}
    keys = 2 * 2 * 32 * 4096 * 128
    return matmul(1, 1, 1) | {"kind": OpKind.ATTENTION, "dims": dims, "flop": flop, "read": keys}


@pytest.mark.kernels
@pytest.mark.parametrize("power", [0, 2])
def test_an_answer_does_not_depend_on_the_lengths_asked_beside_it(power):
    """Whether a row is decode is a matter of its polynomial, never of the point asked for."""
    work = lowered(attention_row(1, power))
    table = DeviceTable.from_devices([find_device(load_catalog(), name) for name in NAMES])

    def time_s(seq):
        points = Points(batch=np.ones(len(seq)), seq=np.array(seq, float))
        shapes = evaluate_shapes(work.costs, points)
        return row_times(work, shapes, table, builtin_calibration()).device_s[:, 0]

    assert np.array_equal(time_s([1]), time_s([1, 4096]))


def test_decode_is_the_tile_model_alone():
    """No network: time over the bound is the last feature, to single precision."""
    work = lowered(attention_row(1, 0))
    table = DeviceTable.from_devices([find_device(load_catalog(), "H100 SXM5 80GB")])
    calibration = builtin_calibration()
    shapes = evaluate_shapes(work.costs, Points(batch=np.full(1, 8.0), seq=np.ones(1)))
    dims = tuple(shapes.dims[0, 0, :7].astype(float))
    expected = attention_tiled_s(
        dims, (shapes.flop[0, 0], shapes.moved_bytes[0, 0]), engine("H100 SXM5 80GB"),
        constants("decode"),
    )  # fmt: skip
    found = row_times(work, shapes, table, calibration).device_s.item()
    kernel_s = found - calibration.constant("device", "launch_gap_s")
    assert kernel_s == pytest.approx(float(expected), rel=1e-3)


#: Nothing costs anything but what a multiprocessor does per cycle.
FREE = AttentionConstants(
    launch_s=0.0, prologue_cycles=0.0, step_cycles=0.0, compute_frac=1.0, half_rows=0.0,
    memory_frac=1.0, fill_frac=1e-9, split_cycles=0.0, resident_bytes_per_cycle=1.0,
    exponentials_per_cycle=16.0, cache_bytes_per_cycle=64.0,
)  # fmt: skip


def few_sms(num_sms, *, flop_per_cycle=1.0, memory_bytes_per_s=1e30):
    """A device of a cycle per second."""
    facts = {
        "num_sms": num_sms, "clock_hz": 1.0, "peak_flop_per_s": num_sms * flop_per_cycle,
        "memory_bytes_per_s": memory_bytes_per_s, "element_bytes": 2.0,
    }  # fmt: skip
    return Engine(
        **{name: np.float64(value) for name, value in facts.items()}, has_matrix_units=True
    )


def plain_s(device, q_len, kv_len, *, batch=1.0, heads=1.0, causal=0.0, moved_bytes=0.0, **changed):
    seen_keys = kv_len - causal * q_len / 2
    flop = 4 * batch * heads * q_len * seen_keys * HEAD_SIZE
    dims = (batch, heads, 1.0, q_len, kv_len, HEAD_SIZE, causal)
    return float(attention_tiled_s(dims, (flop, moved_bytes), device, replace(FREE, **changed)))


@pytest.mark.parametrize(
    ("q_len", "kv_len", "padded"), [(16, 64, 16 * 64), (17, 65, 32 * 128), (128, 640, 128 * 640)]
)
def test_one_multiprocessor_works_on_rows_and_keys_padded_to_its_finest_tile(q_len, kv_len, padded):
    assert plain_s(few_sms(1), q_len, kv_len) == pytest.approx(4 * padded * HEAD_SIZE)


def test_few_rows_wait_for_keys_and_values_from_the_cache_and_causal_rows_for_half():
    """64 bytes per cycle (attention_limits.csv), whatever the arithmetic."""
    fast = few_sms(1, flop_per_cycle=1e9)
    assert plain_s(fast, 1, 4096) == 2 * 4096 * HEAD_SIZE * 2 / 64
    assert plain_s(fast, 4096, 4096, causal=1.0) == plain_s(fast, 4096, 4096) / 2


def test_a_tile_waits_for_its_launch_its_prologue_and_its_steps():
    alone_s = plain_s(few_sms(1), 16, 64)
    assert plain_s(few_sms(1), 16, 64, launch_s=5.0) == alone_s + 5.0
    assert plain_s(few_sms(1), 16, 64, prologue_cycles=9.0) == alone_s + 9.0
    assert plain_s(few_sms(1), 16, 64, step_cycles=1e9) == 1e9
    assert plain_s(few_sms(1), 16, 64, half_rows=16.0) == 2 * alone_s
    assert plain_s(few_sms(1), 16, 64, compute_frac=0.5) == 2 * alone_s


@pytest.mark.parametrize("num_sms", [2, 8, 32])
def test_keys_are_split_over_idle_multiprocessors_where_partial_results_cost_less(num_sms):
    step_s = plain_s(few_sms(num_sms), 16, 64)
    assert plain_s(few_sms(num_sms), 16, 64 * num_sms) == step_s
    slow = few_sms(num_sms, memory_bytes_per_s=1e-6)
    assert plain_s(slow, 16, 64 * num_sms) == num_sms * step_s


def test_few_tiles_reach_their_share_of_the_bandwidth():
    """Two items, a tile each, in 32 parts that write a row of FP32 for each query of each head."""
    partial_bytes = 32 * 4 * 2 * 2 * 3 * HEAD_SIZE
    device = few_sms(80, memory_bytes_per_s=1e-6)
    found_s = plain_s(device, 3, 64, batch=2.0, heads=2.0, moved_bytes=1e9, fill_frac=1.0)
    assert found_s == pytest.approx((1e9 + partial_bytes) / (1e-6 * 64 / 80))
