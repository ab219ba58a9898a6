"""Streams that read rows again: from where, and what it costs."""

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("scipy")
import pandas as pd
from fit.row_kernels import RowConstants, fit_rows, row_log

CONSTANTS = RowConstants(
    launch_s=0.0, softmax_launch_s=0.0, norm_launch_s=0.0, l1_bytes_per_cycle=60.0,
    l2_bytes_per_cycle=20.0, l1_share=1.0, l2_share=0.6, norm_cycles=0.0, shared_cycles=0.0,
    row_frac=1.0, overlap=1.0, bandwidth_frac=1.0,
)  # fmt: skip


def asked(columns, *, kind="add", compute_capability="8.0", l2_bytes=4e7):
    """20,000 rows on a device of 1 TB/s."""
    columns = np.atleast_1d(np.asarray(columns, float))
    return pd.DataFrame({
        "rows": 20_000.0, "columns": columns, "moved_bytes": 8 * 20_000 * columns,
        "is_norm": float(kind == "ln"), "is_softmax": float(kind == "softmax"), "num_sms": 100,
        "clock_hz": 1.5e9, "l2_bytes": l2_bytes, "memory_bytes_per_s": 1e12,
        "compute_capability": compute_capability,
    })  # fmt: skip


def seconds(columns, **facts):
    return np.exp(row_log(asked(columns, **facts), CONSTANTS))


def test_what_is_read_once_takes_the_bandwidth():
    columns = np.array([512.0, 1024.0])
    np.testing.assert_allclose(seconds(columns), 8 * 20_000 * columns / 1e12)
    np.testing.assert_allclose(seconds(columns, kind="softmax"), seconds(columns))


def test_layer_norm_reads_again_what_outgrows_both_caches():
    """Half as much again, and next to nothing where rows fit the cache of the multiprocessor."""
    wide = seconds(8192, kind="ln", l2_bytes=2e6) / seconds(8192)
    np.testing.assert_allclose(wide, 1.5, rtol=0.02)
    narrow = seconds(512, kind="ln", l2_bytes=2e6) / seconds(512)
    assert 1.0 < narrow < 1.1


def test_a_larger_cache_is_never_slower():
    sizes = [seconds(4096, kind="ln", l2_bytes=size) for size in (1e6, 4e6, 4e7, 4e8)]
    assert np.all(np.diff(np.concatenate(sizes)) <= 0)


def test_softmax_reads_aligned_rows_once_while_they_fit_shared_memory():
    small = {"compute_capability": "6.0", "l2_bytes": 2e6}
    aligned, odd, too_wide = seconds([4096, 4097, 16384], kind="softmax", **small)
    plain = seconds([4096, 16384])
    np.testing.assert_allclose(aligned, plain[0])
    assert odd > 1.3 * plain[0]
    assert too_wide > 1.3 * plain[1]


def test_what_is_not_known_of_a_device_is_not_made_up():
    assert np.isnan(seconds(2048, kind="ln", compute_capability="3.5")).all()


@pytest.mark.slow
def test_a_fit_finds_the_times_that_the_law_made_and_the_same_ones_again():
    """Two devices, the second of which reaches less of its bandwidth."""
    columns = np.geomspace(256, 16384, 40).round()
    parts = [
        asked(columns, kind=kind, compute_capability=compute_capability, l2_bytes=l2_bytes)
        for kind in ("add", "ln", "softmax")
        for compute_capability, l2_bytes in (("6.0", 2e6), ("8.0", 4e7))
    ]
    rows = pd.concat(parts, ignore_index=True)
    is_old = (rows.compute_capability == "6.0").to_numpy()
    made = np.exp(row_log(rows, CONSTANTS)) * np.where(is_old, 1.1, 1 / 1.1)
    rows = rows.assign(source_name=rows.compute_capability, time_s=made)
    found = fit_rows(rows, rounds=1500)
    miss = row_log(rows, found) - np.log(made)
    assert np.median(np.abs(miss - np.where(is_old, np.log(1 / 1.1), np.log(1.1)))) < 0.05
    assert fit_rows(rows, rounds=1500) == found
