"""`score_rows`: input columns only, one line per row, a reason for every abstention."""

import csv

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.app.scoring import score_rows
from paceline.app.scoring.rows import INPUT_COLUMNS, read_rows
from paceline.catalog import load_catalog
from paceline.errors import InvalidInputError

BASE = {
    "model": "resnet50", "task": "train", "framework": "PyTorch 2.4.0", "precision": "amp",
    "compiler_flags": "nhwc; eager", "gpu": "A100-SXM4-80GB", "gpu_mem_gb": "80", "n_gpus": "1",
    "batch_per_gpu": "64", "img_size": "", "unit": "img/s", "throughput": "1000",
    "step_time_ms": "64", "peak_mem_gb": "7", "extra": "gmacs=4",
}  # fmt: skip


def score(tmp_path, *changes):
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    table = [BASE | change for change in changes]
    with rows.open("w", newline="") as file:
        writer = csv.DictWriter(file, sorted({key for row in table for key in row}))
        writer.writeheader()
        writer.writerows(table)
    summary = score_rows(rows, out, catalog=load_catalog(), cache_folder=tmp_path / "cache")
    with out.open(newline="") as file:
        return summary, list(csv.DictReader(file))


def test_every_row_has_one_line_in_order_and_a_summary(tmp_path):
    summary, lines = score(tmp_path, {}, {"model": "nobody knows this"}, {"batch_per_gpu": "128"})
    assert [line["row"] for line in lines] == ["0", "1", "2"]
    assert (summary.num_rows, summary.num_predicted) == (3, 2)
    assert "nobody knows this" in lines[1]["reason"]
    assert lines[1]["step_mid_s"] == ""


def test_measured_columns_are_never_seen(tmp_path):
    measured = ("throughput", "step_time_ms", "peak_mem_gb", "extra")
    assert not set(measured) & set(INPUT_COLUMNS)
    _, first = score(tmp_path, {})
    _, second = score(tmp_path, dict.fromkeys(measured, "1e9"))
    _, third = score(tmp_path, dict.fromkeys(measured, ""))
    assert first == second == third


def test_intervals_hold_their_middle_and_throughput_is_items_over_time(tmp_path):
    _, (line,) = score(tmp_path, {})
    low, mid, high = (float(line[f"step_{part}_s"]) for part in ("low", "mid", "high"))
    assert 0 < low < mid < high
    assert float(line["throughput_mid"]) == pytest.approx(64 / mid, rel=1e-4)
    assert float(line["throughput_low"]) < float(line["throughput_high"])
    assert float(line["memory_low_bytes"]) <= float(line["memory_high_bytes"])


def test_two_devices_do_up_to_twice_the_work(tmp_path):
    _, (one, two) = score(tmp_path, {}, {"n_gpus": "2", "parallelism": "DP"})
    ratio = float(two["throughput_mid"]) / float(one["throughput_mid"])
    assert 1.5 < ratio <= 2.0


def test_accumulation_multiplies_the_step(tmp_path):
    _, (one, four) = score(tmp_path, {}, {"grad_accum": "4"})
    assert float(four["step_mid_s"]) == pytest.approx(4 * float(one["step_mid_s"]), rel=1e-3)


def test_a_batch_that_cannot_fit_is_called_so(tmp_path):
    _, (small, large) = score(tmp_path, {"batch_per_gpu": "8"}, {"batch_per_gpu": "100000"})
    assert (small["fits"], large["fits"]) == ("yes", "no")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"gpu": "Quantum 9000"}, "device"),
        ({"framework": "abacus"}, "framework"),
        ({"precision": "guess"}, "precision"),
        ({"batch_per_gpu": "", "global_batch": ""}, "batch"),
        ({"batch_per_gpu": "-4"}, "batch"),
        ({"gpu_mem_gb": "3"}, "GB"),
        ({"n_gpus": "8", "parallelism": "TP=4 PP=2"}, "TP=4"),
        ({"precision": "fp8"}, "peak"),
    ],
)
def test_an_unanswerable_row_says_why(tmp_path, change, word):
    _, (line,) = score(tmp_path, change)
    assert word.lower() in line["reason"].lower()
    assert line["step_mid_s"] == line["throughput_mid"] == ""


def test_a_table_without_models_is_an_error(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInputError, match="model"):
        read_rows(path)


@pytest.mark.parametrize("content", [b"", b"model,gpu\n", b"\xff\xfe\x00", b"model\n1\n"])
def test_a_broken_table_is_an_error(tmp_path, content):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError):
        read_rows(path)


TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=20)
ODD = st.one_of(TEXT, st.sampled_from(["nan", "inf", "-1", "0", "1e308", "1e-308"]))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.dictionaries(st.sampled_from([c for c in INPUT_COLUMNS if c != "model"]), ODD))
def test_no_cell_crashes_it(tmp_path, change):
    summary, lines = score(tmp_path, change)
    assert summary.num_rows == len(lines) == 1
    assert bool(lines[0]["reason"]) != bool(lines[0]["step_mid_s"])
