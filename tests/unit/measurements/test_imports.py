"""Published rows become records that read back, or are left out."""

import pytest

from paceline.measurements.imports import import_rows
from paceline.measurements.records import record_from_line, record_to_line

ROW = {
    "source": "somebody:table.csv", "model": "resnet50", "task": "train", "gpu": "A100",
    "n_gpus": "2", "batch_per_gpu": "64", "grad_accum": "", "throughput": "1280", "unit": "img/s",
    "step_time_ms": "", "peak_mem_gb": "7.5", "quality": "A", "precision": "amp",
}  # fmt: skip


def records(row, device="A100 SXM4 80GB", workload="resnet50"):
    return list(
        import_rows(
            [row],
            recorded_on="2020-01-01",
            device_of=lambda _: device,
            workload_of=lambda _: workload,
        )
    )


def test_step_time_is_all_items_over_throughput():
    (record,) = records(ROW)
    assert record.samples_s == (pytest.approx(2 * 64 / 1280),)
    assert (record.outcome, record.allocated_bytes) == ("ok", 7.5e9)


def test_a_printed_step_time_wins():
    assert records(ROW | {"step_time_ms": "80"})[0].samples_s == (0.08,)


def test_running_out_of_memory_is_kept():
    row = ROW | {"quality": "A-OOM", "throughput": "", "peak_mem_gb": ""}
    assert records(row)[0].outcome == "out-of-memory"


@pytest.mark.parametrize("change", [{"device": None}, {"workload": None}])
def test_what_is_unknown_is_left_out(change):
    assert records(ROW, **change) == []


@pytest.mark.parametrize("cell", ["nan", "inf", "-3", "many", ""])
def test_a_damaged_cell_is_unknown(cell):
    (record,) = records(ROW | {"batch_per_gpu": cell, "peak_mem_gb": cell})
    assert record.batch_per_device is None
    assert record_from_line(record_to_line(record)) == record
