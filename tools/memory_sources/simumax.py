"""SimuMax's runs of Megatron-LM on eight B200."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import cast

from memory_sources.published import Published, Row, model_numbers, traced
from memory_sources.ranks import Job, rank_costs, rank_memory, with_saved, with_transient
from paceline.catalog import Catalog, load_catalog

_GIB = 2.0**30
_NUM_DEVICES = 8
_BF16_BYTES = 2.0
_TOKENS = 4096
#: Full-length copies that sequence parallelism gathers around the output layer: its input in
#: Megatron's global buffer, and the gradient of it.
_GATHERED_COPIES = 2
_NOTE = """\
Largest `max_memory_allocated` over the ranks, in GiB; one sequence of 4,096 tokens per microbatch,
distributed optimizer, sequence parallelism, FP32 gradients, no recomputation. Hyperparameters are
those of the public launcher (the 405B model has 16 query groups there, not 8). What Transformer
Engine 2.11 and Megatron-LM keep is in the traced model (`tools/megatron_te_model.py`) and added by
three rules from their code: each distinct shape of weights of a layer has one BF16 dummy gradient
for good (`get_dummy_wgrad`, TE 2.3 on), the output layer has one while it runs backward, and
sequence parallelism gathers the output layer's input and its gradient. With context parallelism a
rank holds its share of the tokens, shards its state over those ranks too, and keeps attention's
result twice, before and after the exchange (TE 2.8 on). The same run with more microbatches has the
same peak, and is published again."""


def simumax(truth: Path, cache_folder: Path) -> Published:
    """Dense models; those with context parallelism too."""
    with (truth / "ops" / "simumax_b200_training.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    known = [row for row in rows if row["model"] in model_numbers()["simumax"]]
    catalog = load_catalog()
    return Published(
        title="SimuMax: Megatron-LM on eight B200 (release 1.2)",
        note=_NOTE,
        unit="GiB",
        rows=tuple(_row(row, cache_folder, catalog) for row in known),
        skipped=(
            ("SimuMax, DeepSeek-V2 and V3", len(rows) - len(known),
             "the buffers of Megatron's token dispatcher and of latent attention are not built"),
        ),
    )  # fmt: skip


def _row(row: dict[str, str], cache_folder: Path, catalog: Catalog) -> Row:
    numbers = cast(dict[str, int], model_numbers()["simumax"][row["model"]])
    layers = int(row["layer_num"])
    graph = traced(
        cache_folder,
        f"te-{row['model']}-{layers}",
        "megatron_te_model:build",
        environment={"TRACED_MODEL": json.dumps({"layers": layers, **numbers})},
    )
    degrees = {name: int(value) for name, value in re.findall("([a-z]+)([0-9]+)", row["parallel"])}
    tp, pp, cp = degrees["tp"], degrees["pp"], degrees.get("cp", 1)
    length = re.search("seq([0-9]+)", row["case"])
    tokens = (int(length.group(1)) if length else _TOKENS) // cp
    job = Job(
        tp=tp, pp=pp, dp=_NUM_DEVICES // tp // pp, tokens=tokens, microbatch=1.0,
        num_microbatches=int(row["mbc"]),
    )  # fmt: skip
    costs = rank_costs(graph, job, catalog)
    hidden_bytes = _BF16_BYTES * numbers["hidden"] * tokens
    costs = with_transient(costs, "head", _of_output_layer(numbers, tp, hidden_bytes))
    if cp > 1:
        costs = with_saved(costs, "layers", hidden_bytes / tp)
    allocated = float(rank_memory(costs, job, catalog).allocated_bytes[0])
    return Row(
        case=row["case"],
        measured_bytes=float(row["measured_peak_alloc_gib"]) * _GIB,
        predicted_bytes=allocated + _dummy_gradient_bytes(numbers) / tp,
    )


def _of_output_layer(numbers: dict[str, int], tp: int, hidden_bytes: float) -> float:
    """Its dummy gradient and, with several tensor ranks, what is gathered."""
    dummy = _BF16_BYTES * numbers["hidden"] * numbers["vocab"] / tp
    return dummy + (_GATHERED_COPIES * hidden_bytes if tp > 1 else 0.0)


def _dummy_gradient_bytes(numbers: dict[str, int]) -> float:
    """One BF16 copy of the weights of a layer."""
    hidden, heads, groups = numbers["hidden"], numbers["heads"], numbers["groups"]
    qkv = hidden * (heads + 2 * groups) * (hidden // heads)
    return _BF16_BYTES * (qkv + hidden * hidden + 3 * hidden * numbers["ffn"])
