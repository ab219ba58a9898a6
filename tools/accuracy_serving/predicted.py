"""Predicted times of serving runs, one call for all that share a model, a device and a format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from accuracy_serving.rows import PRECISIONS, table
from paceline.catalog.entities import Device, Link
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import PacelineError
from paceline.model.graph.costs import Configuration
from paceline.parallelism.serving.batching import EnginePasses, ServingRuns, request_times
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.scoring.workloads import WorkloadKey, cached_workload
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate
from paceline.stack.engines import find_engine

_SHARED = ["entry", "device", "format", "ranks", "replicas", "backend", "kernel"]
#: Between boards that no column describes: one adapter of 400 Gb/s for each device.
_NETWORK = "dgx-h100-ib"


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
            times = _times(group, device, links, cache)
        except PacelineError as error:
            runs.loc[group.index, "reason"] = str(error)
            continue
        runs.loc[group.index, list(times)] = times
    return runs


def _times(
    group: pd.DataFrame, device: Device, links: Mapping[str, Link], cache: Path | None
) -> pd.DataFrame:
    first = group.iloc[0]
    workload = cached_workload(
        WorkloadKey(entry=first.entry, task="infer", image_size=None, optimizer=None),
        cache_folder=cache,
    )
    is_balanced = bool(first.balance_steps)
    runs = ServingRuns(
        concurrency=(group.concurrency / group.replicas).to_numpy(float),
        input_tokens=group.input_tokens.to_numpy(float),
        output_tokens=group.output_tokens.to_numpy(float),
        rounds=group.rounds.fillna(np.inf).to_numpy(float),
        groups=1 if is_balanced else int(first.replicas),
    )
    # Older releases schedule beside the device where they are told to; runs do not state it.
    engine = find_engine(str(first.backend)).on(device)
    ranks, replicas = int(first.ranks), int(first.replicas)
    link = links.get(device.fabric or "")
    joined = {row["device"]: int(row["joined"]) for row in table("systems.csv")}
    machine = Machine.of(
        device, ranks, devices_per_node=min(ranks, joined[first.device]), device_link=link,
        node_link=links[_NETWORK],
    )  # fmt: skip
    ways = []
    for precision in PRECISIONS[first.format]:
        jobs = [
            Job(
                workload=workload,
                configuration=Configuration(precision=precision),
                strategy=Strategy.from_degrees(ep=replicas, tp=ranks // replicas),
                batch=requests,
                prompt_tokens=int(row.input_tokens),
                output_tokens=int(row.output_tokens),
                rounds=rounds,
                profile=str(engine),
            )
            for row, requests, rounds in zip(
                group.itertuples(), runs.concurrency, runs.rounds, strict=True
            )
        ]
        calibration = _with_kernel(str(first.kernel), precision)
        steps = simulate(jobs, [machine] * len(jobs), calibration=calibration)
        steps.check_known()
        ways.append(EnginePasses.of(steps))
    times = request_times(runs, _fastest(ways), engine)
    # A request that comes while others are written for waits for half of the steps between looks.
    waited_steps = group.poll_steps / 2.0 + group.balance_steps
    polled_s = np.where(group.concurrency > 1.0, waited_steps, 0.0) * times.step_s
    writes_only = group["mode"] == "disagg"
    return pd.DataFrame(
        {
            "ttft_ms": np.where(
                group.rounds.isna(), np.nan, (times.first_token_s + polled_s) * 1e3
            ),
            "tpot_ms": np.where(writes_only, times.step_s, times.per_token_s) * 1e3,
            "step_ms": times.step_s * 1e3,
            "sums_ms": times.collective_s * 1e3,
        },
        index=group.index,
    )


def _fastest(ways: Sequence[EnginePasses]) -> EnginePasses:
    """Passes of which each takes the fastest of some ways.

    Kernels with weights and arithmetic in four bits are no slower than those with either alone.
    """
    step_s = np.stack([way.step_s for way in ways])
    chosen = step_s.argmin(axis=0)[np.newaxis]

    def of_step(name: str) -> np.ndarray:
        stacked = np.stack([np.broadcast_to(getattr(w, name), w.step_s.shape) for w in ways])
        return np.asarray(np.take_along_axis(stacked, chosen, axis=0)[0])

    return EnginePasses(
        prompt_s=np.min([way.prompt_s for way in ways], axis=0),
        step_s=of_step("step_s"),
        weights_s=of_step("weights_s"),
        collective_s=of_step("collective_s"),
    )


@cache
def _with_kernel(kernel: str, weights: str) -> Calibration:
    """Constants with the kernel that the benchmark chose for experts, before those by device."""
    calibration = builtin_calibration()
    if not kernel:
        return calibration
    told = {"weights": weights, "vendor": "NVIDIA", "codes": "", "kernel": kernel}
    kernels = [told, *calibration.constants["expert_kernels"]]
    return replace(calibration, constants={**calibration.constants, "expert_kernels": kernels})
