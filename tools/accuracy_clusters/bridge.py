"""Megatron-Bridge's published training: every kind of parallel, of models with and without experts.

Each row's strategy is costed as `paceline scale --strategy` costs it. NVIDIA's recipes
(Megatron-Bridge, scripts/performance/configs) recompute next to nothing and hand activations to
the host where memory is short, so nothing is recomputed here and memory is not asked.
``bridge_recipes.csv`` says how tokens reach their experts in each recipe.
"""

from __future__ import annotations

import csv
import math
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
RECIPES = Path(__file__).with_name("bridge_recipes.csv")
_CONDITIONS = ("model", "gpu", "precision", "parallelism", "release")
_DEGREE = re.compile(r"\b(TP|PP|CP|VP|EP|FSDP)=(\d+)")
#: Of a row with two recipes the second stands in brackets; its throughput is not in the table.
_SECOND = re.compile(r" ?\([^)]*\)")
#: Release 25.09 states no precision. Its page prints FP8 and, in brackets, FP8 of other blocks.
_UNSTATED = "FP8"
_LINK_LATENCY_S = 7e-7


class NotBuiltError(Exception):
    """A row that is not predicted; the message says why."""


def with_predictions(table: pd.DataFrame, cache_folder: Path | None) -> pd.DataFrame:
    """The rows with tokens per second, NaN where ``reason`` says why not.

    ``plain`` is what the tool says of the strategy on a cluster that handles tokens as the recipe
    does. Recipes of dense models overlap what tensor ranks exchange with products, chunk by chunk
    (``CommOverlapConfig(tp_comm_overlap=True)``), which a strategy cannot state: in ``predicted``
    all chunks but one are hidden.
    """
    table = stated(table)
    columns: dict[str, list[object]] = {"plain": [], "predicted": [], "reason": []}
    for row, values in zip(rows_of(table), table.itertuples(), strict=True):
        try:
            found, tokens = _found(row, values, cache_folder)
        except (NotBuiltError, UnresolvedRowError, PacelineError) as error:
            entry = (np.nan, np.nan, str(error))
        else:
            seen_s = found.step_s - hidden_s(found)
            entry = (tokens / found.step_s, tokens / seen_s, "")
        for name, value in zip(columns, entry, strict=True):
            columns[name].append(value)
    return table.assign(**columns)


def hidden_s(found: FoundStrategy) -> float:
    """What tensor ranks exchange behind products; those of models with experts hide none."""
    degree = found.strategy.size("tp") if found.strategy.size("ep") == 1 else 1
    return found.tensor_s * (1.0 - 1.0 / degree)


def stated(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with what the recipes of their release say, and names without remarks."""
    release = table.notes.str.extract(r"^([\d.]+)")[0].fillna("")
    table = table.assign(
        release=release,
        model=table.model.str.replace(_SECOND, "", regex=True),
        precision=table.precision.where(table.precision.notna(), _UNSTATED),
        parallelism=table.parallelism.str.replace(_SECOND, "", regex=True),
    )
    recipes = [_recipe(row) for row in table.itertuples()]
    return table.assign(
        sends_once=[recipe["sends_once"] == "yes" for recipe in recipes],
        hides_exchange=[recipe["hides_exchange"] == "yes" for recipe in recipes],
    )


def _recipe(row: Any) -> dict[str, str]:
    """The first line that fits; dense models have none and exchange no tokens."""
    for line in _recipes():
        if all(re.fullmatch(line[name] or ".*", getattr(row, name)) for name in _CONDITIONS):
            return line
    return {"sends_once": "no", "hides_exchange": "no"}


@cache
def _recipes() -> tuple[dict[str, str], ...]:
    with RECIPES.open(encoding="utf-8") as lines:
        return tuple(csv.DictReader(lines))


def _found(row: Row, values: Any, cache_folder: Path | None) -> tuple[FoundStrategy, float]:
    """The row's strategy with its costs, and the tokens of a step."""
    strategy = _strategy(values)
    job = resolve_job(row)
    found = evaluate_stated(
        graph_of(job.entry, cache_folder),
        replace(job.configuration, compiler="compiled", attention="vendor", **_adapters(values)),
        replace(
            clusters()[values.gpu],
            sends_tokens_once=values.sends_once,
            hides_exchange=values.hides_exchange,
            keeps_experts_whole=True,
        ),
        strategy,
        seq=values.seq_len,
        global_batch=int(values.global_batch),
        recipe="half-weights",
    )
    return found, float(values.global_batch * values.seq_len)


def _adapters(values: Any) -> dict[str, Any]:
    """Rows of LoRA put adapters of rank 16 on the products of attention."""
    if "LoRA Performance" not in values.notes:
        return {}
    return {"lora_rank": 16, "lora_modules": ("*.q", "*.k", "*.v", "*.o")}


def _strategy(values: Any) -> Strategy:
    """What a row states, in the tool's notation.

    Tensor ranks are expert ranks too (``expert_tensor_parallel_size=1``); the tool counts expert
    ranks beside tensor ranks.
    """
    degrees = _degrees(values)
    tp, pp, cp, ep, chunks = (degrees[name] for name in ("TP", "PP", "CP", "EP", "VP"))
    ep, left = divmod(ep, tp) if ep > 1 else (ep, 0)
    dp, unused = divmod(values.n_gpus, tp * pp * cp * max(ep, 1))
    if left or unused:
        raise NotBuiltError("expert ranks that the other degrees do not divide")
    count, left = divmod(int(values.global_batch), dp * ep * int(values.batch_per_gpu))
    if left:
        raise NotBuiltError("its global batch is no whole number of microbatches")
    axes = (("pp", pp), ("dp", dp), ("ep", ep), ("cp", cp), ("tp", tp))
    mesh = ".".join(f"{name}{size}" for name, size in axes if size > 1)
    how = "" if pp == 1 else f"@interleaved{chunks}" if chunks > 1 else "@1f1b"
    is_alone = dp * cp * ep == 1 or _adapters(values)
    sharding = "" if is_alone else "+zero3" if degrees["FSDP"] else "+zero1"
    return Strategy.parse(f"{mesh}{how}/mb{count}{sharding}{'+sp' if tp > 1 else ''}")


def _degrees(values: Any) -> dict[str, int]:
    if values.precision.startswith("NVFP4"):
        raise NotBuiltError("NVFP4: no such precision in the tool")
    degrees = {name: int(size) for name, size in _DEGREE.findall(values.parallelism)}
    return {"TP": 1, "PP": 1, "CP": 1, "EP": 1, "VP": 1, "FSDP": 0} | degrees


@cache
def clusters() -> dict[str, Cluster]:
    """Published systems by the name of their GPU."""
    with SYSTEMS.open(encoding="utf-8") as lines:
        return {row["gpu"]: _cluster(row) for row in csv.DictReader(lines)}


def _cluster(row: dict[str, str]) -> Cluster:
    """Of devices without end of memory: what was published did fit."""
    catalog = load_catalog()
    between = Link(
        name="network", scope="node", kind=row["node_kind"], latency_s=_LINK_LATENCY_S,
        bytes_per_s=float(row["node_bytes_per_s"]), measured_bus_bytes_per_s=None,
        reduces_in_switch=False, source=Source(text=row["source"]),
    )  # fmt: skip
    return Cluster(
        device=find_device(catalog, row["device"]).with_memory(math.inf),
        devices_per_node=int(row["devices_per_node"]),
        device_link=next(link for link in catalog.links if link.name == row["device_link"]),
        node_link=between,
    )


@cache
def graph_of(entry: str, cache_folder: Path | None) -> Graph:
    """The training step of a model."""
    key = WorkloadKey(entry=entry, task="train", image_size=None, optimizer=None)
    return cached_workload(key, cache_folder=cache_folder).passes[0].graph
