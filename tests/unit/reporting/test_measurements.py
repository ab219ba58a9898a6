from dataclasses import replace

from test_charts import BASE, cell, out_of_memory

from paceline.measurements.compare import compare
from paceline.reporting.screens.measurements import (
    comparison_text,
    measured_markdown,
    measured_text,
    pays_after_steps,
    reason_lines,
    series,
    series_table,
    stacks_table,
)
from paceline.reporting.tables import text_table


def test_table_of_a_sweep_at_fixed_width():
    rows = [
        cell(8, step_s=0.1, predicted_s=0.11),
        out_of_memory(16),
        cell(8, 2, step_s=0.125),
    ]
    rows[1] = replace(rows[1], record=replace(rows[1].record, reason="no room", cell="b16x1"))
    first, _, title, head, *cells, _, reason = measured_text(rows, width=110).splitlines()
    assert first.startswith("resnet18 does 128 images/s at batch 8 on 2 × A100")
    setting = "training step · fp32 · eager · torch2.13.0"
    assert title == f"resnet18 · {setting} · A100 SXM4 80GB, 1 thread"
    assert head.split()[:3] == ["batch", "devices", "ms/step"]
    assert [line.split() for line in cells] == [
        ["8", "1", "100", "0.0", "80.0", "8.00", "GB", "110", "+10", "%"],
        ["16", "1", "OOM"],
        ["8", "2", "125", "0.0", "128", "1.60", "8.00", "GB"],
    ]
    assert reason.split() == ["OOM", "b16x1:", "no", "room"]


def test_a_figure_that_no_sensor_told_has_no_column_and_one_that_a_cell_has_keeps_it():
    silent, told = cell(8), cell(16)
    told = replace(told, record=replace(told.record, energy_j=3.0))
    titles = [[c.title for c in series_table(rows).columns] for rows in ([silent], [silent, told])]
    assert ["J/step" in some for some in titles] == [False, True]
    assert [some[:3] for some in titles] == [["batch", "devices", "ms/step"]] * 2


def test_devices_stand_side_by_side_with_the_faster_of_each_cell():
    rows = [
        cell(1, step_s=0.01, device_name="EPYC"), cell(8, step_s=0.09, device_name="EPYC"),
        cell(1, step_s=0.02), cell(8, step_s=0.03), cell(64, step_s=0.1, device_name="EPYC"),
    ]  # fmt: skip
    rows.append(replace(out_of_memory(64), predicted_s=None))
    text = measured_text(rows, width=140)
    _, _, title, _, one, eight, many, *_ = text.splitlines()
    assert title == "Devices side by side"
    assert one.split("  ")[-1].strip() == "EPYC, 2.00 ×"
    assert eight.split("  ")[-1].strip() == "A100 SXM4 80GB, 3.00 ×"
    assert many.split()[-2:] == ["100", "OOM"]
    assert "Devices side by side" not in measured_text(rows[:2])


def test_markdown_has_a_heading_per_series():
    other = cell(8)
    other = replace(other, record=replace(other.record, workload="alexnet"))
    assert measured_markdown([cell(8), other]).count("### ") == 2


def test_compiling_pays_after_the_steps_that_earn_its_time():
    eager = cell(8, step_s=0.1).record
    compiled = cell(8, step_s=0.08, compiler="compiled", compile_s=10.0).record
    assert round(pays_after_steps(compiled, eager)) == 500
    assert pays_after_steps(replace(compiled, samples_s=(0.2,)), eager) is None
    assert pays_after_steps(compiled, None) is None
    assert "500 steps" in text_table(stacks_table([eager, compiled]))


def test_comparison_shows_interval_and_verdict():
    before, after = cell(8, step_s=0.1).record, cell(8, step_s=0.15).record
    text = comparison_text(compare([before], [after]))
    assert "1.500" in text
    assert "1.500–1.500" in text
    assert text.endswith("slower")


def test_a_failed_cell_is_a_word():
    failed = replace(BASE, outcome="failed", batch_per_device=1.0, reason="killed by SIGABRT")
    from paceline.measurements.ledger import LedgerRow

    text = measured_text([LedgerRow(record=failed)])
    assert "failed" in text
    assert "killed by SIGABRT" in text


def test_a_cell_out_of_memory_stands_in_the_table_of_its_neighbours():
    fits = cell(8, cell="resnet18/step/b8x1", stack="torch2.13.0+cpu/py3.11")
    fails = out_of_memory(16)
    fails = replace(fails, record=replace(fails.record, stack="torch2.13.0", sample_unit=None))
    fails = replace(fails, record=replace(fails.record, cell="resnet18/step/b16x1"))
    (rows,) = series([fails, fits]).values()
    assert [row.record.batch_per_device for row in rows] == [8, 16]


def test_a_crowded_or_shared_machine_is_said():
    crowded = cell(8, utilization_frac=0.3).record
    shared = cell(8, is_shared=True, throttle_reasons="power limit").record
    calm = cell(8, utilization_frac=0.99).record
    ranks = cell(8, 2, utilization_frac=0.3).record
    lines = reason_lines([crowded, shared, calm, ranks])
    assert [line.split()[0] for line in lines] == ["crowded", "shared", "throttled"]
    assert "it had 30 % of its cores" in lines[0]


def test_single_cells_of_several_stacks_stand_in_one_table():
    torch = cell(8, cell="a/torch/b8x1")
    jax = cell(8, framework="jax", compiler="xla", stack="jax0.10/py3.11", cell="a/jax/b8x1")
    text = measured_text([torch, jax])
    assert text.splitlines()[2] == "Frameworks and compilers side by side"
    assert len(text.splitlines()) == 6
