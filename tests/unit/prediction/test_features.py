"""The columns that networks were fitted on: their names, and each name alone moves its column."""

from dataclasses import replace

import numpy as np
import pytest

from paceline.prediction.features import (
    ATTENTION_FEATURES,
    CONV_FEATURES,
    PRODUCT_FEATURES,
    STREAM_FEATURES,
    STREAM_FLAGS,
    Bounds,
    ConvShape,
    Settings,
    attention_features,
    conv_features,
    product_features,
    stream_features,
)


def number(value):
    return np.asarray(value, np.float32)


BOUNDS = Bounds(compute_s=number(2e-4), memory_s=number(1e-4), bytes_over_l2=number(3.0))
SMS = number(108.0)
TILED_S = number(4e-4)
PRODUCT = tuple(map(number, (2.0, 512.0, 256.0, 64.0)))
NO_SETTINGS = Settings(
    is_compiled=number(0.0), is_channels_last=number(0.0), chooses_by_graph=number(0.0)
)
CONV = ConvShape(
    kernel_area=number(9.0),
    stride=number(2.0),
    channels_per_group=number(64.0),
    gathered_over_moved=number(4.0),
    is_line=number(0.0),
    is_backward_input=number(0.0),
    is_backward_weight=number(0.0),
)


def of_products(dims=PRODUCT, bounds=BOUNDS, tiled_s=TILED_S):
    return dict(zip(PRODUCT_FEATURES, product_features(bounds, dims, SMS, tiled_s), strict=True))


def of_convolutions(conv=CONV, settings=NO_SETTINGS):
    row = conv_features(BOUNDS, conv, PRODUCT, SMS, TILED_S, settings)
    return dict(zip(CONV_FEATURES, row, strict=True))


def of_attention(dims):
    row = attention_features(BOUNDS, tuple(map(number, dims)), SMS, TILED_S)
    return dict(zip(ATTENTION_FEATURES, row, strict=True))


def of_streams(flags, settings=NO_SETTINGS):
    row = stream_features(BOUNDS, tuple(map(number, (4096.0, 768.0, 3.0))), flags, SMS, settings)
    return dict(zip(STREAM_FEATURES, row, strict=True))


def moved(before, after):
    return {name for name in before if before[name] != after[name]}


def test_products_are_described_in_the_order_of_their_names():
    row = of_products()
    assert row["log_bound_us"] == pytest.approx(np.log10(200))
    assert row["log_intensity_over_ridge"] == pytest.approx(np.log10(2))
    assert row["log_bytes_over_l2"] == pytest.approx(np.log10(3))
    sizes = [10 ** row[f"log_{name}"] for name in ("batch", "m", "n", "k")]
    assert sizes == pytest.approx([2, 512, 256, 64], rel=1e-5)
    assert row["log_tiled_over_bound"] == pytest.approx(np.log10(2))


def test_tiles_and_waves_are_those_of_the_tile_sizes():
    """512 × 256 in tiles of 64 × 64 are 32 blocks each, of 128 × 128 eight, of 256 × 128 four."""
    row = of_products()
    assert 10 ** row["log_waves_64"] == pytest.approx(2 * 32 / 108, rel=1e-5)
    assert 10 ** row["log_waves_128"] == pytest.approx(2 * 8 / 108, rel=1e-5)
    assert row["wave_fill_256"] == pytest.approx(2 * 4 / 108, rel=1e-5)
    assert row["tile_fill_64"] == row["tile_fill_128"] == 1
    cut = of_products(tuple(map(number, (2.0, 512.0, 129.0, 64.0))))
    assert cut["tile_fill_128"] == pytest.approx(129 / 256)
    assert cut["tile_fill_64"] == pytest.approx(129 / 192)


@pytest.mark.parametrize(("place", "name"), [(2, "odd_n"), (3, "odd_k")])
def test_an_extent_that_vectors_of_eight_do_not_divide_is_marked(place, name):
    dims = list(PRODUCT)
    dims[place] = number(60.0)
    assert of_products()[name] == 0
    assert of_products(tuple(dims))[name] == 1


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("kernel_area", "log_kernel_area"), ("stride", "log_stride"),
        ("channels_per_group", "log_channels_per_group"),
        ("gathered_over_moved", "log_gathered_over_moved"), ("is_line", "is_line"),
        ("is_backward_input", "is_backward_input"), ("is_backward_weight", "is_backward_weight"),
    ],
)  # fmt: skip
def test_each_fact_of_a_convolution_has_its_column(field, name):
    other = replace(CONV, **{field: getattr(CONV, field) + 1})
    assert moved(of_convolutions(), of_convolutions(other)) == {name}


def test_one_channel_per_group_is_depthwise():
    other = of_convolutions(replace(CONV, channels_per_group=number(1.0)))
    assert other["is_depthwise"] == 1
    assert of_convolutions()["is_depthwise"] == 0


@pytest.mark.parametrize("field", ["is_compiled", "is_channels_last", "chooses_by_graph"])
def test_each_setting_has_its_column(field):
    on = replace(NO_SETTINGS, **{field: number(1.0)})
    none = tuple(number(0.0) for _ in STREAM_FLAGS)
    assert moved(of_convolutions(), of_convolutions(settings=on)) == {field}
    assert moved(of_streams(none), of_streams(none, on)) == {field}


@pytest.mark.parametrize("name", STREAM_FLAGS)
def test_each_flag_of_a_stream_has_its_column(name):
    none = tuple(number(0.0) for _ in STREAM_FLAGS)
    one = tuple(number(name == flag) for flag in STREAM_FLAGS)
    assert moved(of_streams(none), of_streams(one)) == {name}


def test_rows_of_a_stream_are_counted_per_multiprocessor():
    row = of_streams(tuple(number(0.0) for _ in STREAM_FLAGS))
    assert 10 ** row["log_rows_per_sm"] == pytest.approx(4096 / 108, rel=1e-5)
    assert 10 ** row["log_columns"] == pytest.approx(768, rel=1e-5)
    assert row["operands"] == 3


def test_attention_is_cut_into_blocks_of_128_queries():
    row = of_attention((4, 32, 8, 1000, 2000, 128, 1))
    assert 10 ** row["log_waves"] == pytest.approx(4 * 32 * 8 / 108, rel=1e-5)
    assert 10 ** row["log_group"] == pytest.approx(4, rel=1e-5)
    assert 10 ** row["log_q_len"] == pytest.approx(1000, rel=1e-5)
    assert 10 ** row["log_kv_len"] == pytest.approx(2000, rel=1e-5)
    assert row["causal"] == 1
    waves = 4 * 32 * 8 / 108
    assert row["wave_fill"] == pytest.approx(waves / np.ceil(waves), rel=1e-5)


def test_no_wave_is_filled_beyond_one():
    for m in (1.0, 63.0, 64.0, 65.0, 5000.0):
        row = of_products(tuple(map(number, (3.0, m, 200.0, 64.0))))
        fills = [row[f"wave_fill_{size}"] for size in (64, 128, 256)]
        assert all(0 < fill <= 1 for fill in fills)
        assert 0 < row["tile_fill_128"] <= 1
