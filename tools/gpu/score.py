"""Predictions against the records of ``make gpu-truth``, by class of operator and by model.

Usage: PYTHONPATH=tools python -m gpu.score [FOLDER] [--cache FOLDER] [--out FILE]
Every record is predicted by the shipped coefficients, which have not seen it; beside that stands
what calibration makes of it that learned from the other half of the records (halves by turns, so
both hold every class). Without records it says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

import numpy as np
from pages import deliver, page_parser

from gpu.one_operator import operator_pass
from paceline.catalog.entities import Catalog, Device
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import PacelineError
from paceline.measurements.records import Record
from paceline.measurements.store import Store
from paceline.model.graph.graph import OpKind
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.calibration.from_measurements import calibrate, residual
from paceline.prediction.calibration.gaussian_process import Observations
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.prediction.uncertainty.posterior_correction import pass_traits
from paceline.scoring.answering import ask_cells
from paceline.scoring.answers import Answer
from paceline.scoring.jobs import Cell
from paceline.scoring.readings import Reading, on_device, read_job
from paceline.scoring.rows import Row, parse_row
from paceline.scoring.workloads import workload_key
from paceline.simulation.simulator import simulate

_WORST = 15
_ONCE = Points(batch=np.ones(1), seq=np.ones(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One record beside its prediction.

    Attributes:
        record: As measured.
        group: Class of the operator, or the model.
        predicted_s: By the shipped coefficients; None where there is no prediction.
        step: What calibration knows it by.
        calibrated_s: After calibration from the other half.
        is_inside: Whether the time lies inside the 80 % interval; None for operators.
        memory_ratio: Predicted over measured peak of what the allocator reserves; None where not
            measured.
        power_ratio: Predicted over measured mean power.
        reason: Why there is no prediction.
    """

    record: Record
    group: str
    predicted_s: float | None = None
    step: StepFeatures | None = None
    calibrated_s: float | None = None
    is_inside: bool | None = None
    memory_ratio: float | None = None
    power_ratio: float | None = None
    reason: str = ""

    @property
    def log_ratio(self) -> float:
        """Log of predicted over measured time."""
        assert self.predicted_s
        assert self.record.median_s
        return math.log(self.predicted_s / self.record.median_s)


def score(records: Iterable[Record], catalog: Catalog, cache: Path | None) -> list[Scored]:
    """Every record that ended well beside its predictions."""
    measured = [one for one in records if one.outcome == "ok" and one.median_s]
    return _calibrated([_predicted(record, catalog, cache) for record in measured])


def _predicted(record: Record, catalog: Catalog, cache: Path | None) -> Scored:
    is_operator = record.kind == "operator"
    name = record.workload if is_operator else f"{record.workload} ({record.mode})"
    try:
        device = find_device(catalog, record.device_name)
        if is_operator:
            return _operator(Scored(record=record, group=name), device)
        answer = _step(record, device, catalog, cache)
    except PacelineError as error:
        return Scored(record=record, group=name, reason=str(error))
    low, high, time_s = answer.step_low_s, answer.step_high_s, record.median_s
    return Scored(
        record=record,
        group=name,
        predicted_s=answer.step_mid_s,
        step=answer.step,
        is_inside=low <= time_s <= high if low and high and time_s else None,
        memory_ratio=_ratio(answer.memory_mid_bytes, record.reserved_bytes),
        power_ratio=_ratio(answer.power_w, record.mean_power_w),
        reason=answer.reason,
    )


def _operator(scored: Scored, device: Device) -> Scored:
    record = scored.record
    lowered = operator_pass(OpKind[record.workload], record.shape, record.precision or "fp32")
    table = DeviceTable.from_devices([device])
    predicted = predict_pass(lowered, table, _ONCE)
    time_s = float(predicted.device_s[0, 0])
    if math.isnan(time_s):
        return replace(scored, reason=f"{device.name} has no peak for {record.precision}")
    (step,) = pass_traits(lowered, table, _ONCE, builtin_calibration())
    return replace(scored, predicted_s=time_s, step=step)


def _step(record: Record, device: Device, catalog: Catalog, cache: Path | None) -> Answer:
    """What ``paceline score`` says of the job, whose model is known by its entry."""
    row = _row(record)
    reading = on_device(_reading(record, row), device)
    cell = Cell(index=0, row=row, reading=reading, device=device, capacities_bytes=None)
    asked = ask_cells(
        workload_key(reading), [cell], catalog,
        cache_folder=cache, python=None, calibration=builtin_calibration(),
    )  # fmt: skip
    steps = simulate(asked.jobs, asked.machines, calibration=asked.calibration)
    answer = asked.answers(steps, is_learned_from=True)[0]
    # A forward pass of a language model reads its texts and writes one token.
    first_s = float(steps.first_token_s[0])
    low_s, mid_s, high_s = answer.step_low_s, answer.step_mid_s, answer.step_high_s
    if math.isnan(first_s) or not (low_s and mid_s and high_s):
        return answer
    factor = first_s / mid_s
    return replace(
        answer, step_low_s=low_s * factor, step_mid_s=first_s, step_high_s=high_s * factor
    )


def _row(record: Record) -> Row:
    compiler = "torch.compile" if record.compiler == "compiled" else "eager"
    layout = "nhwc" if record.channels_last else "nchw"
    return parse_row(
        {
            "model": "resnet50", "task": record.task, "gpu": record.device_name, "n_gpus": "1",
            "framework": f"PyTorch {record.framework_version or ''}".strip(),
            "precision": record.precision, "compiler_flags": f"{layout}; {compiler}",
            "batch_per_gpu": str(record.batch_per_device or ""), "memory_kind": "reserved",
        }
    )  # fmt: skip


def _reading(record: Record, row: Row) -> Reading:
    """The job of a row, with the settings that its record states itself."""
    read = read_job(row)
    how = replace(read.configuration, inference_format="autocast", training_format="autocast")
    return replace(
        read,
        configuration=how,
        entry=record.workload,
        image_size=None,
        units_per_item=None,
        seq=int(record.seq) if record.seq else None,
        optimizer="sgd-momentum" if record.optimizer else None,
    )


def _ratio(predicted: float | None, measured: float | None) -> float | None:
    return predicted / measured if predicted and measured else None


def _calibrated(scored: Sequence[Scored]) -> list[Scored]:
    """With what the other half of the records of the same kind teaches."""
    made = list(scored)
    for kind in ("operator", "step"):
        places = [n for n, one in enumerate(scored) if one.record.kind == kind and one.predicted_s]
        for part in (0, 1):
            lessons = _lessons([scored[n] for n in places[1 - part :: 2]])
            for place in places[part::2]:
                made[place] = _corrected(scored[place], lessons)
    return made


def _lessons(teachers: Sequence[Scored]) -> Mapping[str, Observations]:
    found = []
    for one in teachers:
        assert one.predicted_s
        assert one.record.median_s
        assert one.step
        try:
            found.append(
                residual(
                    device_name=one.record.device_name, step=one.step,
                    measured_s=one.record.median_s, predicted_s=one.predicted_s,
                )
            )  # fmt: skip
        except PacelineError:
            continue  # more than ten times off: no calibration learns from it
    if not found:
        return {}
    return calibrate(builtin_calibration(), found, label="the other half").lessons


def _corrected(one: Scored, lessons: Mapping[str, Observations]) -> Scored:
    taught = lessons.get(one.record.device_name)
    if taught is None or one.predicted_s is None or one.step is None:
        return one
    shift = float(taught.log_shift([one.step])[0])
    return replace(one, calibrated_s=one.predicted_s * math.exp(shift))


def page(scored: Sequence[Scored], records: Sequence[Record]) -> str:
    """The whole page."""
    known = [one for one in scored if one.predicted_s]
    others = [one for one in records if one.outcome != "ok"]
    lines = ["# Predictions against records of this project's own suite", ""]
    for device in sorted({one.record.device_name for one in scored}):
        here = [one for one in known if one.record.device_name == device]
        lines += [f"## {device}", "", *_table(here), ""]
    lines += ["## Furthest off (predicted over measured)", "", *_worst_lines(known), ""]
    lines += [f"Not measured: {len(others)}. Not predicted: {len(scored) - len(known)}."]
    lines += [f"* {one.group}: {one.reason}" for one in scored if one.reason]
    return "\n".join(lines)


def _table(scored: Sequence[Scored]) -> list[str]:
    by_group: dict[tuple[str, str], list[Scored]] = defaultdict(list)
    for one in scored:
        by_group[one.record.kind, one.group].append(one)
        by_group[one.record.kind, "all"].append(one)
    return [
        "| kind | what | records | ratio | median | calibrated | mean | inside | memory | power |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_line(kind, group, rows) for (kind, group), rows in sorted(by_group.items())),
    ]


def _line(kind: str, group: str, rows: Sequence[Scored]) -> str:
    errors = [abs(math.expm1(one.log_ratio)) for one in rows]
    after = [
        abs(one.calibrated_s / one.record.median_s - 1.0)
        for one in rows
        if one.calibrated_s and one.record.median_s
    ]
    cells = [
        kind, group, str(len(rows)), f"{math.exp(median(one.log_ratio for one in rows)):.2f}",
        f"{median(errors):.1%}", f"{median(after):.1%}" if after else "", f"{mean(errors):.1%}",
        _share(rows, lambda one: one.is_inside), _middle(rows, lambda one: one.memory_ratio),
        _middle(rows, lambda one: one.power_ratio),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _share(rows: Sequence[Scored], value: Callable[[Scored], bool | None]) -> str:
    known = [value(one) for one in rows if value(one) is not None]
    return f"{sum(map(bool, known)) / len(known):.0%}" if known else ""


def _middle(rows: Sequence[Scored], value: Callable[[Scored], float | None]) -> str:
    known = [found for one in rows if (found := value(one)) is not None]
    return f"{median(known):.2f}" if known else ""


def _worst_lines(known: Sequence[Scored]) -> list[str]:
    worst = sorted(known, key=lambda one: -abs(one.log_ratio))[:_WORST]
    return [
        f"* {one.group}, {one.record.precision}, {one.record.shape or one.record.batch_per_device}:"
        f" {math.exp(one.log_ratio):.2f}"
        for one in worst
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the page, or write it."""
    asked = page_parser(__doc__, "benchmarks/gpu_truth").parse_args(arguments)
    records = Store(asked.folder).read().records
    if not records:
        print(f"no records in {asked.folder}: `make gpu-truth` writes them where a GPU is")
        return
    deliver(page(score(records, load_catalog(), asked.cache), records), asked.out)


if __name__ == "__main__":
    main()
