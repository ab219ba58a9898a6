"""The answer to one row, and how it is written."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from paceline.prediction.calibration.step_features import StepFeatures
from paceline.scoring.rows import Row
from paceline.values import dataclass
from paceline.writing import whole_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A time that requests see, with its 80 % interval.

    Attributes:
        p50_low_s: Half of the requests see no more: lower end.
        p50_mid_s: Median.
        p50_high_s: Upper end.
        p99_low_s: 99 of 100 see no more: lower end.
        p99_mid_s: Median.
        p99_high_s: Upper end.
    """

    p50_low_s: float
    p50_mid_s: float
    p50_high_s: float
    p99_low_s: float
    p99_mid_s: float
    p99_high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Prediction of one row; None where there is none, and then ``reason`` says why.

    Attributes:
        entry: The model that was predicted.
        device: ``Device.name`` that was predicted.
        case: How near the device is to one measured.
        step_low_s: Lower end of the 80 % interval of the time of one step of the whole job.
        step_mid_s: Median.
        step_high_s: Upper end.
        throughput_low: Lower end, in ``throughput_unit``.
        throughput_mid: Median.
        throughput_high: Upper end.
        throughput_unit: The unit that the row asked for; empty where none can be given.
        memory_low_bytes: Lower end of peak memory per device.
        memory_mid_bytes: Median.
        memory_high_bytes: Upper end of the 80 % interval.
        memory_lasting_bytes: Of the median, parameters and optimizer state as a device keeps them.
        fits: ``yes`` at a chance of 95 %, ``no`` if even the lower bound is too much and the
            chance is below 10 %, ``unsure`` between; empty where memory is unknown.
        chance_to_fit: Chance that the peak stays within the memory of the device.
        power_w: Mean power per device.
        roofline_s: Plain roofline of one microbatch, for comparison.
        first_token: Time to the first token of requests that are served; None of all others.
        per_token: From one of their tokens to the next, likewise.
        reason: Why there is no prediction; empty where there is one.
        note: What was assumed.
        step: What measurements know the step by, where that was asked for; not written.
    """

    entry: str = ""
    device: str = ""
    case: str = ""
    step_low_s: float | None = None
    step_mid_s: float | None = None
    step_high_s: float | None = None
    throughput_low: float | None = None
    throughput_mid: float | None = None
    throughput_high: float | None = None
    throughput_unit: str = ""
    memory_low_bytes: float | None = None
    memory_mid_bytes: float | None = None
    memory_high_bytes: float | None = None
    memory_lasting_bytes: float | None = None
    fits: str = ""
    chance_to_fit: float | None = None
    power_w: float | None = None
    roofline_s: float | None = None
    first_token: Latency | None = None
    per_token: Latency | None = None
    reason: str = ""
    note: str = ""
    step: StepFeatures | None = None


#: Of an answer, what stands in no table, and what stands there in columns of its own.
_NOT_WRITTEN = frozenset({"step"})
_LATENCIES = {"per_token": "tpot", "first_token": "ttft"}


def write_answers(path: Path, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
    """Write one line per row, in the order of the rows.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    names = (field.name for field in dataclasses.fields(Answer))
    columns = [name for name in names if name not in (*_NOT_WRITTEN, *_LATENCIES)]
    times = [field.name for field in dataclasses.fields(Latency)]
    latencies = [f"{short}_{time}" for short in _LATENCIES.values() for time in times]
    with whole_file(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "model", "gpu", *columns, *latencies])
        for index, (row, answer) in enumerate(zip(rows, answers, strict=True)):
            values = (_cell(getattr(answer, column)) for column in columns)
            seen = (getattr(answer, name) for name in _LATENCIES)
            seconds = (_cell(getattr(one, time, None)) for one in seen for time in times)
            writer.writerow([index, row.model, row.gpu, *values, *seconds])


def _cell(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
