"""Published jobs with a mean power, and what their steps use of a device."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd

from paceline.catalog.entities import Catalog, Device
from paceline.catalog.load import load_catalog
from paceline.errors import PacelineError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.workload import Pass, Workload
from paceline.model.lowering import lower
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.power import use_of
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.scoring.completion import completed
from paceline.scoring.naming.devices import resolve_device
from paceline.scoring.naming.source_levels import as_published
from paceline.scoring.readings import Reading, UnresolvedRowError, on_device, read_job
from paceline.scoring.rows import parse_row
from paceline.scoring.workloads import WorkloadKey, cached_workload, workload_key

#: What rows share that are predicted together.
GroupKey = tuple[WorkloadKey, Configuration, str]

TABLES = ("zeus_power_trace", "mlenergy_leaderboard_v3")


def published(folder: Path, table: str) -> pd.DataFrame:
    """Rows of one GPU with a mean power; the limit in force where one is stated."""
    rows = pd.read_csv(folder / f"{table}.csv", dtype=str, keep_default_na=False)
    rows["measured_w"] = number_in(rows.extra, r"(?:average_power_w|avg_power_watts)=([\d.]+)")
    rows["limit_w"] = number_in(rows.extra, r"power_limit_w=([\d.]+)")
    rows["per_s"] = pd.to_numeric(rows.throughput, errors="coerce")
    alone = rows.n_gpus.isin(["", "1", "1.0"]) & (rows.measured_w > 0)
    return rows[alone].assign(table=table)


def number_in(text: pd.Series, pattern: str) -> pd.Series:
    """The number that a pattern finds in each text."""
    return pd.to_numeric(text.str.extract(pattern)[0])


def with_use(rows: pd.DataFrame, cache: Path | None) -> pd.DataFrame:
    """Rows that can be predicted, with what their steps use; a reason in the others."""
    catalog = load_catalog()
    groups: dict[GroupKey, list[tuple[int, Reading, Device]]] = defaultdict(list)
    found: dict[int, dict[str, object]] = {}
    for index, values in rows.to_dict("index").items():
        try:
            job, device = _resolve(values, catalog)
        except (UnresolvedRowError, PacelineError) as error:
            found[index] = {"reason": str(error)}
            continue
        groups[workload_key(job), job.configuration, job.framework].append((index, job, device))
    for key, cells in groups.items():
        found.update(_uses(key, cells, cache))
    answers = pd.DataFrame.from_dict(found, orient="index")
    return rows.join(answers.assign(reason=answers.get("reason")))


def _resolve(values: dict[str, str], catalog: Catalog) -> tuple[Reading, Device]:
    row = parse_row(completed(values))
    job = read_job(row)
    device = resolve_device(catalog, row.gpu, row.gpu_memory_gb, row.num_gpus)
    return on_device(job, device), device


def _timed_pass(workload: Workload) -> Pass:
    """The pass that tables time: the step, the forward, or one decode of generation."""
    by_name = {one.name: one for one in workload.passes}
    return by_name.get("decode", workload.passes[0])


def _uses(
    key: GroupKey, cells: list[tuple[int, Reading, Device]], cache: Path | None
) -> dict[int, dict[str, object]]:
    try:
        workload = cached_workload(key[0], cache_folder=cache)
        lowered = lower(_timed_pass(workload).graph, key[1])
    except PacelineError as error:
        return {index: {"reason": str(error)} for index, _, _ in cells}
    calibration = as_published(builtin_calibration())
    found: dict[int, dict[str, object]] = {}
    for index, job, device in cells:
        seq = float(job.seq or workload.default_seq)
        points = Points(batch=np.array([job.batch_per_gpu]), seq=np.array([seq]))
        told = predict_pass(
            lowered, DeviceTable.from_devices([device]), points, calibration=calibration,
            framework=key[2],
        )  # fmt: skip
        use = use_of(told.mid_s, told.device_s, told.roofline_s, told.compute_bound_s)
        found[index] = {
            "device": device.name, "tdp_w": device.tdp_w, "busy_frac": use.busy_frac.item(),
            "compute_frac": use.compute_frac.item(), "memory_frac": use.memory_frac.item(),
            "step_s": told.mid_s.item() * job.num_passes, "items": job.batch_per_gpu,
        }  # fmt: skip
    return found
