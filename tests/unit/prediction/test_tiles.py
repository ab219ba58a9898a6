"""The tile model: bounds that no product can pass, and what narrow weights save."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from paceline.catalog.architectures import generation_of, shipped_generations
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.kernels.product_tiles import (
    Engine,
    TileConstants,
    batched_tiles,
    tiled_s,
    tuned_s,
)

CONSTANTS = TileConstants.from_mapping(builtin_calibration().constants["tiles"]["tensor"])
#: About an RTX 3090 in FP16.
ENGINE = Engine(
    num_sms=np.array(82.0),
    clock_hz=np.array(1.7e9),
    peak_flop_per_s=np.array(71e12),
    memory_bytes_per_s=np.array(936e9),
    element_bytes=np.array(2.0),
    has_matrix_units=True,
)
#: Nothing but arithmetic costs anything.
FREE = TileConstants(
    launch_cycles=0.0, prologue_cycles=0.0, step_cycles=0.0, cache_bytes_per_cycle=np.inf,
    compute_frac=1.0, half_tile=0.0, memory_frac=1.0, fill_frac=1e-9, launch_s=0.0,
    resident_bytes_per_cycle=3.0,
)  # fmt: skip


def few_sms(num_sms, *, memory_bytes_per_s=1e30, has_matrix_units=False):
    """A device of a floating-point operation per second and multiprocessor."""
    return dataclasses.replace(
        ENGINE,
        num_sms=np.array(float(num_sms)),
        clock_hz=np.array(1.0),
        peak_flop_per_s=np.array(float(num_sms)),
        memory_bytes_per_s=np.array(memory_bytes_per_s),
        has_matrix_units=has_matrix_units,
    )


def plain_s(m, n, k, engine, *, moved_bytes=0.0, way=tiled_s, **constants):
    product = tuple(np.array([float(size)]) for size in (1, m, n, k))
    found = way(product, np.array([moved_bytes]), engine, dataclasses.replace(FREE, **constants))
    return float(found[0])


def seconds(m, n, k, *, weight_bytes=2.0):
    product = tuple(np.array([float(size)]) for size in (1, m, n, k))
    moved = np.array([weight_bytes * n * k + 2.0 * m * (n + k)])
    return float(tiled_s(product, moved, ENGINE, CONSTANTS)[0]), float(moved[0])


@pytest.mark.parametrize("m", [1, 8, 64, 4096])
@pytest.mark.parametrize("weight_bytes", [0.516, 1.03, 2.0])
def test_no_product_beats_bandwidth_or_peak(m, weight_bytes):
    time_s, moved_bytes = seconds(m, 8192, 28672, weight_bytes=weight_bytes)
    assert time_s >= moved_bytes / 936e9
    assert time_s >= 2.0 * m * 8192 * 28672 / 71e12


@pytest.mark.parametrize("weight_bytes", [0.516, 1.03, 2.0])
def test_one_row_takes_what_the_bytes_of_the_weights_take(weight_bytes):
    time_s, moved_bytes = seconds(1, 8192, 28672, weight_bytes=weight_bytes)
    assert moved_bytes / 936e9 < time_s < 1.5 * moved_bytes / 936e9


def test_many_rows_gain_nothing_from_narrow_weights():
    wide, narrow = seconds(4096, 8192, 8192)[0], seconds(4096, 8192, 8192, weight_bytes=0.516)[0]
    assert wide == pytest.approx(narrow, rel=0.01)


def test_more_rows_never_take_less_time():
    for weight_bytes in (0.516, 2.0):
        times = [seconds(m, 8192, 8192, weight_bytes=weight_bytes)[0] for m in range(1, 65)]
        assert (np.diff(times) >= -1e-12).all()


def test_a_library_of_one_batched_tile_pads_every_product_to_it():
    tile = batched_tiles([generation_of(shipped_generations(), "", "8.6")])

    def batched_s(side, batch=64.0):
        engine = dataclasses.replace(ENGINE, has_matrix_units=False, batched_tile=tile)
        product = tuple(np.array([value]) for value in (batch, side, side, 1024.0))
        return float(tiled_s(product, np.array([0.0]), engine, CONSTANTS)[0])

    assert batched_s(64.0) == pytest.approx(batched_s(128.0))
    assert batched_s(64.0, batch=1.0) < batched_s(128.0, batch=1.0)
    assert batched_s(129.0) > 2 * batched_s(128.0)


def test_what_a_split_costs_only_slows():
    dear = dataclasses.replace(CONSTANTS, split_cycles=500.0, chain_cycles=50.0)
    for m, k in ((1, 8192), (64, 65536), (4096, 4096)):
        product = tuple(np.array([float(size)]) for size in (1, m, 512, k))
        moved = np.array([2.0 * k * (m + 512)])
        assert tiled_s(product, moved, ENGINE, dear) >= tiled_s(product, moved, ENGINE, CONSTANTS)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(576, 64, 401_408), (4096, 4096, 4096), (100_000, 64, 64)]
)
def test_a_kernel_of_its_own_beats_a_library_and_no_bound(m, n, k):
    """The gradient of weights is few tiles of a long sum: whole waves of parts share it."""
    product = tuple(np.array([float(size)]) for size in (1, m, n, k))
    moved = np.array([2.0 * (m * k + k * n + m * n)])
    library_s = tiled_s(product, moved, ENGINE, CONSTANTS)
    own_s = tuned_s(product, moved, ENGINE, CONSTANTS)
    assert max(2.0 * m * n * k / 71e12, moved[0] / 936e9) <= own_s[0] <= library_s[0]
    is_few_tiles = m * n < 82 * 128 * 128
    assert bool(own_s[0] < 0.9 * library_s[0]) == is_few_tiles


@pytest.mark.parametrize("sizes", [(32, 32, 32), (33, 64, 95), (17, 40, 31), (1000, 77, 600)])
def test_one_multiprocessor_works_on_the_product_padded_to_its_finest_tile(sizes):
    padded = [32 * np.ceil(size / 32) for size in sizes]
    assert plain_s(*sizes, few_sms(1)) == pytest.approx(2 * np.prod(padded))


@pytest.mark.parametrize("num_tiles", [1, 2, 6, 7, 12, 13])
def test_tiles_follow_one_another_in_whole_waves(num_tiles):
    tile_s = 2 * 32**3
    assert plain_s(32, 32 * num_tiles, 32, few_sms(6)) == tile_s * np.ceil(num_tiles / 6)


def test_a_long_sum_is_split_over_idle_multiprocessors_where_partial_results_cost_less():
    tile_s = 2 * 32**3
    assert plain_s(32, 32, 8 * 32, few_sms(8)) == tile_s
    assert plain_s(32, 32, 2 * 32, few_sms(2)) == tile_s
    slow = few_sms(2, memory_bytes_per_s=1e-6)
    assert plain_s(32, 32, 2 * 32, slow) == 2 * tile_s
    assert plain_s(32, 32, 1024 * 32, slow, way=tuned_s) == 1024 * tile_s
    assert plain_s(32, 32, 2 * 32, few_sms(2), split_cycles=tile_s) == 2 * tile_s


@pytest.mark.parametrize("num_sms", [16, 128, 1024])
def test_a_kernel_of_its_own_splits_the_sum_over_the_whole_device(num_sms):
    assert plain_s(32, 32, num_sms * 32, few_sms(num_sms), way=tuned_s) == 2 * 32**3


def test_few_tiles_reach_their_share_of_the_bandwidth():
    """One tile of 32 on 80 multiprocessors, split in eight, whose parts write FP32."""
    device, moved_bytes = few_sms(80, memory_bytes_per_s=1e-3), 1e6
    partial_bytes = 8 * 4 * 32 * 32
    expected_s = (moved_bytes + partial_bytes) / (1e-3 * 8 / 80)
    found_s = plain_s(32, 32, 32, device, moved_bytes=moved_bytes, fill_frac=1.0)
    assert found_s == pytest.approx(expected_s)


def test_a_tile_waits_for_its_launch_its_prologue_and_its_steps():
    alone_s, device = plain_s(32, 32, 64, few_sms(1)), few_sms(1)
    assert plain_s(32, 32, 64, device, launch_s=5.0, launch_cycles=7.0) == alone_s + 12.0
    assert plain_s(32, 32, 64, device, prologue_cycles=9.0) == alone_s + 9.0
    assert plain_s(32, 32, 64, device, step_cycles=1e9) == 1e9
    read_s = (32 + 32) * 2.0 * 64 / 1e-3
    assert plain_s(32, 32, 64, device, cache_bytes_per_cycle=1e-3) == pytest.approx(read_s)


def test_small_tiles_reach_less_of_the_peak():
    half = plain_s(32, 32, 32, few_sms(1), half_tile=32.0 * 32.0)
    assert half == pytest.approx(2 * plain_s(32, 32, 32, few_sms(1)))


@pytest.mark.parametrize(("m", "n"), [(1, 4096), (4096, 1)])
def test_a_matrix_times_a_vector_pads_nothing(m, n):
    work = 2.0 * m * n * 4096
    assert plain_s(m, n, 4096, few_sms(1)) == work
    assert plain_s(m, n, 4096, few_sms(1, has_matrix_units=True)) == 16 * work
    assert plain_s(m, n, 4096, few_sms(1, memory_bytes_per_s=0.5), moved_bytes=1e9) == 2e9
    assert plain_s(m, n, 4096, few_sms(1), chain_cycles=64.0 * work) > work


@pytest.mark.parametrize(("m", "n"), [(2, 4096), (4096, 2)])
def test_without_matrix_units_two_rows_fill_a_tile(m, n):
    assert plain_s(m, n, 4096, few_sms(1)) == 2.0 * 32 * 4096 * 4096


@pytest.mark.parametrize(
    ("hit_frac", "s_per_byte"), [(0.0, 1 / 6), (1.0, 1 / 12), (0.5, (1 / 6 + 1 / 12) / 2)]
)
def test_bytes_come_from_memory_or_from_the_cache(hit_frac, s_per_byte):
    device = dataclasses.replace(few_sms(4, memory_bytes_per_s=12.0), hit_frac=hit_frac)
    constants = dataclasses.replace(FREE, memory_frac=0.5)
    assert device.s_per_byte(constants) == pytest.approx(s_per_byte)
    slower = dataclasses.replace(constants, resident_bytes_per_cycle=0.1)
    assert device.s_per_byte(slower) == pytest.approx(1 / 6)  # a cache is never below memory


def test_few_rows_take_what_one_takes_where_vector_units_keep_up():
    known = dataclasses.replace(ENGINE, unhalved_flop_per_s=(np.array(35.6e12), np.array(np.nan)))
    one, few, unknown = (
        plain_s(m, 4096, 4096, engine, moved_bytes=33.6e6, half_tile=7000.0)
        for m, engine in ((1, known), (16, known), (16, ENGINE))
    )
    assert few == pytest.approx(one)
    assert unknown > few


@pytest.mark.parametrize("m", [32, 64, 128, 4096])
def test_units_that_multiply_at_half_their_rate_are_fed_at_the_whole(m):
    halved = dataclasses.replace(ENGINE, unhalved_flop_per_s=(np.array(np.nan), np.array(284e12)))
    whole = dataclasses.replace(ENGINE, peak_flop_per_s=2 * ENGINE.peak_flop_per_s)
    as_listed, fed, faster = (
        plain_s(m, 4096, 4096, engine, half_tile=7000.0) for engine in (ENGINE, halved, whole)
    )
    assert faster < fed < as_listed
    assert fed >= 2.0 * m * 4096 * 4096 / 71e12
