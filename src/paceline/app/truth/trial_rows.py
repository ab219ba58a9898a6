"""Runs that are worth measuring as a table, whose times come back for `calibrate`."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.planning.decisions.trials import Trial
from paceline.prediction.calibration.fitted import Residual
from paceline.prediction.calibration.from_measurements import residual, step_of
from paceline.scoring.cells import read_cells
from paceline.writing import whole_file

#: Column that says what a run is known by: nothing that a user writes.
KNOWN_BY = "known_by"
_COLUMNS = ("device", "strategy", "microbatch", "global_batch", "predicted_ms", "step_time_ms",
            KNOWN_BY)  # fmt: skip

#: Characters of a header line that are looked at.
_LONGEST_HEADER = 10_000


def write_trials(trials: Sequence[Trial], device: str, global_batch: int, path: Path) -> None:
    """Write the runs as a table whose times are to be filled in, for `calibrate`.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    with whole_file(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS)
        writer.writeheader()
        writer.writerows(_line(trial, device, global_batch) for trial in trials)


def _line(trial: Trial, device: str, global_batch: int) -> dict[str, object]:
    return {
        "device": device,
        "strategy": str(trial.strategy),
        "microbatch": trial.microbatch,
        "global_batch": global_batch,
        "predicted_ms": f"{1e3 * trial.step_s:.6g}",
        "step_time_ms": "",
        KNOWN_BY: json.dumps(
            asdict(trial.step) | {"log_shift": trial.log_shift}, separators=(",", ":")
        ),
    }


def is_of_trials(path: Path) -> bool:
    """Whether a table is one of runs that `trials` asked for; of none that cannot be read."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return KNOWN_BY in file.readline(_LONGEST_HEADER)
    except (OSError, UnicodeDecodeError):
        return False


def read_trials(path: Path) -> tuple[list[Residual], int]:
    """What the runs of such a table with a time show, and how many lines it has.

    Raises:
        InvalidInputError: A line is not as `write_trials` wrote it, or its time is no such.
    """
    lines = read_cells(path, columns=_COLUMNS, required=_COLUMNS)
    timed = [line for line in lines if (line["step_time_ms"] or "").strip()]
    if not timed:
        raise InvalidInputError(
            f"no run of `{path}` has a time", hint="write numbers under step_time_ms"
        )
    return [_residual(line, path) for line in timed], len(lines)


def _residual(line: Mapping[str, str], path: Path) -> Residual:
    try:
        known = json.loads(line[KNOWN_BY])
        return residual(
            device_name=line["device"],
            step=step_of(known),
            measured_s=float(line["step_time_ms"]) / 1e3,
            predicted_s=float(line["predicted_ms"]) / 1e3 / math.exp(float(known["log_shift"])),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInputError(
            f"a line of `{path}` is not as `paceline trials` wrote it: {error}",
            hint="write numbers under step_time_ms and leave the other columns as they are",
        ) from None
