"""Published operator timings as flat rows, joined to the devices of the catalogue."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from paceline.catalog.entities import Device
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.kernels.groups import PLAIN_COLUMNS
from paceline.prediction.kernels.power import ClockConstants, clock_frac

NAMES = Path(__file__).parent / "device_names.csv"

#: Rows of a device that ran throttled while its other split did not (see the truth's README).
_THROTTLED = ("Tesla P4", "train")
_BINARY = ("add", "mul", "div", "pow")
#: Streams know bandwidth and cache alone, so that they learn from every vendor's boards. AMD's
#: products run on matrix units that FP32 has nowhere else.
_STREAMING_VENDORS = ("nvidia", "amd")


def device_facts(devices: tuple[Device, ...]) -> pd.DataFrame:
    """Facts that features need, indexed by the name a source uses for the device."""
    by_name = {d.name: d for d in devices}
    with NAMES.open(encoding="utf-8", newline="") as file:
        pairs = [(row["source_name"], row["device"]) for row in csv.DictReader(file)]
    rows = [_facts(source, by_name[name]) for source, name in pairs]
    return pd.DataFrame(rows).set_index("source_name")


def _facts(source: str, d: Device) -> dict[str, object]:
    return {
        "source_name": source, "device": d.name, "family": d.family,
        "architecture": d.architecture, "num_sms": d.num_sms, "l2_bytes": d.l2_bytes,
        "memory_bytes_per_s": d.memory_bytes_per_s, "tdp_w": d.tdp_w, "year": d.year,
        "clock_hz": d.boost_clock_hz, "compute_capability": d.compute_capability,
        **{f"peak_{key}": value for key, value in d.peak_flop_per_s.items()},
    }  # fmt: skip


def neusight_products(folder: Path, facts: pd.DataFrame) -> pd.DataFrame:
    """FP32 matrix products: columns batch, m, n, k, flop, moved_bytes, time_s and device facts."""
    d = _neusight(folder)
    d = d[d.op.isin(["linear", "bmm"])]
    d = d[~((d.device == _THROTTLED[0]) & (d.split == _THROTTLED[1]))]
    linear = (d.op == "linear").to_numpy()
    batch, m = d.B.to_numpy(float), d.M.to_numpy(float)
    # A linear layer shares its weight over the batch: one product with batch x m rows.
    out = pd.DataFrame({
        "batch": np.where(linear, 1.0, batch), "m": np.where(linear, batch * m, m),
        "n": d.K.to_numpy(float), "k": d.N.to_numpy(float), "time_s": d.latency_ms * 1e-3,
        "source_name": d.device, "split": d.split, "op": d.op, "element_bytes": 4.0,
    })  # fmt: skip
    return sustained(_with_work(out.join(facts, on="source_name"), "peak_fp32"))


def aic_products(
    folder: Path, facts: pd.DataFrame, dtypes: dict[str, tuple[str, float]]
) -> pd.DataFrame:
    """Narrow matrix products of aiconfigurator, without the copied B300 table."""
    d = pd.read_csv(folder / "ops" / "aic_gemm.csv.xz")
    d = d[d.dtype.isin(dtypes) & d.system.isin(facts.index) & (d.latency_ms > 0)]
    d = d[~((d.system == "b300_sxm") & (d.framework == "sglang"))]
    parts = []
    for dtype, (peak, element_bytes) in dtypes.items():
        g = d[d.dtype == dtype]
        out = pd.DataFrame({
            "batch": 1.0, "m": g.m.astype(float), "n": g.n.astype(float), "k": g.k.astype(float),
            "time_s": g.latency_ms * 1e-3, "source_name": g.system, "split": "train",
            "op": dtype, "framework": g.framework, "element_bytes": element_bytes,
        })  # fmt: skip
        parts.append(_with_work(out.join(facts, on="source_name"), peak))
    return pd.concat(parts, ignore_index=True)


def _with_work(rows: pd.DataFrame, peak: str) -> pd.DataFrame:
    b, m, n, k = (rows[c] for c in ("batch", "m", "n", "k"))
    out_bytes = np.maximum(rows.element_bytes, 2.0)
    moved = b * ((m * k + k * n) * rows.element_bytes + m * n * out_bytes)
    return rows.assign(flop=2 * b * m * n * k, moved_bytes=moved, peak=rows[peak], clock_frac=1.0)


def neusight_streams(folder: Path, facts: pd.DataFrame) -> pd.DataFrame:
    """FP32 elementwise, softmax and layer norm: rows, columns, operands and flags."""
    d = _neusight(folder, _STREAMING_VENDORS)
    d = d[~d.op.isin(["linear", "bmm", "conv"])]
    norm, softmax = (d.op == "ln").to_numpy(), (d.op == "softmax").to_numpy()
    operands = np.where(d.op.isin(_BINARY), 2.0, 1.0)
    elements = d.B.to_numpy(float) * d.H.to_numpy(float)
    columns = np.where(norm | softmax, d.H.to_numpy(float), PLAIN_COLUMNS)
    rows = np.maximum(elements / columns, 1.0)
    out = pd.DataFrame({
        "rows": rows, "columns": columns, "operands": operands,
        "is_norm": norm.astype(float), "is_softmax": softmax.astype(float), "is_backward": 0.0,
        "flop": 0.0, "moved_bytes": 4 * elements * (operands + 1), "time_s": d.latency_ms * 1e-3,
        "source_name": d.device, "split": d.split, "op": d.op,
    })  # fmt: skip
    joined = out.join(facts, on="source_name")
    return joined.assign(peak=joined.peak_fp32)


def neusight_convolutions(folder: Path, facts: pd.DataFrame) -> pd.DataFrame:
    """FP32 3×3 convolutions, channels first."""
    d = _neusight(folder)
    d = d[d.op == "conv"]
    side = np.floor((d.conv_hw + 2 * d.conv_pad - d.conv_ks) / d.conv_stride) + 1
    out = pd.DataFrame({
        "n": d.B, "c": d.conv_cin, "h": d.conv_hw, "w": d.conv_hw, "k": d.conv_cout,
        "r": d.conv_ks, "s": d.conv_ks, "out_h": side, "out_w": side, "groups": 1.0,
        "time_s": d.latency_ms * 1e-3, "source_name": d.device, "split": d.split, "op": "conv",
    }).astype({"n": float})  # fmt: skip
    area = out.r * out.s * out.c * out.k
    rows = out.join(facts, on="source_name")
    return sustained(rows.assign(
        flop=2 * out.n * out.out_h * out.out_w * area,
        moved_bytes=4 * (out.n * (out.c * out.h * out.w + out.k * out.out_h * out.out_w) + area),
        peak=rows.peak_fp32,
    ))  # fmt: skip


def sustained(rows: pd.DataFrame) -> pd.DataFrame:
    """Vector peaks at the clock that the power limit leaves, by the calibration's law."""
    facts = builtin_calibration().constants["clock"]
    law = ClockConstants(**{name: facts[name] for name in ClockConstants.__slots__})
    frac = clock_frac(rows.tdp_w, rows.peak_fp32, law)
    return rows.assign(peak=rows.peak * frac, clock_frac=frac)


def aic_attention(folder: Path, facts: pd.DataFrame) -> pd.DataFrame:
    """BF16 attention, prefill and decode, without sliding windows."""
    parts = []
    for name, is_decode in (("context", False), ("generation", True)):
        d = pd.read_csv(folder / "ops" / f"aic_attention_{name}.csv.xz")
        keep = (d.kv_dtype == "bfloat16") & (d.window.fillna(0) == 0) & (d.latency_ms > 0)
        keep &= d.system.isin(facts.index)
        keep &= d.attn_dtype.fillna("bfloat16") == "bfloat16"
        d = d[keep]
        q_len = np.ones(len(d)) if is_decode else d.isl.to_numpy(float)
        kv_len = (d.isl + d.step).to_numpy(float) if is_decode else q_len
        parts.append(_attention_rows(d, q_len, kv_len, 0.0 if is_decode else 1.0))
    rows = pd.concat(parts, ignore_index=True).join(facts, on="source_name")
    return rows.assign(peak=rows.peak_bf16)


def _attention_rows(d: pd.DataFrame, q: np.ndarray, kv: np.ndarray, causal: float) -> pd.DataFrame:
    batch, heads, size = (d[c].to_numpy(float) for c in ("batch", "heads", "head_dim"))
    kv_heads = np.where(d.kv_heads > 0, d.kv_heads, d.heads).astype(float)
    flop = 4 * batch * heads * q * kv * size * np.where(causal > 0, 0.5, 1.0)
    moved = 2 * batch * size * (2 * heads * q + 2 * kv_heads * kv)
    return pd.DataFrame({
        "batch": batch, "q_heads": heads, "kv_heads": kv_heads, "q_len": q, "kv_len": kv,
        "head_size": size, "is_causal": causal, "flop": flop, "moved_bytes": moved,
        "time_s": d.latency_ms.to_numpy() * 1e-3, "source_name": d.system.to_numpy(),
        "split": "train", "op": "prefill" if causal else "decode",
    })  # fmt: skip


def _neusight(folder: Path, vendors: Sequence[str] = ("nvidia",)) -> pd.DataFrame:
    d = pd.read_csv(folder / "ops" / "neusight_ops.csv.xz", low_memory=False)
    return d[(d.latency_ms > 0) & d.vendor.isin(vendors)]
