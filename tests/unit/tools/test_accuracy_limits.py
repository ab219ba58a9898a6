"""Limits: a table agrees with itself, and exact widths cover all groups only if none leans."""

import numpy as np
import pytest
from tests.sampled import sampled

pd = pytest.importorskip("pandas")
pytest.importorskip("scipy")


def products(times_s):
    rows = [
        {"source_name": system, "m": m, "framework": engine, "time_s": time_s}
        for system in ("a", "b")
        for m in (1, 2, 4)
        for engine, time_s in times_s.items()
    ]
    return pd.DataFrame(rows).assign(n=8, k=8)


def steps(lean: float, num_groups: int = 60, count: int = 3000):
    rng = np.random.default_rng(0)
    fold = np.repeat(np.arange(num_groups), count)
    shared = lean * rng.standard_normal(num_groups)[fold]
    own = np.sqrt(1 - lean**2) * rng.standard_normal(len(fold))
    return pd.DataFrame({"fold": fold, "residual": shared + own, "width": 1.2816})


def test_a_table_predicts_itself_and_misses_what_is_slower_by_as_much():
    from accuracy.limits import measured_twice

    same = measured_twice(products({"vllm": 2e-6, "sglang": 2e-6}), {"one": ("a",)})
    slow = measured_twice(products({"vllm": 2e-6, "sglang": 3e-6}), {"one": ("a",), "two": ("b",)})
    assert [f.mean for f in same] == [0.0]
    assert [f.mean for f in slow] == pytest.approx([50.0, 50.0])
    assert [f.num_rows for f in slow] == [3, 3]


def test_boards_with_one_table_have_no_line():
    from accuracy.limits import measured_twice

    rows = products({"vllm": 2e-6, "sglang": 3e-6})
    alone = rows[~((rows.source_name == "b") & (rows.framework == "sglang"))]
    assert len(measured_twice(alone, {"one": ("a",), "two": ("b",)})) == 1


@pytest.mark.parametrize("lean", sampled([0.0, 0.5, 0.7], 0.5))
def test_as_many_groups_are_inside_as_their_leaning_lets_them(lean):
    from accuracy.limits import expected_inside, inside_at_best

    found = inside_at_best(steps(lean))
    assert found.share_between == pytest.approx(lean**2, abs=0.1)
    assert found.num_inside / found.num_folds == pytest.approx(expected_inside(lean**2), abs=0.17)
    assert found.num_inside <= found.most_inside <= found.num_folds


def test_the_more_groups_lean_the_fewer_are_inside():
    from accuracy.limits import expected_inside

    expected = [expected_inside(share) for share in (0.0, 0.2, 0.4, 0.6, 0.8)]
    assert expected[0] == 1.0
    assert expected == sorted(expected, reverse=True)
    assert expected[-1] < 0.25
