"""Activations of Megatron-LM from 22B to 1T (arXiv 2205.05198)."""

from __future__ import annotations

import csv
from pathlib import Path

from traced_models import traced

from accuracy_memory.published import Published, Row
from accuracy_memory.ranks import Job, rank_costs, rank_memory
from paceline.catalog.entities import Catalog
from paceline.catalog.load import load_catalog

_GIB = 2.0**30
_VOCABULARY = 51_200
_NOTE = """\
Activations per GPU with sequence parallelism and selective recomputation, in GiB, as the paper's
formula gives them for the layers of the first stage. Predicted are all activations that the fullest
rank keeps, with the mask and result of the embedding's dropout, so that they are somewhat more."""


def megatron(truth: Path, cache_folder: Path) -> Published:
    """Rows that state activations."""
    with (truth / "ops" / "megatron_seqpar_validation.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    known = [row for row in rows if row["activations_GiB_per_gpu"]]
    catalog = load_catalog()
    return Published(
        title="Megatron-LM, activations (arXiv 2205.05198)",
        note=_NOTE,
        unit="GiB",
        rows=tuple(_row(row, cache_folder, catalog) for row in known),
        skipped=(
            ("Megatron-LM, full recomputation", len(rows) - len(known), "no activations stated"),
        ),
    )


def _row(row: dict[str, str], cache_folder: Path, catalog: Catalog) -> Row:
    numbers = {
        "layers": int(row["layers"]), "hidden": int(row["hidden"]), "heads": int(row["heads"]),
        "vocab": _VOCABULARY, "positions": int(row["seqlen"]), "core_only": 1,
    }  # fmt: skip
    text = ",".join(f"{name}={value}" for name, value in numbers.items())
    graph = traced(
        cache_folder,
        f"megatron-core-{row['model']}",
        "megatron_model:build",
        environment={"MEGATRON_MODEL": text},
    )
    job = Job(
        tp=int(row["tp"]), pp=int(row["pp"]), dp=int(row["dp"]), tokens=int(row["seqlen"]),
        microbatch=float(row["micro_batch"]), chunks=int(row["interleave"]), precision="fp16",
        num_microbatches=int(row["global_batch"]) // int(row["dp"]) // int(row["micro_batch"]),
        checkpointing="block",
    )  # fmt: skip
    found = rank_memory(rank_costs(graph, job, catalog), job, catalog)
    return Row(
        case=f"{row['model']}; tp {row['tp']}, pp {row['pp']}, microbatch {row['micro_batch']}",
        measured_bytes=float(row["activations_GiB_per_gpu"]) * _GIB,
        predicted_bytes=float(found.kept_bytes[0]),
    )
