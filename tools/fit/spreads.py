"""Fit how far a user's steps are off their predictions, part by part, from held-out devices.

    PYTHONPATH=tools python -m fit.spreads --truth ../shared/truth --steps steps.pkl --lines lines

Each published table stands for one user: the parts of `gaussian_process` are those of
greatest likelihood on its devices, none of which was fitted, and a user to come is taken to be the
median of them. Prints each table's and writes ``src/paceline/prediction/data``.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from fit.constants import DATA, write_spreads
from fit.published import read_published
from fit.steps import Steps
from paceline.prediction.calibration.gaussian_process import PARTS
from paceline.prediction.calibration.step_features import StepFeatures, similarity

#: Tables by one person on machines of one kind; convnet-benchmarks compares libraries.
_LEFT_OUT = ("convnet_benchmarks",)
#: Devices with fewer rows say little, and of more than these a part of the models says enough.
_LEAST_ROWS, _MOST_ROWS = 20, 300
#: Errors beyond are rows of something else than the model predicted.
_LARGEST_LOG_ERROR = 0.7
#: Standard deviations are looked for between these.
_BOUNDS = (np.log(0.005), np.log(0.7))
_START = np.log(0.08)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machine:
    """Held-out steps of one device in one table.

    Attributes:
        table: Name of the table.
        device: Name of the device.
        traits: What ran, (num_steps,).
        log_error: Log of measured over predicted time, (num_steps,).
        parts: What two steps share, (4, num_steps, num_steps) in the order of ``PARTS``.
    """

    table: str
    device: str
    traits: tuple[StepFeatures, ...]
    log_error: np.ndarray
    parts: np.ndarray

    def surprise(self, log_sigma: np.ndarray) -> float:
        """Negative log likelihood per step."""
        variance = np.exp(2.0 * log_sigma)
        covariance = np.tensordot(variance[:-1], self.parts, axes=1)
        covariance[np.diag_indices_from(covariance)] += variance[-1]
        root = np.linalg.cholesky(covariance)
        white = np.linalg.solve(root, self.log_error)
        return float(0.5 * white @ white + np.log(np.diag(root)).sum()) / len(white)


def main() -> None:
    """Fit, print and write."""
    given = _arguments()
    with given.steps.open("rb") as file:
        steps = pickle.load(file)
    lines = pd.read_pickle(given.lines / "devices.pkl")
    found = spreads_by_table(list(machines_of(lines, steps, given.truth)))
    typical = found.median(axis=1)
    print(found.assign(typical=typical).round(3).to_string())
    write_spreads({f"log_sigma_of_{part}": float(typical[part]) for part in PARTS}, given.out)


def spreads_by_table(machines: Sequence[Machine]) -> pd.DataFrame:
    """Standard deviation of each of ``PARTS``, a column per table."""
    tables = sorted({one.table for one in machines})
    found = {table: _fitted([one for one in machines if one.table == table]) for table in tables}
    return pd.DataFrame(found, index=list(PARTS))


def _fitted(machines: list[Machine]) -> np.ndarray:
    found = minimize(
        lambda log_sigma: sum(one.surprise(log_sigma) for one in machines),
        np.full(len(PARTS), _START), method="L-BFGS-B", bounds=[_BOUNDS] * len(PARTS),
    )  # fmt: skip
    return np.exp(found.x)


def machines_of(lines: pd.DataFrame, steps: Steps, truth: Path) -> Iterator[Machine]:
    """Devices of each table with enough held-out rows."""
    lines = lines.assign(
        step=np.arange(len(lines)), log_error=lines.measured_log - lines.predicted_log
    )
    lines = lines[~lines.is_open & np.isfinite(lines.log_error) & ~lines.source.isin(_LEFT_OUT)]
    for table, of_table in lines.groupby("source"):
        settings = _settings(truth / "e2e", str(table))
        for device, rows in of_table.groupby("device"):
            chosen = _some_models(rows)
            if len(chosen) >= _LEAST_ROWS:
                traits = _traits(chosen, settings, steps)
                error = chosen.log_error.clip(-_LARGEST_LOG_ERROR, _LARGEST_LOG_ERROR)
                yield Machine(
                    table=str(table), device=str(device), traits=tuple(traits),
                    log_error=error.to_numpy(), parts=_parts(traits),
                )  # fmt: skip


def _some_models(rows: pd.DataFrame) -> pd.DataFrame:
    """All rows of models spread evenly over the alphabet, as many as are enough."""
    count = rows.groupby("entry").size()
    kept = max(1, int(len(count) * min(1.0, _MOST_ROWS / len(rows))))
    chosen = count.index[np.linspace(0, len(count) - 1, kept).astype(int)]
    return rows[rows.entry.isin(chosen)]


def _settings(folder: Path, name: str) -> pd.Series:
    table = read_published(folder, name, dtype=str, keep_default_na=False)
    return table.task + " " + table.precision + " " + table.framework + " " + table.compiler_flags


def _traits(rows: pd.DataFrame, settings: pd.Series, steps: Steps) -> list[StepFeatures]:
    kernels = _kernels(rows.step.to_numpy(), steps)
    return [
        StepFeatures(
            workload=f"{row.entry}/{row.task}", setting=settings[row.index_], kernels=shares
        )
        for row, shares in zip(
            rows.rename(columns={"index": "index_"}).itertuples(), kernels, strict=True
        )
    ]


def _kernels(chosen: np.ndarray, steps: Steps) -> list[tuple[tuple[int, float], ...]]:
    """Signatures of each step's op rows by their features, with shares of the roofline."""
    found: list[dict[int, float]] = [{} for _ in chosen]
    place = {step: number for number, step in enumerate(chosen.tolist())}
    for model, rows in steps.rows.items():
        for one in np.flatnonzero(np.isin(rows.step, chosen)).tolist():
            shares = found[place[int(rows.step[one])]]
            signature = hash((model, rows.features[one].round(4).tobytes())) & (2**53 - 1)
            seconds = float(rows.bound_s[one] * rows.launches[one])
            shares[signature] = shares.get(signature, 0.0) + seconds
    return [tuple(one.items()) for one in found]


def _parts(traits: list[StepFeatures]) -> np.ndarray:
    def same(values: list[str]) -> np.ndarray:
        codes = pd.factorize(np.array(values))[0]
        return (codes[:, None] == codes[None, :]).astype(float)

    alike = similarity(traits, traits)
    np.fill_diagonal(alike, 1.0)
    return np.stack([
        np.ones_like(alike), same([one.setting for one in traits]),
        same([one.workload for one in traits]), alike,
    ])  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fit_spreads", description=__doc__.splitlines()[0])
    parser.add_argument("--truth", type=Path, required=True, help="published measurements")
    parser.add_argument("--steps", type=Path, required=True, help="lowered steps")
    parser.add_argument("--lines", type=Path, required=True, help="folder of predicted folds")
    parser.add_argument("--out", type=Path, default=DATA, help="folder of the calibration")
    return parser.parse_args()


if __name__ == "__main__":
    main()
