"""Predicted times of serving runs, one call for all that share a model, a device and a format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from accuracy_serving.rows import PRECISIONS
from paceline.catalog.entities import Device, Link
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import PacelineError
from paceline.model.graph.costs import Configuration
from paceline.parallelism.serving.batching import ServingRuns, fastest, request_times
from paceline.parallelism.serving.engine import serving_passes
from paceline.parallelism.split import SplitShape
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.scoring.workloads import WorkloadKey, cached_workload
from paceline.stack.engines import find_engine

_SHARED = ["entry", "device", "format", "ranks", "backend"]


def predicted(
    runs: pd.DataFrame, cache: Path | None, on_progress: Callable[[str], None]
) -> pd.DataFrame:
    """``runs`` with ``ttft_ms``, ``tpot_ms`` and, where there are none, the reason."""
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    runs = runs.assign(ttft_ms=np.nan, tpot_ms=np.nan, step_ms=np.nan, sums_ms=np.nan)
    asked = runs[runs.reason == ""]
    for key, group in asked.groupby(_SHARED):
        on_progress(" ".join(map(str, key)))
        device = find_device(catalog, str(key[1]))
        try:
            times = _times(group, device, links.get(device.fabric or ""), cache)
        except PacelineError as error:
            runs.loc[group.index, "reason"] = str(error)
            continue
        runs.loc[group.index, list(times)] = times
    return runs


def _times(
    group: pd.DataFrame, device: Device, link: Link | None, cache: Path | None
) -> pd.DataFrame:
    first = group.iloc[0]
    workload = cached_workload(
        WorkloadKey(entry=first.entry, task="infer", image_size=None, optimizer=None),
        cache_folder=cache,
    )
    runs = ServingRuns(
        concurrency=group.concurrency.to_numpy(float),
        input_tokens=group.input_tokens.to_numpy(float),
        output_tokens=group.output_tokens.to_numpy(float),
        rounds=group.rounds.to_numpy(float),
    )
    # Older releases schedule beside the device where they are told to; runs do not state it.
    engine = find_engine(str(first.backend))
    ways = [
        serving_passes(
            workload,
            Configuration(precision=precision, compiler="compiled"),
            DeviceTable.from_devices([device]),
            runs,
            engine=engine,
            calibration=builtin_calibration(),
            ranks=SplitShape.of_engine(tensor=int(first.ranks)),
            link=link,
        )
        for precision in PRECISIONS[first.format]
    ]
    times = request_times(runs, fastest(ways), engine)
    writes_only = group["mode"] == "disagg"
    return pd.DataFrame(
        {
            "ttft_ms": times.first_token_s * 1e3,
            "tpot_ms": np.where(writes_only, times.step_s, times.per_token_s) * 1e3,
            "step_ms": times.step_s * 1e3,
            "sums_ms": times.collective_s * 1e3,
        },
        index=group.index,
    )
