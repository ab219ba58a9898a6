"""MLPerf's Llama 2 70B with adapters, whose logs state enough to tell how it is split.

Global batch and accumulation give the replicas, and devices beside them share the model: up to four
as tensor ranks, further ones as context ranks, as the names of NVIDIA's configurations say
(mlcommons/training_results_v4.0, NVIDIA/benchmarks/llama2_70b_lora/implementations/nemo:
``config_DGXH100_1x8x4xtp4pp1cp1.sh``, ``config_DGXH200_1x8x2xtp2pp1cp1.sh``,
``config_DGXH100_128x8x1xtp4pp1cp2.sh``; other submitters ran the same). The rest from there too:
FP8, 8,192 tokens a sequence, rank 16 on the products of attention, exchange between tensor ranks
overlapped.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from accuracy_clusters.bridge import NotBuiltError, clusters, graph_of, hidden_s
from paceline.errors import PacelineError
from paceline.parallel import Strategy
from paceline.parallel.stated import evaluate_stated
from paceline.trace.costs import Configuration

MODEL = "llama2_70b_lora"
_ENTRY, _SEQ, _MOST_TENSOR_RANKS = "hf:llama-2-70b", 8192, 4
_CONFIGURATION = Configuration(
    precision="fp8", compiler="compiled", attention="vendor", training_format="pure",
    optimizer_kernel="fused", lora_rank=16,
    lora_modules=("*q_proj", "*k_proj", "*v_proj", "*o_proj"),
)  # fmt: skip


def with_predictions(rows: pd.DataFrame, cache_folder: Path | None) -> pd.DataFrame:
    """The rows with sequences per second, NaN where ``reason`` says why not."""
    found = [_predicted(row, cache_folder) for row in rows.itertuples()]
    return rows.assign(
        predicted=[value for value, _ in found],
        reason=[reason for _, reason in found],
        device=[getattr(clusters().get(gpu), "name", gpu) for gpu in rows.gpu],
    )


def _predicted(row: Any, cache_folder: Path | None) -> tuple[float, str]:
    try:
        strategy = strategy_of(row)
        cluster = clusters().get(row.gpu)
        if cluster is None:
            raise NotBuiltError(f"{row.gpu}: its submissions state no precision")
        found = evaluate_stated(
            graph_of(_ENTRY, cache_folder),
            _CONFIGURATION,
            replace(cluster, devices_per_node=row.n_gpus // int(row.n_nodes or 1)),
            strategy,
            seq=_SEQ,
            global_batch=int(row.global_batch),
            recipe="half-weights",
        )
    except (NotBuiltError, PacelineError) as error:
        return np.nan, str(error)
    return row.global_batch / (found.step_s - hidden_s(found)), ""


def strategy_of(row: Any) -> Strategy:
    """How a row is split, from its batch and its devices."""
    replicas, left = divmod(int(row.global_batch), int(row.grad_accum))
    sharing, unused = divmod(int(row.n_gpus), replicas)
    if left or unused:
        raise NotBuiltError("its batch and its devices give no whole number of replicas")
    tensor = min(sharing, _MOST_TENSOR_RANKS)
    axes = (("dp", replicas), ("cp", sharing // tensor), ("tp", tensor))
    mesh = ".".join(f"{name}{size}" for name, size in axes if size > 1)
    return Strategy.parse(f"{mesh}/mb{int(row.grad_accum)}{'+sp' if tensor > 1 else ''}")
