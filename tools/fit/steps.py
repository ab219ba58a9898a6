"""Published whole-step measurements as sums over ops: what convolutions are fitted through."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fit.published import read_published
from paceline.catalog.entities import Catalog, Device
from paceline.errors import PacelineError
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import Phase
from paceline.model.lowering import lower
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernel_maturity import maturity_years
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.row_times import grouped_features, question
from paceline.prediction.kernels.sustained_rate import power_flop, power_s
from paceline.prediction.prediction import Points
from paceline.prediction.step.host_dispatch import calls_of, host_years
from paceline.scoring.completion import completed
from paceline.scoring.naming.devices import resolve_device
from paceline.scoring.readings import UnresolvedRowError, on_device, read_job
from paceline.scoring.rows import Row, parse_row
from paceline.scoring.workloads import WorkloadKey, cached_workload, is_cached, workload_key
from paceline.stack.releases import release_year

#: What rows share that run alike.
GroupKey = tuple[WorkloadKey, Configuration, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One published row: its inputs, its step time and where it came from.

    Attributes:
        row: The inputs.
        step_s: Measured.
        source: Name of the table.
        index: Row in it.
        is_open: Whether the inputs leave open what ran: such rows are predicted, never fitted.
    """

    row: Row
    step_s: float
    source: str
    index: int
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpRows:
    """Op rows of one efficiency model, over all steps.

    Attributes:
        features: (num_rows, num_features).
        bound_s: Roofline of one launch.
        power_s: Time in which the board's power serves one launch; 0 off the matrix units.
        launches: Launches in the whole step.
        step: Which step each row belongs to.
    """

    features: np.ndarray
    bound_s: np.ndarray
    power_s: np.ndarray
    launches: np.ndarray
    step: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """Steps with their op rows. Arrays are (num_steps,).

    Attributes:
        rows: By efficiency model.
        step_s: Measured.
        forward_kernels: Kernels launched outside the backward pass, and views as `calls_of` counts
            them.
        backward_kernels: Of the backward pass.
        framework: Index into ``FRAMEWORKS``.
        is_compiled: 0 or 1.
        device: ``Device.name``.
        source: Name of the table.
        entry: Model.
        task: Training or inference.
        index: Row in the source table.
        is_open: Whether the inputs leave open what ran.
        maturity_years: Years that the kernels of the release had to ripen, beyond a reference.
        host_years: Years of the machines of the device's time, beyond a reference.
    """

    rows: dict[str, OpRows]
    step_s: np.ndarray
    forward_kernels: np.ndarray
    backward_kernels: np.ndarray
    framework: np.ndarray
    is_compiled: np.ndarray
    device: np.ndarray
    source: np.ndarray
    entry: np.ndarray
    task: np.ndarray
    index: np.ndarray
    is_open: np.ndarray
    maturity_years: np.ndarray
    host_years: np.ndarray


def select(steps: Steps, chosen: np.ndarray) -> Steps:
    """Only the chosen steps with their op rows, in that order."""
    number = np.full(len(steps.step_s), -1)
    number[chosen] = np.arange(len(chosen))
    rows = {}
    for model, r in steps.rows.items():
        keep = number[r.step] >= 0
        if keep.any():
            rows[model] = OpRows(
                features=r.features[keep],
                bound_s=r.bound_s[keep],
                power_s=r.power_s[keep],
                launches=r.launches[keep],
                step=number[r.step[keep]],
            )
    columns = {f.name: getattr(steps, f.name)[chosen] for f in fields(Steps) if f.name != "rows"}
    return Steps(rows=rows, **columns)


FRAMEWORKS = ("torch", "tensorflow", "mxnet", "legacy", "vllm")


#: Rows whose inputs leave open what ran: never fitted, and scored apart.
OPEN_ROWS = Path(__file__).parent / "open_rows.csv"


def read_measured(folder: Path, tables: Sequence[str]) -> list[Measured]:
    """Single-device rows of quality A of some tables, with their step times.

    Args:
        folder: The published measurements.
        tables: Names of tables.
    """
    with OPEN_ROWS.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    measured = []
    for table in tables:
        rows = read_published(folder / "e2e", table, dtype=str, keep_default_na=False)
        for index, values in enumerate(rows.to_dict("records")):
            if values["quality"] != "A" or values["n_gpus"] not in ("1", "1.0"):
                continue
            row = parse_row(completed(values))
            step_s = _step_s(values, row)
            if step_s is None or row.gpu.startswith("CPU"):
                continue
            one = Measured(row=row, step_s=step_s, source=table, index=index)
            measured.append(replace(one, is_open=_is_open(one, values["extra"], lines)))
    return measured


def _is_open(measured: Measured, extra: str, lines: Sequence[dict[str, str]]) -> bool:
    """Whether a line of ``OPEN_ROWS`` holds for a row; empty framework or extra hold for all."""
    row = measured.row
    return any(
        (measured.source, row.model, row.task) == (line["table"], line["model"], line["task"])
        and line["framework"] in ("", row.framework)
        and line["extra"] in extra
        for line in lines
    )


def _step_s(values: dict[str, str], row: Row) -> float | None:
    """Seconds of one step: items over throughput, where throughput counts items."""
    items_per_s = values["throughput"]
    counts_items = values["unit"] in ("img/s", "seq/s", "samples/s")
    if counts_items and items_per_s and row.batch_per_gpu:
        return row.batch_per_gpu / float(items_per_s)
    return float(values["step_time_ms"]) / 1e3 if values["step_time_ms"] else None


def build_steps(
    measured: Sequence[Measured],
    catalog: Catalog,
    calibration: Calibration,
    cache_folder: Path,
    *,
    only_cached: bool = True,
) -> Steps:
    """Lower every measured row and lay its op rows out flat."""
    groups: dict[GroupKey, list[tuple[Measured, str, float, int | None]]] = defaultdict(list)
    devices = {}
    for one in measured:
        try:
            job = read_job(one.row)
            if job.assumed:
                continue
            device = resolve_device(catalog, one.row.gpu, one.row.gpu_memory_gb, 1)
        except (UnresolvedRowError, PacelineError):
            continue
        devices[device.name] = device
        job = on_device(job, device)
        key = (workload_key(job), job.configuration, job.framework)
        if only_cached and not is_cached(key[0], cache_folder=cache_folder):
            continue
        if job.units_per_item and one.row.unit == "samples/s":
            one = replace(one, step_s=one.step_s * job.units_per_item)
        groups[key].append((one, device.name, job.batch_per_gpu, job.seq))
    builder = _Builder(calibration)
    for key, cells in groups.items():
        try:
            workload = cached_workload(key[0], cache_folder=cache_folder)
            lowered = lower(workload.passes[0].graph, key[1])
        except PacelineError:
            continue
        points = sorted({(c[1], c[2], c[3] or workload.default_seq) for c in cells})
        for name in sorted({p[0] for p in points}):
            here = [(b, s) for d, b, s in points if d == name]
            mine = [c for c in cells if c[1] == name]
            wanted = [here.index((c[2], c[3] or workload.default_seq)) for c in mine]
            builder.add(lowered, key, devices[name], here, [c[0] for c in mine], wanted)
    return builder.build()


class _Builder:
    """Collects flat arrays, one group of steps after another."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._parts: dict[str, list[OpRows]] = defaultdict(list)
        self._columns: dict[str, list[np.ndarray]] = defaultdict(list)
        self._count = 0

    def add(
        self,
        lowered: LoweredPass,
        key: GroupKey,
        device: Device,
        points: Sequence[tuple[float, float]],
        measured: Any,
        wanted: Any,
    ) -> None:
        table = DeviceTable.from_devices([device])
        where = Points(
            batch=np.array([b for b, _ in points], float),
            seq=np.array([s for _, s in points], float),
        )
        shapes = evaluate_shapes(lowered.costs, where)
        asked = question(lowered, shapes, table, self._calibration, framework=key[2])
        bounds = asked.bounds
        if np.isnan(bounds.roofline_s).any():
            return
        costs, picked = lowered.costs, np.array(wanted)
        power = power_s(power_flop(lowered, shapes, self._calibration), table, self._calibration)
        for one in grouped_features(asked):
            size = (len(points), len(one.rows))
            shape = (1, *size, one.features.shape[-1])
            features = np.broadcast_to(one.features, shape)[0][picked]
            bound = np.broadcast_to(bounds.roofline_s[0][:, one.rows], size)[picked]
            limit = np.broadcast_to(power[0][:, one.rows], size)[picked]
            launches = (shapes.launches[:, one.rows] * costs.count[one.rows])[picked]
            self._parts[one.model].append(
                OpRows(
                    features=features.reshape(-1, features.shape[-1]),
                    bound_s=bound.reshape(-1),
                    power_s=limit.reshape(-1).astype(np.float32),
                    launches=launches.reshape(-1),
                    step=np.repeat(np.arange(len(picked)) + self._count, len(one.rows)),
                )
            )
        kernels = calls_of(lowered, key[2], self._calibration) * costs.count * shapes.launches[0]
        backward = costs.phase == Phase.BACKWARD
        n = len(picked)
        released = np.array([release_year(m.row.framework) for m in measured], dtype=float)
        self._put(
            step_s=[m.step_s for m in measured],
            forward_kernels=[kernels[~backward].sum()] * n,
            backward_kernels=[kernels[backward].sum()] * n,
            framework=[FRAMEWORKS.index(key[2])] * n,
            is_compiled=[float(key[1].compiler != "eager")] * n,
            device=[device.name] * n,
            source=[m.source for m in measured],
            entry=[key[0].entry] * n,
            task=[key[0].task] * n,
            index=[m.index for m in measured],
            is_open=[m.is_open for m in measured],
            maturity_years=maturity_years(table.generations, released)[0],
            host_years=[float(host_years(table, self._calibration)[0])] * n,
        )
        self._count += n

    def _put(self, **columns: Any) -> None:
        for name, values in columns.items():
            self._columns[name].append(np.array(values))

    def build(self) -> Steps:
        rows = {
            model: OpRows(
                **{
                    f: np.concatenate([getattr(p, f) for p in parts])
                    for f in ("features", "bound_s", "power_s", "launches", "step")
                }
            )
            for model, parts in self._parts.items()
        }
        return Steps(rows=rows, **{n: np.concatenate(v) for n, v in self._columns.items()})
