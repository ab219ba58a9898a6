"""`calibrate_rows`: what a table of the user's own measurements says of each device."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from paceline.app.truth.load_tests import is_load_test, row_of_load_test
from paceline.app.truth.record_residuals import read_store
from paceline.app.truth.trial_rows import is_of_trials, read_trials
from paceline.catalog.entities import Catalog
from paceline.errors import InvalidInputError
from paceline.model.graph.graph import FloatArray
from paceline.prediction.calibration.fitted import Calibration, Residual, builtin_calibration
from paceline.prediction.calibration.from_measurements import calibrate, residual
from paceline.prediction.calibration.gaussian_process import Observations
from paceline.scoring.answers import Answer
from paceline.scoring.cells import number_of
from paceline.scoring.completion import completed, read_published
from paceline.scoring.naming.units import units_of_time
from paceline.scoring.rows import parse_row, read_table_cells
from paceline.scoring.score import predict_rows
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCalibration:
    """What the measurements of one device say.

    Attributes:
        device: ``Device.name``.
        num_rows: Rows used.
        num_workloads: Distinct models among them.
        time_factor: By which times of the steps measured are multiplied from now on, at the median.
        error_before_frac: Median absolute error of the rows with the built-in calibration.
        error_after_frac: With what all other rows teach of each.
    """

    device: str
    num_rows: int
    num_workloads: int
    time_factor: float
    error_before_frac: float
    error_after_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSummary:
    """What was learned from a table.

    Attributes:
        num_rows: Rows read.
        num_used: Of them, measured and predictable.
        devices: One entry per device, by name.
        kept_in: Store that the model of this machine learns from, where the measurements went
            there; empty where a calibration was made.
    """

    num_rows: int
    num_used: int
    devices: tuple[DeviceCalibration, ...]
    kept_in: str = ""


def calibrate_rows(
    rows_path: Path,
    *,
    catalog: Catalog,
    label: str,
    start: Calibration | None = None,
    python: str | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> tuple[Calibration, CalibrationSummary]:
    """Learn from rows that state a measured time how far steps of their devices are off.

    Args:
        rows_path: The columns of ``score``, with ``step_time_ms`` or ``throughput`` and ``unit``;
            runs that ``trials`` asked for, with their times; a folder of ``measure``; or the
            result of a load test that ``deploy`` wrote (``.json``).
        catalog: Devices.
        label: Date and origin, kept in the calibration.
        start: What to add to; the built-in calibration if None.
        python: Interpreter that has torch, for models that must be traced.
        on_progress: Called with one line per model.

    Raises:
        InvalidInputError: The table cannot be read, a row is more than ten times off, or no row
            can be used.
    """
    if rows_path.is_dir():
        found, num_rows = read_store(rows_path, catalog)
    elif is_of_trials(rows_path):
        found, num_rows = read_trials(rows_path)
    else:
        cells = _cells_of(rows_path)
        rows = (
            [parse_row(completed(one)) for one in cells]
            if is_load_test(rows_path)
            else (read_published(rows_path))
        )
        answers = predict_rows(
            rows, catalog=catalog, python=python,
            calibration=builtin_calibration(), on_progress=on_progress, is_learned_from=True,
        )  # fmt: skip
        found, num_rows = _residuals(answers, cells, rows_path), len(rows)
    calibrated = calibrate(start or builtin_calibration(), found, label=label)
    summary = CalibrationSummary(
        num_rows=num_rows, num_used=len(found), devices=_devices(found, calibrated)
    )
    return calibrated, summary


def _cells_of(path: Path) -> Sequence[Mapping[str, str]]:
    """Cells of a table's rows, or of the one row that a load test is."""
    return [row_of_load_test(path)] if is_load_test(path) else list(read_table_cells(path))


def _residuals(
    answers: Sequence[Answer], table: Sequence[Mapping[str, str]], rows_path: Path
) -> list[Residual]:
    measured = [_measured_s(cells, answer) for answer, cells in zip(answers, table, strict=True)]
    found = [
        residual(
            device_name=answer.device,
            step=answer.step,
            measured_s=time_s,
            predicted_s=answer.step_mid_s,
        )
        for answer, time_s in zip(answers, measured, strict=True)
        if time_s is not None and answer.step_mid_s is not None and answer.step is not None
    ]
    if not found:
        raise InvalidInputError(
            f"no row of `{rows_path}` states a time that can be predicted",
            hint="give step_time_ms, or throughput and unit; `paceline score` says why a row fails",
        )
    return found


def _measured_s(cells: Mapping[str, str], answer: Answer) -> float | None:
    """Time of a step: as stated, else by how many times the throughput is off."""
    stated_ms = _number(cells.get("step_time_ms"))
    if stated_ms is not None:
        return stated_ms / 1e3
    throughput = _number(cells.get("throughput"))
    if throughput is None or answer.throughput_mid is None or answer.step_mid_s is None:
        return None
    if (per_second := units_of_time(answer.throughput_unit)) is not None:
        return throughput / per_second
    return answer.step_mid_s * answer.throughput_mid / throughput


def _number(text: str | None) -> float | None:
    """A positive number; None for an empty cell.

    Raises:
        InvalidInputError: Anything else.
    """
    if not (text or "").strip():
        return None
    try:
        value = number_of(text or "")
    except ValueError:
        value = None
    if value is None or value <= 0:
        raise InvalidInputError(
            f"`{text}` is no measured time or throughput",
            hint="write a positive number, or leave the cell empty",
        )
    return value


def _devices(
    residuals: Sequence[Residual], calibrated: Calibration
) -> tuple[DeviceCalibration, ...]:
    by_device: dict[str, list[Residual]] = defaultdict(list)
    for one in residuals:
        by_device[one.device_name].append(one)
    return tuple(
        _device(name, rows, calibrated.lessons[name]) for name, rows in sorted(by_device.items())
    )


def _device(name: str, rows: Sequence[Residual], lessons: Observations) -> DeviceCalibration:
    log_ratios = np.array([one.log_ratio for one in rows])
    shifts = lessons.log_shift(lessons.steps)
    return DeviceCalibration(
        device=name,
        num_rows=len(rows),
        num_workloads=len({one.step.workload for one in rows}),
        time_factor=math.exp(float(np.median(shifts))),
        error_before_frac=_median_error_frac(log_ratios),
        error_after_frac=_median_error_frac(lessons.left_out_log_error()),
    )


def _median_error_frac(log_errors: FloatArray) -> float:
    return math.expm1(float(np.median(np.abs(log_errors))))
