"""Constants of the tile model of attention: one set for decode, one for prefill, all devices.

They are two kernels: one streams the keys and values of a single query row per head, the other
multiplies tiles of queries.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from fit.residency import hit_frac, resident_bytes_per_cycle, with_residency
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.kernels.attention_tiles import AttentionConstants, attention_tiled_s
from paceline.prediction.kernels.product_tiles import Engine

OPS = ("decode", "prefill")
_START = {
    "launch_s": 3e-6, "prologue_cycles": 500.0, "step_cycles": 100.0, "compute_frac": 0.8,
    "half_rows": 16.0, "memory_frac": 0.85, "fill_frac": 0.9, "split_cycles": 100.0,
}  # fmt: skip
#: On the squared log of each constant over its start, as for products.
_PRIOR = 0.1
#: Shared by both kernels.
_MEMORY = ("memory_frac", "fill_frac")
_LIMITS = {"compute_frac": 1.2, "memory_frac": 1.0}


def fit_attention(
    rows: pd.DataFrame, *, num_rows: int = 3000, rounds: int = 800
) -> dict[str, AttentionConstants]:
    """Least mean absolute log error over as many rows of each device, by Nelder-Mead.

    Args:
        rows: Attention rows with device facts, both ops.
        num_rows: Rows drawn of each op.
        rounds: Iterations.
    """
    streams, multiplies = (rows[rows.op == op] for op in OPS)
    rate = {"resident_bytes_per_cycle": resident_bytes_per_cycle(streams)}
    decode = _fit_one(streams, rate, num_rows, rounds)
    # Few rows of prefill wait for memory: theirs is the memory that decode shows.
    memory = rate | {name: getattr(decode, name) for name in _MEMORY}
    return {"decode": decode, "prefill": _fit_one(multiplies, memory, num_rows, rounds)}


def seconds(rows: pd.DataFrame, constants: Mapping[str, AttentionConstants]) -> np.ndarray:
    """Tile-model time of attention rows."""
    answer = np.empty(len(rows))
    for op, own in constants.items():
        chosen = (rows.op == op).to_numpy()
        answer[chosen] = _seconds(rows[chosen], own)
    return answer


def with_tiles(rows: pd.DataFrame, constants: Mapping[str, AttentionConstants]) -> pd.DataFrame:
    """Rows with the tile model's time, and with what repeated calls find in the cache."""
    known = with_residency(rows, 1.0, constants["decode"].resident_bytes_per_cycle)
    return known.assign(tiled_s=seconds(known, constants))


def builtin_constants() -> dict[str, AttentionConstants]:
    """Those of the built-in calibration, by op."""
    own = builtin_calibration().constants["attention_tiles"]
    return {op: AttentionConstants.from_mapping(own[op]) for op in OPS}


def _fit_one(
    rows: pd.DataFrame, known: Mapping[str, float], num_rows: int, rounds: int
) -> AttentionConstants:
    each = max(1, num_rows // rows.device.nunique())
    drawn = pd.concat(
        [g.sample(min(each, len(g)), random_state=0) for _, g in rows.groupby("device")]
    )
    builtin = builtin_calibration().constants["attention_tiles"]["prefill"]
    names = ("exponentials_per_cycle", "cache_bytes_per_cycle")
    limits = {name: float(builtin[name]) for name in names}
    start = {name: value for name, value in _START.items() if name not in known}
    measured, first = np.log(drawn.time_s.to_numpy()), np.log(list(start.values()))

    def constants(logs: np.ndarray) -> AttentionConstants:
        values = zip(start, np.exp(logs), strict=True)
        kept = {n: min(float(v), _LIMITS.get(n, np.inf)) for n, v in values}
        return AttentionConstants(**kept, **known, **limits)

    def loss(logs: np.ndarray) -> float:
        away = _PRIOR * ((logs - first) ** 2).mean()
        return float(np.abs(np.log(_seconds(drawn, constants(logs))) - measured).mean() + away)

    options = {"maxiter": rounds, "adaptive": True}
    return constants(minimize(loss, first, method="Nelder-Mead", options=options).x)


def _seconds(rows: pd.DataFrame, constants: AttentionConstants) -> np.ndarray:
    def column(name: str) -> np.ndarray:
        return rows[name].to_numpy(float)

    engine = Engine(
        num_sms=column("num_sms"), clock_hz=column("clock_hz"), peak_flop_per_s=column("peak"),
        memory_bytes_per_s=column("memory_bytes_per_s"),
        element_bytes=np.full(len(rows), 2.0, np.float32),
        has_matrix_units=True, hit_frac=hit_frac(rows, 1.0),
    )  # fmt: skip
    names = ("batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_size", "is_causal")
    work = (column("flop"), column("moved_bytes"))
    return attention_tiled_s(tuple(column(name) for name in names), work, engine, constants)
