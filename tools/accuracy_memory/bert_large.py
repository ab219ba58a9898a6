"""BERT-large on one V100 in nine settings (Hugging Face documentation, transformers 4.18)."""

from __future__ import annotations

import csv
from pathlib import Path

from traced_models import traced

from accuracy_memory.published import Published, Row
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lifetimes
from paceline.prediction.memory.allocator import replay

_SEQUENCE_TOKENS = 512
_MIB = 2**20
#: Held by the context of the card before the first tensor, as the page itself prints.
_CONTEXT_BYTES = 1343 * _MIB
#: Optimizers as the page calls them.
_OPTIMIZERS = {"AdamW": "adamw", "Adafactor": "adafactor", "8-bit Adam (bnb)": "adamw-bnb-8bit"}
_NOTE = """\
Sequences of 512 tokens, read with `nvidia-smi`; attention without a fused kernel, plain optimizers,
a replay of the caching allocator, and the context of 1,343 MiB that the page prints. The page is of
March 2022, before PyTorch 1.11 was in use. Of that time are: gradients zeroed in place by default,
so that they stay through the forward pass (before 2.0), and softmax that keeps its input for the
backward pass (before 1.11: pytorch/pytorch issues 49600 and 64000), which is one more square of
scores per layer. Autocast's cache of narrow weights lives to the end of the forward pass, also with
checkpointing. 8-bit Adam keeps states of embeddings in 32 bits: the page asks for that change."""


def bert_large(truth: Path, cache_folder: Path) -> Published:
    """The ladder."""
    with (truth / "e2e" / "memory_misc.csv").open(encoding="utf-8") as file:
        published = list(csv.DictReader(file))
    mine = [row for row in published if row["model"].startswith("bert")]
    return Published(
        title="BERT-large on one V100 (Hugging Face documentation, transformers 4.18)",
        note=_NOTE,
        unit="GiB",
        rows=tuple(_row(row, cache_folder) for row in mine),
        skipped=(("Colossal-AI, Llama 2", len(published) - len(mine), "incomplete settings"),),
    )


def _row(row: dict[str, str], cache_folder: Path) -> Row:
    flags = row["compiler_flags"].split("; ")
    optimizer = _OPTIMIZERS[flags[0]]
    graph = traced(cache_folder, f"bert-large-{optimizer}", "bert-large", optimizer=optimizer)
    lived = lifetimes(graph, _configuration(row["precision"], flags))
    batch = int(row["batch_per_gpu"])
    reserved = replay(lived, batch=batch, seq=_SEQUENCE_TOKENS).reserved_bytes
    occupied = dict(item.split("=") for item in row["extra"].split(";"))["gpu_memory_occupied_mb"]
    return Row(
        case=f"{row['precision']}; {row['compiler_flags']}; batch {batch}",
        measured_bytes=float(occupied) * _MIB,
        predicted_bytes=reserved + _CONTEXT_BYTES,
    )


def _configuration(precision: str, flags: list[str]) -> Configuration:
    return Configuration(
        precision="fp16" if precision.startswith("fp16") else "fp32",
        attention="math",
        optimizer_kernel="plain",
        checkpointing="block" if "gradient checkpointing" in flags else "none",
        accumulates=True,
        libraries=("torch==1.10",),
    )
