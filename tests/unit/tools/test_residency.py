"""What repeated calls find in a cache, and what few measured shapes may change."""

import numpy as np
import pandas as pd
import pytest

pytestmark = pytest.mark.slow


def reads(moved_bytes, *, l2_bytes=1e8, memory=1e12):
    moved = np.atleast_1d(np.asarray(moved_bytes, float))
    return pd.DataFrame({
        "moved_bytes": moved, "l2_bytes": l2_bytes, "memory_bytes_per_s": memory,
        "num_sms": 100, "clock_hz": 2e9, "device": "X",
    })  # fmt: skip


def test_what_fits_the_cache_is_read_at_its_pace_and_what_does_not_from_memory():
    from fit.residency import with_residency

    rows = with_residency(reads([1e7, 1e9]), 1.0, 10.0)
    np.testing.assert_allclose(rows.memory_s, [1e7 / 2e12, 1e9 / 1e12])


def test_more_copies_of_the_operands_need_a_larger_cache():
    from fit.residency import hit_frac

    rows = reads(np.geomspace(1e5, 1e10, 60))
    few, many = hit_frac(rows, 1.0), hit_frac(rows, 8.0)
    assert (many <= few).all()
    assert (np.diff(few) <= 0).all()
    assert few[0] == 1
    assert few[-1] == 0


def test_a_cache_slower_than_memory_slows_nothing():
    from fit.residency import with_residency

    rows = with_residency(reads([1e7], memory=8e12), 1.0, 10.0)
    assert rows.memory_s[0] == pytest.approx(1e7 / 8e12)


def test_the_pace_of_the_slowest_cache_is_found():
    from fit.residency import resident_bytes_per_cycle

    slow, fast = reads(np.full(200, 1e7)), reads(np.full(200, 1e7)).assign(device="Z")
    slow["time_s"], fast["time_s"] = 1e7 / (7 * 2e11), 1e7 / (20 * 2e11)
    assert resident_bytes_per_cycle(pd.concat([slow, fast])) == pytest.approx(7)


def shapes(rng, count):
    return pd.DataFrame({name: 2.0 ** rng.uniform(0, 14, count) for name in "mnk"})


def test_a_level_is_found_from_few_shapes():
    from accuracy.few_shapes import correction, places

    rng = np.random.default_rng(0)
    place = places(shapes(rng, 500), rng.uniform(0, 0.6, 500))
    residual = 0.3 + rng.normal(0, 0.05, 500)
    moved = correction(place[:20], residual[:20], place[20:])
    assert np.abs(residual[20:] - moved).mean() < 0.06


def test_shapes_that_only_scatter_move_next_to_nothing():
    from accuracy.few_shapes import correction, places

    rng = np.random.default_rng(0)
    place = places(shapes(rng, 2000), rng.uniform(0, 0.6, 2000))
    before, after = [], []
    for _ in range(10):
        residual = rng.normal(0, 0.2, 2000)
        rest = residual[50:]
        before.append(np.abs(rest).mean())
        after.append(np.abs(rest - correction(place[:50], residual[:50], place[50:])).mean())
    assert np.mean(after) < 1.06 * np.mean(before)


def test_one_shape_that_is_far_off_moves_others_no_more_than_one_that_is_a_quarter_off():
    from accuracy.few_shapes import correction, places

    rng = np.random.default_rng(0)
    place = places(shapes(rng, 500), rng.uniform(0, 0.6, 500))
    residual = rng.normal(0, 0.05, 20)
    near, far = residual.copy(), residual.copy()
    near[0], far[0] = np.median(residual) + 0.3, np.median(residual) + 5.0
    a, b = (correction(place[:20], values, place[20:]) for values in (near, far))
    assert np.allclose(a, b, atol=0.01)
