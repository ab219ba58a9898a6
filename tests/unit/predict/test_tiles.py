"""The tile model: bounds that no product can pass, and what narrow weights save."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from paceline.predict import builtin_calibration
from paceline.predict.tiles import Engine, TileConstants, batched_tiles, tiled_s, tuned_s

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
    def batched_s(side, batch=64.0):
        engine = dataclasses.replace(
            ENGINE, has_matrix_units=False, batched_tile=batched_tiles(["8.6"])
        )
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
