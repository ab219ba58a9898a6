"""Megatron-Bridge's published pretraining: dense models under tensor, pipeline and data parallel.

Each row's strategy is costed as `paceline scale --strategy` costs it. NVIDIA's recipes
(Megatron-Bridge, scripts/performance/configs/llama) recompute nothing and hand activations to the
host where memory is short, so nothing is recomputed here and memory is not asked.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from accuracy_clusters.scored import rows_of
from paceline.app.scoring.names import UnresolvedRowError, resolve_job
from paceline.app.scoring.rows import Row
from paceline.app.scoring.workloads import WorkloadKey, cached_workload
from paceline.catalog import Link, Source, find_device, load_catalog
from paceline.errors import PacelineError
from paceline.parallel import Cluster, Strategy
from paceline.parallel.search import FoundStrategy
from paceline.parallel.stated import evaluate_stated
from paceline.trace.graph import Graph

SYSTEMS = Path(__file__).with_name("systems.csv")
_DEGREE = re.compile(r"\b(TP|PP|CP|VP|EP|FSDP)=(\d+)")
_LINK_LATENCY_S = 7e-7


class NotBuiltError(Exception):
    """A row that is not predicted; the message says why."""


def with_predictions(table: pd.DataFrame, cache_folder: Path | None) -> pd.DataFrame:
    """The rows with tokens per second, NaN where ``reason`` says why not.

    ``plain`` is what the tool says of the strategy. The recipes overlap what tensor ranks exchange
    with products, chunk by chunk (``CommOverlapConfig(tp_comm_overlap=True)``), which a strategy
    cannot state: in ``predicted`` all chunks but one are hidden.
    """
    columns: dict[str, list[object]] = {"plain": [], "predicted": [], "reason": []}
    for row, values in zip(rows_of(table), table.itertuples(), strict=True):
        try:
            found, tokens = _found(row, values, cache_folder)
        except (NotBuiltError, UnresolvedRowError, PacelineError) as error:
            entry = (np.nan, np.nan, str(error))
        else:
            hidden_s = found.tensor_s * (1.0 - 1.0 / found.strategy.size("tp"))
            entry = (tokens / found.step_s, tokens / (found.step_s - hidden_s), "")
        for name, value in zip(columns, entry, strict=True):
            columns[name].append(value)
    return table.assign(**columns)


def _found(row: Row, values: Any, cache_folder: Path | None) -> tuple[FoundStrategy, float]:
    """The row's strategy with its costs, and the tokens of a step."""
    strategy = _strategy(values)
    job = resolve_job(row)
    found = evaluate_stated(
        _graph(job.entry, cache_folder),
        replace(job.configuration, compiler="compiled", attention="flash"),
        _clusters()[values.gpu],
        strategy,
        seq=values.seq_len,
        global_batch=int(values.global_batch),
    )
    return found, float(values.global_batch * values.seq_len)


def _strategy(values: Any) -> Strategy:
    """What a row states, in the tool's notation."""
    degrees = _degrees(values)
    tp, pp, cp, ep, chunks = (degrees[name] for name in ("TP", "PP", "CP", "EP", "VP"))
    dp, left = divmod(values.n_gpus, tp * pp * cp * ep)
    if left:
        raise NotBuiltError("expert ranks that are tensor ranks of the layers between")
    count, left = divmod(int(values.global_batch), dp * ep * int(values.batch_per_gpu))
    if left:
        raise NotBuiltError("its global batch is no whole number of microbatches")
    axes = (("pp", pp), ("dp", dp), ("ep", ep), ("cp", cp), ("tp", tp))
    mesh = ".".join(f"{name}{size}" for name, size in axes if size > 1)
    how = "" if pp == 1 else f"@interleaved{chunks}" if chunks > 1 else "@1f1b"
    sharding = "" if dp * cp * ep == 1 else "+zero3" if degrees["FSDP"] else "+zero1"
    return Strategy.parse(f"{mesh}{how}/mb{count}{sharding}{'+sp' if tp > 1 else ''}")


def _degrees(values: Any) -> dict[str, int]:
    if values.compiler_flags != "pretrain":
        raise NotBuiltError("fine-tuning: SFT or LoRA and the packing of sequences are not stated")
    if pd.isna(values.precision) or values.precision.startswith("NVFP4"):
        raise NotBuiltError("NVFP4, or no precision stated")
    if "(" in values.parallelism:
        raise NotBuiltError("two recipes in one row")
    degrees = {name: int(size) for name, size in _DEGREE.findall(values.parallelism)}
    return {"TP": 1, "PP": 1, "CP": 1, "EP": 1, "VP": 1, "FSDP": 0} | degrees


@cache
def _clusters() -> dict[str, Cluster]:
    with SYSTEMS.open(encoding="utf-8") as lines:
        return {row["gpu"]: _cluster(row) for row in csv.DictReader(lines)}


def _cluster(row: dict[str, str]) -> Cluster:
    catalog = load_catalog()
    between = Link(
        name="network", scope="node", kind=row["node_kind"], latency_s=_LINK_LATENCY_S,
        bytes_per_s=float(row["node_bytes_per_s"]), measured_bus_bytes_per_s=None,
        reduces_in_switch=False, source=Source(text=row["source"]),
    )  # fmt: skip
    return Cluster(
        device=replace(find_device(catalog, row["device"]), memory_bytes=None),
        devices_per_node=int(row["devices_per_node"]),
        device_link=next(link for link in catalog.links if link.name == row["device_link"]),
        node_link=between,
    )


@cache
def _graph(entry: str, cache_folder: Path | None) -> Graph:
    key = WorkloadKey(entry=entry, task="train", image_size=None, optimizer=None)
    return cached_workload(key, cache_folder=cache_folder).passes[0].graph
