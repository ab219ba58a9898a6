"""The tool that holds predicted training memory against published figures."""

from pathlib import Path

import pytest
from accuracy_memory.bert_large import bert_large
from accuracy_memory.litgpt import litgpt
from accuracy_memory.megatron import megatron
from accuracy_memory.published import (
    TARGET_MEDIAN_FRAC,
    TARGET_UNDER_FRAC,
    Published,
    Row,
    as_markdown,
)
from accuracy_memory.simumax import simumax, simumax_reserved

ROOT = Path(__file__).parents[3]
TRUTH = ROOT.parent / "shared" / "truth"


def source(*rows):
    return Published(title="T", note="N", unit="GB", rows=rows)


def row(measured, predicted, capacity=None):
    return Row(
        case="c", measured_bytes=measured, predicted_bytes=predicted, capacity_bytes=capacity
    )


def test_rows_far_under_the_truth_are_counted_and_slightly_low_ones_are_not():
    one = source(row(100e9, 98e9), row(100e9, 96e9), row(100e9, 130e9))
    assert one.num_under() == 1
    assert one.median_frac() == pytest.approx(0.04)


def test_a_job_that_ran_out_of_memory_has_a_verdict_and_no_error():
    one = source(row(None, 50e9, 40e9), row(None, 30e9, 40e9), row(10e9, 10e9))
    assert one.errors_frac() == [0.0]
    lines = list(as_markdown(one))
    assert lines[-3].endswith("| does not fit either |")
    assert lines[-2].endswith("| **fits** |")
    assert lines[-1] == "| c | 10.00 | 10.00 | +0.0% |"


@pytest.mark.truth
@pytest.mark.slow
@pytest.mark.skipif(not TRUTH.exists(), reason="no published measurements here")
@pytest.mark.parametrize("make", [bert_large, litgpt, simumax, simumax_reserved, megatron])
def test_published_memory_is_met(make, tmp_path):
    found = make(TRUTH, tmp_path)
    errors = found.errors_frac()
    assert found.median_frac() <= TARGET_MEDIAN_FRAC
    assert found.num_under() <= TARGET_UNDER_FRAC * len(errors)
    assert not [line for line in as_markdown(found) if "**fits**" in line]
