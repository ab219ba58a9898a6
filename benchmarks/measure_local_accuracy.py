"""How well the model of this machine predicts what it was not calibrated on.

    paceline measure alexnet resnet18 --batch 1,4,16,64 --devices 1,2 --threads 1 --store STORE
    python benchmarks/measure_local_accuracy.py STORE

Three splits of one sweep: calibrated on alexnet, asked for resnet18; on batches 1 and 16, asked for
4 and 64; on one process, asked for two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from paceline.app.truth.local_prediction import PLAIN, calibrated, ledger_of
from paceline.execution.ceilings import SOURCE, summarize_ceilings
from paceline.execution.machine_model import LocalModel, start_model
from paceline.measurements.ledger import LedgerRow, summarize_ledger
from paceline.measurements.records import Record
from paceline.measurements.store import Store

Split = tuple[str, Callable[[Record], bool], Callable[[Record], bool]]
SPLITS: Sequence[Split] = (
    (
        "alexnet → resnet18, one process",
        lambda r: r.num_devices == 1 and r.workload == "alexnet",
        lambda r: r.num_devices == 1 and r.workload == "resnet18",
    ),
    (
        "batches 1, 16 → 4, 64, one process",
        lambda r: r.num_devices == 1 and r.batch_per_device in (1, 16),
        lambda r: r.num_devices == 1 and r.batch_per_device in (4, 64),
    ),
    (
        "one process → two",
        lambda r: r.num_devices == 1,
        lambda r: r.num_devices == 2,
    ),
)


def main(folder: Path) -> None:
    """Print errors by split, and cell by cell."""
    records = Store(folder).read().records
    start = start_model(summarize_ceilings([r for r in records if r.source == SOURCE]))
    assert start is not None, "the store has no ceilings"
    newest = {r.cell: r for r in records if r.kind == "step" and r.median_s is not None}
    print("| calibrated → asked | cells | median error | worst | error without calibration |")
    print("|---|--:|--:|--:|--:|")
    for name, is_known, is_asked in SPLITS:
        known = [record for record in newest.values() if is_known(record)]
        asked = [record for record in newest.values() if is_asked(record)]
        print(_row(name, start, known, asked))
    print("\n| cell | measured ms | ± % | predicted ms | error |\n|---|--:|--:|--:|--:|")
    for name, is_known, is_asked in SPLITS:
        model = calibrated(start, [record for record in newest.values() if is_known(record)])
        print(f"| *{name}* | | | | |")
        for row in ledger_of([r for r in newest.values() if is_asked(r)], {PLAIN: model}):
            print(_cell(row))


def _cell(row: LedgerRow) -> str:
    record = row.record
    assert record.median_s
    assert row.predicted_s
    assert row.error_frac is not None
    spread = 50 * float(np.ptp(np.percentile(record.samples_s, [25, 75]))) / record.median_s
    return (
        f"| {record.workload} b{record.batch_per_device:.0f} ×{record.num_devices} "
        f"| {1e3 * record.median_s:.1f} | {spread:.1f} | {1e3 * row.predicted_s:.1f} "
        f"| {100 * row.error_frac:+.0f} % |"
    )


def _row(name: str, start: LocalModel, known: list[Record], asked: list[Record]) -> str:
    fitted = summarize_ledger(ledger_of(asked, {PLAIN: calibrated(start, known)}))
    plain = summarize_ledger(ledger_of(asked, {PLAIN: start}))
    assert fitted is not None
    assert plain is not None
    return (
        f"| {name} | {fitted.num_rows} | {100 * fitted.median_error_frac:.0f} % "
        f"| {100 * fitted.worst_error_frac:.0f} % | {100 * plain.median_error_frac:.0f} % |"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
