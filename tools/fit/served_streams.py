"""Kernel times of small elementwise ops inside served language models.

Tables timed between two events cannot see kernels below some 24 µs. These two were taken from
profiler traces: residual additions and activations from a few kilobytes on.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from paceline.prediction.kernels.groups import PLAIN_COLUMNS

#: Name in the table → name in ``device_names.csv``.
_VIDUR = {"a100": "vidur_a100", "a40": "vidur_a40", "h100": "vidur_h100"}
_LAYERS = {"RTX4090": "layers_rtx4090", "RTXPRO6000": "layers_rtxpro6000"}
#: Llama 3.1 8B, whose layers were timed: width between the two products.
_FFN = {"meta-llama/Llama-3.1-8B": 14336}
_ELEMENT_BYTES = 2


def served_streams(folder: Path, facts: pd.DataFrame) -> pd.DataFrame:
    """Elementwise kernels of 2-byte elements, with the columns of `truth.neusight_streams`."""
    parts = [_vidur_additions(folder), _vidur_activations(folder), _layer_activations(folder)]
    rows = pd.concat(parts, ignore_index=True)
    rows = rows.groupby(["source_name", "op", "elements", "operands"], as_index=False).median()
    rows = rows[rows.source_name.isin(facts.index)].join(facts, on="source_name")
    return rows.assign(
        rows=rows.elements / PLAIN_COLUMNS, columns=float(PLAIN_COLUMNS), is_norm=0.0,
        is_softmax=0.0, is_backward=0.0, flop=0.0, split="train", peak=rows.peak_fp32,
        moved_bytes=_ELEMENT_BYTES * rows.elements * (rows.operands + 1),
    )  # fmt: skip


def _vidur_additions(folder: Path) -> pd.DataFrame:
    d = _vidur(folder, "add")
    return _streams(d, d.n_embd * d.num_tokens, operands=2.0)


def _vidur_activations(folder: Path) -> pd.DataFrame:
    """Activations that are one plain kernel: those of gated layers are not."""
    d = _vidur(folder, "mlp_act")
    d = d[~d.use_gated_mlp]
    width = d.n_expanded_embd / d.num_tensor_parallel_workers
    return _streams(d, width * d.num_tokens, operands=1.0)


def _vidur(folder: Path, op: str) -> pd.DataFrame:
    d = pd.read_csv(folder / "ops" / "vidur_mlp.csv.xz")
    d = d[(d.op == op) & (d.min_ms > 0)]
    return d.assign(source_name=d.gpu.map(_VIDUR), time_s=d.min_ms * 1e-3)


def _layer_activations(folder: Path) -> pd.DataFrame:
    d = pd.read_csv(folder / "ops" / "llmservingsim_layers.csv.xz", low_memory=False)
    d = d[(d.layer == "act_fn") & d.model.isin(_FFN) & d.gpu.isin(_LAYERS) & (d.time_us > 0)]
    d = d.assign(source_name=d.gpu.map(_LAYERS), op="act_fn", time_s=d.time_us * 1e-6)
    return _streams(d, d.model.map(_FFN) / d.tp * d.tokens, operands=2.0)


def _streams(d: pd.DataFrame, elements: pd.Series, *, operands: float) -> pd.DataFrame:
    return pd.DataFrame({
        "source_name": d.source_name, "op": d.op, "elements": np.asarray(elements, float),
        "operands": operands, "time_s": d.time_s,
    })  # fmt: skip
