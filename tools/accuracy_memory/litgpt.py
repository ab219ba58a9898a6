"""LitGPT's fine-tuning on one A100, with and without quantised weights."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import cast

from traced_models import traced

from accuracy_memory.published import Published, Row, model_numbers
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lifetimes
from paceline.prediction.memory.allocator import replay

_GB = 1e9
#: The trace itself is BF16; nothing is left for a precision to narrow.
_AS_TRACED = Configuration(precision="fp32")
_NOTE = """\
`max_memory_allocated` in GB (1e9 bytes) of fine-tuning in BF16 on one A100 of 40 GB. The first
batch holds the longest example of Alpaca, whose length the source states per tokenizer: 1,044
tokens (phi-1.5), 1,034 (StableLM), 1,304 (Llama 2). The model is written down again from LitGPT's
code (`litgpt_model.py`): adapters, norms in FP32, logits in chunks of 128 tokens that
Lightning Fabric converts to FP32 (`HalfPrecision.convert_output`). The number of trained parameters
is the published one in every row."""


_QUANTISED_NOTE = """\
The same with frozen weights in 4 bits (`bnb.nf4-dq`), which is beyond what is asked. bitsandbytes
0.41 keeps the input of each quantised layer for the backward pass, which does not need it
(`MatMul4Bit.forward`: `ctx.tensors = (A, B)`, later `(None, B)`): without that these rows are 12 to
20 % under. That was looked up after they had been missed; what StableLM needs beside is not known.
"""


def litgpt_quantised(truth: Path, cache_folder: Path) -> Published:
    """The same with weights in 4 bits."""
    rows = [row for row in _training_rows(truth) if "nf4" in row["compiler_flags"]]
    rows = [row for row in rows if row["n_gpus"] == "1" and row["peak_mem_gb"]]
    known = [row for row in rows if row["compiler_flags"].endswith("nf4-dq")]
    settings = Configuration(
        precision="fp32", frozen_weights="int4", libraries=("bitsandbytes==0.41",)
    )
    return Published(
        title="LitGPT, the same with weights in 4 bits",
        note=_QUANTISED_NOTE.strip(),
        unit="GB",
        rows=tuple(_row(row, cache_folder, settings) for row in known),
        is_asked=False,
        skipped=(
            ("LitGPT, 4 bits with plain scales", len(rows) - len(known), "no such format here"),
        ),
    )


def _training_rows(truth: Path) -> list[dict[str, str]]:
    with (truth / "e2e" / "litgpt.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["task"] == "train"]


def litgpt(truth: Path, cache_folder: Path) -> Published:
    """LoRA, adapter and adapter v2."""
    rows = _training_rows(truth)
    plain = [row for row in rows if row["compiler_flags"].endswith("quant None")]
    known = [r for r in plain if r["n_gpus"] == "1" and r["model"] in model_numbers()["litgpt"]]
    other = [r for r in plain if r["n_gpus"] == "1" and r not in known]
    return Published(
        title="LitGPT on one A100 (resource tables, October 2023)",
        note=_NOTE,
        unit="GB",
        rows=tuple(_row(row, cache_folder, _AS_TRACED) for row in known),
        skipped=(
            ("LitGPT, several devices", sum(r["n_gpus"] != "1" for r in plain),
             "FSDP with frozen parameters: what it keeps unsharded is not modelled"),
            ("LitGPT, Falcon 40B", len(other), "one row that ran out of memory; no model here"),
        ),
    )  # fmt: skip


def _numbers(name: str) -> dict[str, object]:
    """Sizes of a model, and the longest sequence that it sees."""
    known = cast(dict[str, object], model_numbers()["litgpt"][name])
    path = Path(__file__).parents[1] / "networks" / "builders" / "litgpt_models.json"
    sizes = json.loads(path.read_text(encoding="utf-8"))["models"][known["model"]]
    return {**sizes, "seq": known["seq"]}


def _row(row: dict[str, str], cache_folder: Path, configuration: Configuration) -> Row:
    method = row["compiler_flags"].split(";")[0].lower().replace(" ", "-")
    numbers = _numbers(row["model"])
    graph = traced(
        cache_folder,
        f"litgpt-{row['model']}-{method}".replace(" ", "-").lower(),
        "litgpt_model:build",
        optimizer="adamw",
        environment={"TRACED_MODEL": json.dumps({**numbers, "method": method})},
    )
    lived = lifetimes(graph, configuration)
    measured = row["peak_mem_gb"]
    return Row(
        case=f"{row['model']}; {row['compiler_flags'].split(';')[0]}; batch {row['batch_per_gpu']}",
        measured_bytes=float(measured) * _GB if measured else None,
        predicted_bytes=replay(lived, batch=float(row["batch_per_gpu"])).allocated_bytes,
        capacity_bytes=float(row["gpu_mem_gb"]) * 2**30,
    )
