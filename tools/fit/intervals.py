"""Fit the widths of intervals again from predictions of held-out devices that are at hand.

    PYTHONPATH=tools python -m fit.intervals --steps steps.pkl --lines lines

Both are what ``python -m accuracy --steps … --lines …`` keeps. Prints how many steps of each fold
lie inside widths from the other folds, and writes ``src/paceline/prediction/data``.
"""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path

import pandas as pd
from accuracy.intervals import components, coverage, with_covariates, with_widths

from fit.constants import DATA, write_intervals
from paceline.catalog.load import load_catalog
from paceline.prediction.calibration.fitted import builtin_calibration


def main() -> None:
    """Fit, print and write."""
    given = _arguments()
    devices = load_catalog().devices
    with given.steps.open("rb") as file:
        steps = pickle.load(file)
    lines = pd.read_pickle(given.lines / "devices.pkl")
    calibration = builtin_calibration()
    seen = with_covariates(lines, steps, devices, calibration)
    print(coverage(with_widths(seen)).round(3).to_string())
    write_intervals(components(seen, devices, calibration), given.out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fit_intervals", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=Path, required=True, help="lowered steps")
    parser.add_argument("--lines", type=Path, required=True, help="folder of predicted folds")
    parser.add_argument("--out", type=Path, default=DATA, help="folder of the calibration")
    return parser.parse_args()


if __name__ == "__main__":
    main()
