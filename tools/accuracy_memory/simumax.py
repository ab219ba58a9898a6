"""SimuMax's runs of Megatron-LM on eight B200."""

from __future__ import annotations

import csv
import json
import re
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from traced_models import traced

from accuracy_memory.published import Published, Row, model_numbers
from accuracy_memory.ranks import Job, rank_costs, rank_memory, with_saved, with_transient
from paceline.catalog.entities import Catalog
from paceline.catalog.load import load_catalog
from paceline.prediction.memory.peak import process_memory

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
Engine 2.11 and Megatron-LM keep is in the traced model (`megatron_te_model.py`) and added by
three rules from their code: each distinct shape of weights of a layer has one BF16 dummy gradient
for good (`get_dummy_wgrad`, TE 2.3 on), the output layer has one while it runs backward, and
sequence parallelism gathers the output layer's input and its gradient. With context parallelism a
rank holds its share of the tokens, shards its state over those ranks too, and keeps attention's
result twice, before and after the exchange (TE 2.8 on). The same run with more microbatches has the
same peak, and is published again."""


_RESERVED_NOTE = """\
Largest `max_memory_reserved` over the ranks of the same runs, in GiB: predicted *allocated*, with
the share that the caching allocator adds in the median (`prediction/data/process_memory.csv`, from
replays of other models)."""


def simumax(truth: Path, cache_folder: Path) -> Published:
    """Dense models; those with context parallelism too."""
    known, num_others, allocated = _predicted(truth, cache_folder)
    return Published(
        title="SimuMax: Megatron-LM on eight B200 (release 1.2)",
        note=_NOTE,
        unit="GiB",
        rows=_rows(known, "alloc", allocated),
        skipped=(
            ("SimuMax, DeepSeek-V2 and V3", num_others,
             "the buffers of Megatron's token dispatcher and of latent attention are not built"),
        ),
    )  # fmt: skip


def simumax_reserved(truth: Path, cache_folder: Path) -> Published:
    """The same runs, segments of the caching allocator."""
    known, _, allocated = _predicted(truth, cache_folder)
    added = process_memory("cuda")
    reserved = np.array(allocated) * (1 + added.fragmentation_mid_frac) + added.slack_mid_bytes
    return Published(
        title="SimuMax: the same, reserved",
        note=_RESERVED_NOTE,
        unit="GiB",
        rows=_rows(known, "reserved", tuple(reserved.tolist())),
    )


def _rows(
    known: tuple[dict[str, str], ...], figure: str, predicted: tuple[float, ...]
) -> tuple[Row, ...]:
    return tuple(
        Row(
            case=row["case"],
            measured_bytes=float(row[f"measured_peak_{figure}_gib"]) * _GIB,
            predicted_bytes=num_bytes,
        )
        for row, num_bytes in zip(known, predicted, strict=True)
    )


@cache
def _predicted(
    truth: Path, cache_folder: Path
) -> tuple[tuple[dict[str, str], ...], int, tuple[float, ...]]:
    """Rows of dense models, how many others there are, and allocated bytes of the fullest rank."""
    with (truth / "ops" / "simumax_b200_training.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    known = tuple(row for row in rows if row["model"] in model_numbers()["simumax"])
    catalog = load_catalog()
    allocated = tuple(_allocated_bytes(row, cache_folder, catalog) for row in known)
    return known, len(rows) - len(known), allocated


def _allocated_bytes(row: dict[str, str], cache_folder: Path, catalog: Catalog) -> float:
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
    return allocated + _dummy_gradient_bytes(numbers) / tp


def _of_output_layer(numbers: dict[str, int], tp: int, hidden_bytes: float) -> float:
    """Its dummy gradient and, with several tensor ranks, what is gathered."""
    dummy = _BF16_BYTES * numbers["hidden"] * numbers["vocab"] / tp
    return dummy + (_GATHERED_COPIES * hidden_bytes if tp > 1 else 0.0)


def _dummy_gradient_bytes(numbers: dict[str, int]) -> float:
    """One BF16 copy of the weights of a layer."""
    hidden, heads, groups = numbers["hidden"], numbers["heads"], numbers["groups"]
    qkv = hidden * (heads + 2 * groups) * (hidden // heads)
    return _BF16_BYTES * (qkv + hidden * hidden + 3 * hidden * numbers["ffn"])
