"""Charts say what their records say; nothing is computed and nothing is lost."""

from dataclasses import replace

import pytest

from paceline.measurements.ledger import LedgerRow
from paceline.measurements.records import Record
from paceline.reporting.charts import basic as charts

BASE = Record(
    kind="step",
    outcome="ok",
    recorded_at="2026-11-20T12:00:00+00:00",
    source="paceline measure",
    workload="resnet18",
    task="train",
    device_name="A100 SXM4 80GB",
    framework="torch",
    stack="torch2.13.0/py3.11",
    compiler="eager",
    precision="fp32",
    sample_unit="images",
    mode="step",
    cell="c",
)


def cell(batch, num_devices=1, step_s=0.1, predicted_s=None, **changes):
    record = replace(
        BASE,
        batch_per_device=batch,
        num_devices=num_devices,
        samples_s=(step_s,) * 3,
        samples_per_s=batch * num_devices / step_s,
        process_bytes=1e9 * batch,
        cell=f"b{batch}x{num_devices}",
    )
    return LedgerRow(record=replace(record, **changes), predicted_s=predicted_s)


def out_of_memory(batch, num_devices=1):
    return cell(
        batch, num_devices, outcome="out-of-memory", samples_s=(), samples_per_s=None,
        process_bytes=None,
    )  # fmt: skip


def layers(chart):
    return chart.spec["layer"]


def values(layer):
    return layer["data"]["values"]


def test_throughput_shows_each_cell_and_the_first_batch_that_failed():
    rows = [cell(1), cell(2), out_of_memory(4), out_of_memory(8), cell(1, 2), out_of_memory(2, 2)]
    chart = charts.throughput_chart(rows)
    measured, *rest = layers(chart)
    assert [(p["batch"], p["devices"]) for p in values(measured)] == [(1, "1"), (2, "1"), (1, "2")]
    assert sorted((p["batch"], p["devices"]) for p in values(rest[0])) == [(2, "2"), (4, "1")]


def test_prediction_is_drawn_in_the_same_unit_as_the_measurement():
    (point,) = values(layers(charts.throughput_chart([cell(8, predicted_s=0.05)]))[0])
    assert point["measured"] == pytest.approx(80)
    assert point["predicted"] == pytest.approx(160)


def test_no_prediction_draws_no_second_line():
    assert len(layers(charts.throughput_chart([cell(8)]))) == 1


def test_speed_up_is_against_one_device_at_the_same_batch():
    chart = charts.speed_up_chart([cell(8), cell(8, 2, step_s=0.125)])
    assert chart is not None
    ideal, line = layers(chart)
    assert [p["speed_up"] for p in values(line)] == pytest.approx([1.0, 1.6])
    assert [p["speed_up"] for p in values(ideal)] == [1, 2]


def test_speed_up_needs_two_counts_and_a_base():
    assert charts.speed_up_chart([cell(8), cell(16)]) is None
    assert charts.speed_up_chart([out_of_memory(8), cell(8, 2)]) is None


def test_every_sample_is_shown():
    chart = charts.samples_chart([cell(1), cell(2), out_of_memory(4)])
    assert len(chart.spec["data"]["values"]) == 6


def test_ledger_band_spans_all_points():
    chart = charts.ledger_chart([cell(1, step_s=0.1, predicted_s=0.2), cell(2, step_s=0.5)])
    assert chart is not None
    band, _, dots = layers(chart)
    assert len(values(dots)) == 1
    assert [p["m"] for p in values(band)] == [pytest.approx(100), pytest.approx(200)]
    assert charts.ledger_chart([cell(1)]) is None


def test_memory_chart_needs_a_sensor():
    assert charts.memory_chart([out_of_memory(1)]) is None


def test_stacks_are_compared_only_where_they_have_a_rate():
    records = [cell(8).record, out_of_memory(8).record]
    assert len(charts.stacks_chart(records).spec["data"]["values"]) == 1


def test_cells_that_all_failed_are_no_picture():
    assert charts.throughput_chart([out_of_memory(1), out_of_memory(2)]) is None
