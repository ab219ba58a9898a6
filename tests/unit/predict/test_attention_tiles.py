"""Limits and laws of the tile model of attention."""

import numpy as np
import pytest

from paceline.catalog import find_device, load_catalog
from paceline.predict import builtin_calibration
from paceline.predict.attention_tiles import AttentionConstants, attention_tiled_s
from paceline.predict.tiles import Engine

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


def test_what_lies_in_the_cache_is_read_faster():
    dims, work = work_of(8.0, 1.0, 4096.0)
    cold, warm = (engine("L40S"), engine("L40S"))
    warm = Engine(**{f: getattr(warm, f) for f in Engine.__slots__} | {"hit_frac": 1.0})
    own = constants("decode")
    assert attention_tiled_s(dims, work, warm, own) < attention_tiled_s(dims, work, cold, own)
