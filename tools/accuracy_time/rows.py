"""Published times beside what is told of them, and what the width of each interval is made of.

    PYTHONPATH=tools python -m accuracy_time.rows --cache FOLDER --out ROWS [SETS ...]

The rows are those of `score_table`, at most `MOST_ROWS` of each set and drawn with a seed, and the
step times that stand beside published peaks of training. Each set is a file of its own; a set that
is there is not asked again.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fit.published import read_published as read_table
from score_table import SHARED, TABLES, chosen_rows

from paceline.catalog.load import load_catalog
from paceline.parallelism.steps import Steps
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.scoring.answering import (
    AskedRows,
    added_s,
    assumed_of,
    beside_log_sigma,
    stated_factors,
    step_s_of,
)
from paceline.scoring.answers import Answer
from paceline.scoring.completion import read_published
from paceline.scoring.jobs import Cell, RowJob
from paceline.scoring.naming.units import items_to_unit, units_of_time
from paceline.scoring.score import ask_rows
from paceline.simulation.simulator import simulate

#: Rows of a set that are asked: more change its median by less than what sources differ by.
MOST_ROWS = 320
#: Rows of timm are those of every third model that `score_table` has.
_TIMM_STEP = 3
#: Sources of published peaks that also state a time, of a whole step of a known job.
BESIDE_MEMORY = (
    "NVIDIA/Megatron-LM", "foundation-model-stack/fms-acceleration", "huggingface/peft",
    "FlagOpen/FlagPerf", "modelscope/ms-swift", "QwenLM/Qwen-VL", "pytorch/ao",
    "open-mmlab/mmaction2", "bghira/SimpleTuner",
)  # fmt: skip
#: Columns of `Steps` that are kept.
_OF_STEPS = (
    "step_s", "device_s", "host_s", "wait_s", "backward_s", "update_s", "compute_bound_s",
    "roofline_s", "exposed_s", "communication_s", "bubble_s", "log_sigma", "device_log_sigma",
    "sharing_log_sigma", "knowledge", "power_w",
)  # fmt: skip


def rows_of_sets(truth: Path, most: int = MOST_ROWS) -> Mapping[str, pd.DataFrame]:
    """Published rows that state a time, by the name of their set, so many of each at most."""
    found = {}
    for name, file in (TABLES | SHARED).items():
        rows = chosen_rows(truth / file, is_timm=name == "timm", is_shared=name in SHARED)
        if name == "timm" and most <= MOST_ROWS:
            rows = rows[rows.model.isin(sorted(rows.model.unique())[::_TIMM_STEP])]
        found[name] = _drawn(rows, most)
    table = read_table(truth, "training_memory")
    origin = table.source.str.partition(":")[0]
    is_timed = table.quality.isin(["A", "B"]) & ((table.throughput > 0) | (table.step_time_ms > 0))
    return found | {
        name: _drawn(table[is_timed & (origin == name)], most) for name in BESIDE_MEMORY
    }


def _drawn(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    return rows if len(rows) <= most else rows.sample(most, random_state=7).sort_index()


def answered(rows: pd.DataFrame, cache: Path) -> pd.DataFrame:
    """Rows with their answers; ``log_error`` is that of predicted over measured time.

    Args:
        rows: As published.
        cache: Folder of traced models.
    """
    rows = rows.reset_index(drop=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        rows.to_csv(path, index=False)
        read = read_published(path)
    told: list[dict[str, Any]] = []
    for asked in ask_rows(
        read, catalog=load_catalog(), python=None, cache_folder=cache, calibration=None,
        on_progress=lambda line: print(line, file=sys.stderr, flush=True),
    ):  # fmt: skip
        told += _told_of_services(asked)
        told += _told(asked)
    found = rows.join(pd.DataFrame(told).set_index("row"))
    return found.assign(log_error=_log_error(found))


def _told_of_services(asked: AskedRows) -> Iterator[dict[str, Any]]:
    """Rows that are refused, or answered as services without a job."""
    for row, one in asked.given.items():
        yield {
            "row": row, "reason": one.reason, "entry": one.entry, "dev": one.device,
            "mid_s": one.step_mid_s, "rate": one.throughput_mid, "is_service": not one.reason,
            "log_sigma": _log_sigma(one), "added_log_sigma": 0.0,
        }  # fmt: skip


def _log_sigma(one: Answer) -> float:
    """Of an answer that has no steps of its own, from its interval."""
    if one.step_high_s is None or one.step_mid_s is None:
        return math.nan
    return math.log(one.step_high_s / one.step_mid_s) / Z_80


def _told(asked: AskedRows) -> Iterator[dict[str, Any]]:
    if not asked.asked:
        return
    jobs, machines = [one.job for _, one in asked.asked], [one.machine for _, one in asked.asked]
    steps = simulate(jobs, machines, calibration=asked.calibration)
    for number, (cell, one) in enumerate(asked.asked):
        yield _inputs(cell, one) | _times(cell, one, steps.take([number]))


def _inputs(cell: Cell, one: RowJob) -> dict[str, Any]:
    reading, link = cell.reading, one.machine.device_link
    return {
        "row": cell.index, "entry": reading.entry, "dev": cell.device.name,
        "profile": reading.framework, "compiler": reading.configuration.compiler,
        "added_log_sigma": beside_log_sigma(cell, one),
        "assumed": " ".join((*reading.assumed, *assumed_of(cell, one))),
        "items": one.items, "per_device": reading.batch_per_gpu,
        "unit_of": one.job.workload.sample_unit, "strategy": str(one.job.strategy),
        "num_devices": one.machine.num_devices, "link": link.name if link else "",
        "generates": one.job.is_generation,
    }  # fmt: skip


def _times(cell: Cell, one: RowJob, steps: Steps) -> dict[str, Any]:
    if steps.reasons[0] is not None:
        return {"reason": str(steps.reasons[0])}
    step_s = step_s_of(steps, one.job)
    mid_s = step_s * math.prod(factor for _, factor in stated_factors(cell))
    mid_s += added_s(cell, one.job)
    row = cell.row
    rate: float | None
    if (per_second := units_of_time(row.unit)) is not None:
        rate = mid_s * per_second
    else:
        per_item, _ = items_to_unit(
            row, one.job.workload, one.job.length, cell.reading.units_per_item,
            items_per_step=one.items,
        )  # fmt: skip
        rate = None if per_item is None else one.items * per_item / mid_s
    kept = {name: float(getattr(steps, name)[0]) for name in _OF_STEPS}
    return kept | {"reason": "", "mid_s": mid_s, "rate": rate}


def _log_error(rows: pd.DataFrame) -> pd.Series:
    """By the throughput where a row states one, else by its time."""
    rate, mid_s = (pd.to_numeric(rows[name], errors="coerce") for name in ("rate", "mid_s"))
    by_rate = np.log(rows.throughput.where(rows.throughput > 0) / rate)
    return by_rate.fillna(np.log(mid_s * 1e3 / rows.step_time_ms.where(rows.step_time_ms > 0)))


def main(given: Sequence[str] | None = None) -> None:
    """Answer the sets that are asked for and not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=["*"], help="names of sets, * for any letters")
    parser.add_argument("--truth", type=Path, default=Path("../shared/truth/e2e"))
    parser.add_argument("--cache", type=Path, required=True, help="traced models")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=MOST_ROWS, help="rows of a set")
    asked = parser.parse_args(given)
    asked.out.mkdir(parents=True, exist_ok=True)
    for name, rows in rows_of_sets(asked.truth, asked.most).items():
        path = asked.out / f"{name.replace('/', ' ')}.pkl"
        if path.exists() or not any(fnmatch(name, pattern) for pattern in asked.sets):
            continue
        answered(rows, asked.cache).assign(set=name).to_pickle(path)
        print(f"{name}: {len(rows)} rows", flush=True)


if __name__ == "__main__":
    main()
