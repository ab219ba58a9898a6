"""Measured cells as tables: batch against devices, OOM as a value, the prediction beside."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from paceline.measurements.compare import CellComparison, other_machines
from paceline.measurements.ledger import LedgerRow
from paceline.measurements.records import Record
from paceline.measurements.statistics import relative_spread
from paceline.reporting.tables import Table, header, markdown_table, text_table
from paceline.reporting.texts import sample_unit_of
from paceline.units import format_bytes, format_duration, format_percent, format_significant

_OUTCOME_WORDS = {
    "out-of-memory": "OOM", "timeout": "time-out", "failed": "failed", "skipped": "skipped",
}  # fmt: skip


def measured_text(rows: Sequence[LedgerRow], *, width: int = 100) -> str:
    """Tables of a sweep, one per model and setting, then why cells have no time."""
    parts = [
        f"{textwrap.fill(title, width, break_on_hyphens=False)}\n{text_table(table, width=width)}"
        for title, table in _tables(rows)
    ]
    if head := measured_headline([row.record for row in rows]):
        parts.insert(0, "\n".join(textwrap.wrap(head, width, break_on_hyphens=False)))
    reasons = "\n".join(reason_lines(row.record for row in rows))
    return "\n\n".join((*parts, reasons) if reasons else parts)


def measured_markdown(rows: Sequence[LedgerRow]) -> str:
    """Tables of a sweep as Markdown."""
    parts = [f"### {title}\n\n{markdown_table(table)}" for title, table in _tables(rows)]
    reasons = "\n".join(reason_lines(row.record for row in rows))
    return "\n\n".join((*parts, reasons) if reasons else parts)


def measured_headline(records: Sequence[Record]) -> str:
    """What the fastest cell did, in one sentence; empty where none has a time."""
    known = [r for r in records if r.median_s and r.samples_per_s and r.sample_unit]
    if not known:
        return ""
    best = max(known, key=lambda record: record.samples_per_s or 0.0)
    rate = f"{format_significant(best.samples_per_s or 0.0)} {best.sample_unit}/s"
    return (
        f"{best.workload} does {rate} at batch {best.batch_per_device or 0:g} on "
        f"{best.num_devices} × {best.device_name} ({format_duration(best.median_s or 0.0)} a step)."
    )


def _tables(rows: Sequence[LedgerRow]) -> Iterator[tuple[str, Table]]:
    """Devices, then software side by side where there are several, then series of several cells."""
    groups = series(rows)
    records = [row.record for row in rows]
    if len({record.device_name for record in records}) > 1:
        yield "Devices side by side", devices_table(records)
    has_several = len({(record.framework, record.compiler) for record in records}) > 1
    if has_several:
        yield "Frameworks and compilers side by side", stacks_table(records)
    for title, group in groups.items():
        if len(group) > 1 or not has_several:
            yield title, series_table(group)


#: A CPU cell that had less of its cores than this was not alone.
_CALM_FRAC = 0.8
#: What stands in a table where a cell has no time.
FAILED_WORDS = frozenset(_OUTCOME_WORDS.values())


def stacks_table(records: Sequence[Record]) -> Table:
    """One row per stack, compiler and cell; cells in order, fastest first within each."""
    columns = header(
        "model | step -1 | batch > | stack | compiler | ms/step > | per s > | compile s >"
        " | pays after > | difference >"
    )
    ordered = sorted(
        records, key=lambda r: (r.workload, r.mode, r.batch_per_device or 0, r.median_s or 1e9)
    )
    eager = {_software_cell(r): r for r in records if r.compiler == "eager" and r.median_s}
    return Table(columns=columns, rows=tuple(_stack_row(record, eager) for record in ordered))


def devices_table(records: Sequence[Record]) -> Table:
    """One row per cell, a column of step times per device, and which is faster by how much."""
    names = list(dict.fromkeys(record.device_name for record in records))
    times = " | ".join(f"{name}, ms/step >" for name in names)
    columns = header(f"model | step -1 | precision -2 | batch > | devices > | {times} | faster")
    cells: dict[tuple[object, ...], dict[str, Record]] = {}
    for record in records:
        key = (*_software_cell(record), record.compiler)
        cells.setdefault(key, {})[record.device_name] = record
    return Table(columns=columns, rows=tuple(_device_row(names, cell) for cell in cells.values()))


def _device_row(names: Sequence[str], cell: Mapping[str, Record]) -> tuple[str, ...]:
    first = next(iter(cell.values()))
    times = sorted((one.median_s, name) for name, one in cell.items() if one.median_s is not None)
    faster = ""
    if len(times) > 1:
        faster = f"{times[0][1]}, {format_significant(times[1][0] / times[0][0])} ×"
    return (
        first.workload, task_words(first), first.precision or "",
        f"{first.batch_per_device or 0:.0f}", str(first.num_devices),
        *(step_text(cell[name]) if name in cell else "" for name in names), faster,
    )  # fmt: skip


def comparison_text(comparisons: Iterable[CellComparison], *, width: int = 100) -> str:
    """Before and after, cell by cell, with the interval of the ratio and the verdict."""
    columns = header("cell ~24 | before ms > | after ms > | ratio > | 90 % interval > | verdict")
    comparisons = tuple(comparisons)
    rows = tuple(_comparison_row(comparison) for comparison in comparisons)
    table = text_table(Table(columns=columns, rows=rows), width=width)
    return "\n".join(filter(None, (table, other_machines(comparisons))))


def step_text(record: Record) -> str:
    """Step time of a record, or the word for how it ended."""
    if record.median_s is None:
        return _OUTCOME_WORDS.get(record.outcome, record.outcome)
    return format_significant(1e3 * record.median_s)


def pays_after_steps(compiled: Record, eager: Record | None) -> float | None:
    """Steps after which compiling has saved the time it took; None if it never does."""
    if eager is None or compiled.compile_s is None:
        return None
    if eager.median_s is None or compiled.median_s is None:
        return None
    saved_s = eager.median_s - compiled.median_s
    return compiled.compile_s / saved_s if saved_s > 0 else None


def series(rows: Sequence[LedgerRow]) -> Mapping[str, list[LedgerRow]]:
    """Rows that differ in batch and devices alone, by title, each in order of devices and batch.

    A cell without a time belongs to the table of its neighbours, so that running out of memory
    stands where the time would.
    """
    found: dict[tuple[object, ...], list[LedgerRow]] = {}
    for row in rows:
        found.setdefault(_series_key(row.record), []).append(row)
    for group in found.values():
        group.sort(key=lambda row: (row.record.num_devices, row.record.batch_per_device or 0))
    return {_series_title([row.record for row in group]): group for group in found.values()}


def _series_key(record: Record) -> tuple[object, ...]:
    return (
        record.workload, record.mode, record.precision, record.compiler, record.framework,
        record.device_name, record.num_threads, record.cell.rpartition("/b")[0],
    )  # fmt: skip


def task_words(record: Record) -> str:
    """What one step was, in words."""
    words = {"step": "training step", "forward-backward": "forward and backward"}
    return words.get(record.mode, "inference")


def _series_title(records: Sequence[Record]) -> str:
    record = next((r for r in records if r.median_s is not None), records[0])
    software = record.stack.partition("/")[0]
    parts = (task_words(record), record.precision or "", record.compiler or "", software)
    threads = f"{record.num_threads} threads" if (record.num_threads or 1) > 1 else "1 thread"
    place = f"{record.device_name}, {threads}"
    return f"{record.workload} · {' · '.join(part for part in parts if part)} · {place}"


def series_table(rows: Sequence[LedgerRow]) -> Table:
    """Cells of one model and setting, a row each."""
    has_prediction = any(row.predicted_s is not None for row in rows)
    columns = header(
        "batch > | devices > | ms/step > | ± % > -3"
        f" | {sample_unit_of(row.record for row in rows)}/s > | speed-up > | memory >"
        " | busy > -2 | J/step > -1"
    )
    if has_prediction:
        columns += header("predicted ms > | error >")
    single = {
        row.record.batch_per_device: row.record.samples_per_s
        for row in rows
        if row.record.num_devices == 1
    }
    cells = tuple(_series_row(row, single, has_prediction=has_prediction) for row in rows)
    return _without_empty(Table(columns=tuple(columns), rows=cells))


def _without_empty(table: Table) -> Table:
    """The table without the columns that no row fills."""
    kept = [i for i in range(len(table.columns)) if any(row[i] for row in table.rows)]
    return table.of_columns(kept)


def _series_row(
    row: LedgerRow, single: Mapping[float | None, float | None], *, has_prediction: bool
) -> tuple[str, ...]:
    record = row.record
    cells = [
        f"{record.batch_per_device:.0f}",
        str(record.num_devices),
        step_text(record),
        f"{50 * relative_spread(record.samples_s):.1f}" if len(record.samples_s) > 1 else "",
        format_significant(record.samples_per_s) if record.samples_per_s else "",
        _speed_up(record, single.get(record.batch_per_device)),
        format_bytes(record.process_bytes) if record.process_bytes else "",
        format_percent(record.utilization_frac) if record.utilization_frac is not None else "",
        format_significant(record.energy_j) if record.energy_j is not None else "",
    ]
    if has_prediction:
        cells += [_milliseconds(row.predicted_s), _signed_percent(row.error_frac)]
    return tuple(cells)


def _speed_up(record: Record, single_per_s: float | None) -> str:
    if record.num_devices == 1 or not single_per_s or not record.samples_per_s:
        return ""
    return f"{record.samples_per_s / single_per_s:.2f}"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else format_significant(1e3 * seconds)


def _signed_percent(frac: float | None) -> str:
    return "" if frac is None else f"{100 * frac:+.0f} %"


def reason_lines(records: Iterable[Record]) -> list[str]:
    """Why cells have no time, or one to be careful with; one line each."""
    return [
        f"  {word:<9} {record.cell}: {reason}"
        for record in records
        for word, reason in _doubts(record)
    ]


def _doubts(record: Record) -> Iterator[tuple[str, str]]:
    if record.outcome != "ok":
        yield step_text(record), record.reason
    if record.is_steady is False:
        yield "unsteady", "its warm-up had not settled"
    if record.is_shared:
        yield "shared", "another process used the device meanwhile"
    if record.throttle_reasons:
        yield "throttled", record.throttle_reasons
    if _is_crowded(record):
        share = format_percent(record.utilization_frac or 0.0)
        yield "crowded", f"it had {share} of its cores; measure again when the machine is calm"


def _is_crowded(record: Record) -> bool:
    """Whether a CPU cell waited for its cores; several processes wait for each other anyway."""
    is_alone_on_cpu = record.num_devices == 1 and record.power_limit_w is None
    share = record.utilization_frac
    return is_alone_on_cpu and share is not None and share < _CALM_FRAC


def _software_cell(record: Record) -> tuple[object, ...]:
    return (
        record.workload, record.framework, record.mode, record.precision,
        record.batch_per_device, record.num_devices,
    )  # fmt: skip


def _stack_row(record: Record, eager: Mapping[tuple[object, ...], Record]) -> tuple[str, ...]:
    steps = pays_after_steps(record, eager.get(_software_cell(record)))
    return (
        record.workload,
        task_words(record),
        f"{record.batch_per_device:.0f}",
        record.stack.partition("/")[0],
        record.compiler or "",
        step_text(record),
        format_significant(record.samples_per_s) if record.samples_per_s else "",
        "" if record.compile_s is None else format_significant(record.compile_s),
        "" if steps is None else _steps_text(steps),
        "" if record.numerical_difference is None else f"{record.numerical_difference:.0e}",
    )


def _steps_text(steps: float) -> str:
    count = math.ceil(steps)
    return f"{count:,} step{'s' if count > 1 else ''}"


def _comparison_row(comparison: CellComparison) -> tuple[str, ...]:
    ratio = comparison.ratio
    return (
        comparison.cell,
        step_text(comparison.before) if comparison.before else "",
        step_text(comparison.after) if comparison.after else "",
        f"{ratio.mid:.3f}" if ratio else "",
        f"{ratio.low:.3f}–{ratio.high:.3f}" if ratio else "",
        comparison.verdict,
    )
