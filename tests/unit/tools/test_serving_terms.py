"""Terms of services: each source counts as one, and is judged by those of the others."""

import csv
import math
from pathlib import Path

import pytest
from accuracy_serving.terms import Judged, left_out, paired, terms


def rows(source, own, count=8, term="vllm", step_s=0.01):
    """Rows whose steps take so much longer than predicted without a term."""
    predicted_s = step_s - own + 0.002
    return [
        Judged(
            source=source, device="A100", term=term, shipped=0.002, measured_step_s=step_s,
            log_ratio=math.log(step_s / predicted_s), log_width=0.5,
        )
        for _ in range(count)
    ]  # fmt: skip


def test_a_term_is_what_makes_its_rows_right():
    found = rows("a", 0.003)
    assert terms(found)["vllm"] == pytest.approx(0.003)
    assert found[0].with_term(0.003) == pytest.approx(0.0)


def test_a_source_counts_once_however_many_rows_it_has():
    few, many = (terms([*rows("a", 0.004, n), *rows("b", 0.001)]) for n in (8, 900))
    assert few["vllm"] == pytest.approx(many["vllm"])


def test_a_left_out_source_is_judged_by_the_others_and_alone_by_none():
    both = [*rows("a", 0.003), *rows("b", 0.001)]
    ratios = {one.source: ratio for one, ratio in left_out(both)}
    assert ratios["a"] == pytest.approx(math.log(0.010 / 0.008))
    assert ratios["b"] == pytest.approx(math.log(0.010 / 0.012))
    alone = [ratio for _, ratio in left_out(rows("a", 0.003))]
    assert alone[0] == pytest.approx(math.log(0.010 / 0.007))


def test_a_source_of_a_few_rows_says_nothing_of_a_term():
    enough, few = rows("a", 0.003), rows("b", 0.009, count=7)
    assert terms([*enough, *few]) == terms(enough)
    assert terms(few) == {}


def test_a_table_that_two_devices_share_to_the_digit_is_nobodys(tmp_path: Path) -> None:
    timed = "concurrency=8;ttft_ms_mean=120.5"
    rows = [
        {"source": "a:x", "model": "m", "throughput": "20.024", "extra": extra, "gpu": gpu}
        for gpu, extra in (("A100", timed), ("H100", timed), ("H100", "concurrency=8"))
    ] + [{"source": "a:y", "model": "m", "throughput": "9", "extra": timed, "gpu": "A100"}]
    given = tmp_path / "rows.csv"
    with given.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert [row for row, _ in paired(given, given)] == rows[2:]
