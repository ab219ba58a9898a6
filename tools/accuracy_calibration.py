"""Score `paceline calibrate`: predictions after so many measured rows of a new device.

    PYTHONPATH=tools python -m accuracy_calibration --truth ../shared/truth --steps steps.pkl \
        --lines lines --out benchmarks/accuracy_calibration.md

Steps and lines are what ``python -m accuracy --steps … --lines …`` keeps: predictions whose device,
with its siblings, had no part in fitting. Of each such device some rows are drawn as measured, and
the others are predicted again; the parts by which they are weighed come from the other tables.
"""

from __future__ import annotations

import argparse
import pickle
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from fit.spreads import Machine, machines_of, spreads_by_table
from pages import deliver

from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.calibration.gaussian_process import Observations, Spreads, learn
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.prediction.uncertainty.intervals import Z_80

_COUNTS = (1, 3, 10, 30)
_NUM_DRAWS = 10
#: The rule of before: one factor per device, shrunk by these standard deviations.
_OLD_LOG_SIGMA = (0.12, 0.12)

_INTRODUCTION = """# Accuracy after calibration

Made by `tools/accuracy_calibration.py` from predictions of devices that were held out with their
siblings (the lines behind `benchmarks/accuracy.md`). Of each device of each table with at least 20
rows, 1 to 30 rows are drawn as measured (ten draws), and all others are predicted with them. *One
factor* is what `calibrate` did before: one number per device. The parts by which rows are weighed
are the median of those fitted to the other tables. Errors are means of the absolute log of
predicted over measured time in percent, the mean over draws, devices and then tables; *worse* is
the share of devices whose mean over the draws is worse than without a measurement. *Inside* is the
share of rows within the 80 % interval, which starts at the width of a device of known architecture
and narrows with what is known.
"""


def main() -> None:
    """Draw, learn, and write the page."""
    given = _arguments()
    with given.steps.open("rb") as file:
        steps = pickle.load(file)
    lines = pd.read_pickle(given.lines / "devices.pkl")
    machines = list(machines_of(lines, steps, given.truth))
    by_table = spreads_by_table(machines)
    rows = pd.DataFrame(
        row for machine in machines for row in _drawn(machine, _spreads(by_table, machine.table))
    )
    deliver("\n".join([_INTRODUCTION, *_tables(rows)]), given.out)


def _spreads(by_table: pd.DataFrame, table: str) -> Spreads:
    others = by_table.drop(columns=table).median(axis=1)
    return Spreads.of({f"log_sigma_of_{part}": sigma for part, sigma in others.items()})


def _drawn(machine: Machine, spreads: Spreads) -> Iterator[dict[str, object]]:
    for count in (one for one in _COUNTS if 2 * one <= len(machine.traits)):
        for draw in range(_NUM_DRAWS):
            generator = np.random.default_rng(draw)
            measured = generator.choice(len(machine.traits), count, replace=False)
            yield from _scored(machine, measured, spreads)


def _scored(
    machine: Machine, measured: np.ndarray, spreads: Spreads
) -> Iterator[dict[str, object]]:
    """One line for rows of models that were measured, and one for those of others."""
    lessons = learn([(machine.traits[i], machine.log_error[i]) for i in measured], spreads)
    rest = np.setdiff1d(np.arange(len(machine.traits)), measured)
    steps = [machine.traits[i] for i in rest]
    error, shift = machine.log_error[rest], lessons.log_shift(steps)
    inside = np.abs(error - shift) <= Z_80 * _log_sigma(lessons, steps)
    known = {machine.traits[i].workload for i in measured}
    is_known = np.array([step.workload in known for step in steps])
    old = _one_factor(machine, measured)
    for of, chosen in (("models measured", is_known), ("other models", ~is_known)):
        if chosen.any():
            yield {
                "table": machine.table, "device": machine.device, "rows measured": len(measured),
                "of": of, "none": np.abs(error[chosen]).mean(),
                "one factor": np.abs(error - old)[chosen].mean(),
                "now": np.abs(error - shift)[chosen].mean(), "inside": inside[chosen].mean(),
            }  # fmt: skip


def _log_sigma(lessons: Observations, steps: Sequence[StepFeatures]) -> np.ndarray:
    widths = builtin_calibration().constants["interval"]["log_sigma_by_knowledge"]
    return float(widths[2]) * np.sqrt(lessons.left_frac(steps))


def _one_factor(machine: Machine, measured: np.ndarray) -> float:
    by_workload = defaultdict(list)
    for one in measured:
        by_workload[machine.traits[one].workload].append(machine.log_error[one])
    means = [np.mean(found) for found in by_workload.values()]
    prior, noise = np.square(_OLD_LOG_SIGMA)
    return float(np.mean(means) * prior / (prior + noise / len(means)))


def _tables(rows: pd.DataFrame) -> Iterator[str]:
    figures = ["none", "one factor", "now", "inside"]
    by_device = rows.groupby(["of", "rows measured", "table", "device"], sort=True)[figures].mean()
    by_device["worse"] = (by_device.now > by_device.none).astype(float)
    by_table = by_device.groupby(level=[0, 1, 2]).mean()
    mean = by_table.groupby(level=[0, 1]).mean()
    yield "\n## Mean of tables\n"
    yield _markdown(mean)
    yield "\n## By table\n"
    yield _markdown(by_table)


def _markdown(table: pd.DataFrame) -> str:
    shown = (100 * table).round(1).reset_index()
    rule = ["---" if name in table.index.names else "--:" for name in shown.columns]
    lines = [shown.columns, rule, *shown.itertuples(index=False)]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="accuracy_calibration", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--truth", type=Path, required=True, help="published measurements")
    parser.add_argument("--steps", type=Path, required=True, help="lowered steps")
    parser.add_argument("--lines", type=Path, required=True, help="folder of predicted folds")
    parser.add_argument("--out", type=Path, help="file to write; printed without it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
