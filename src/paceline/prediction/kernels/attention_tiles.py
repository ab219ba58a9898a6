"""Fused attention as its kernels run it: tiles of query rows that walk along the keys.

Every number of rows and of parts of the keys that kernels offer is tried and the fastest kept. One
tile takes the longest of its products, its exponentials on the special function units, its traffic
from the cache and its chain of dependent steps. Query heads that share keys share a tile. Where
tiles are few, the keys are split and partial results added.

Sources:
    Shah et al., "FlashAttention-3", NeurIPS 2024 (tiles; exponentials beside products);
    Dao et al., "Flash-Decoding for long-context inference", 2023 (keys split over multiprocessors);
    rates of a multiprocessor: ``data/attention_limits.csv``, each with its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray
from paceline.model.ops.registry import kinds_where
from paceline.prediction.features import Array
from paceline.prediction.kernels.product_tiles import AT_ONCE, Engine, least, ways
from paceline.values import dataclass

_ATTENTION = kinds_where(lambda facts: facts.sequence == "looks")
_ROWS = (16, 64, 128)
_SPLITS = (1, 2, 4, 8, 16, 32)
#: Keys are walked in steps of so many.
_STEP = 64.0
_PARTIAL_BYTES = 4.0
#: Widths of heads that kernels are built for; a head between two runs as the wider one. Source:
#: Dao-AILab/flash-attention, csrc/flash_attn/src/static_switch.h, HEADDIM_SWITCH (recalled); 512 in
#: engines' tables.
_HEAD_SIZES = np.array([32, 64, 96, 128, 192, 256, 512], dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConstants:
    """What is the same on every device, fitted from measured attention.

    Attributes:
        launch_s: Fixed seconds of a kernel.
        prologue_cycles: Fixed cycles of a tile.
        step_cycles: Least cycles of 64 keys.
        compute_frac: Share of the peak that a large tile reaches.
        half_rows: Rows of a tile that reaches half of that.
        memory_frac: Share of the bandwidth that long reads reach.
        fill_frac: Tiles per multiprocessor from which the bandwidth is reached.
        split_cycles: Fixed cycles for each part of split keys.
        resident_bytes_per_cycle: What one multiprocessor reads from the last-level cache where
            repeated calls find their operands there.
        exponentials_per_cycle: Of one multiprocessor, at most.
        cache_bytes_per_cycle: From the last-level cache to one multiprocessor, at most.
    """

    launch_s: float
    prologue_cycles: float
    step_cycles: float
    compute_frac: float
    half_rows: float
    memory_frac: float
    fill_frac: float
    split_cycles: float
    resident_bytes_per_cycle: float
    exponentials_per_cycle: float
    cache_bytes_per_cycle: float

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> AttentionConstants:
        """Constants from a table of the calibration."""
        return cls(**{name: float(value) for name, value in values.items()})


def kernel_head_size(head_size: Array) -> Array:
    """How wide a head is in the kernel that runs it; those beyond the widest stay as they are.

    >>> kernel_head_size(np.array([40, 64, 80, 160, 576]))
    array([ 64.,  64.,  96., 192., 576.], dtype=float32)
    """
    wide = np.asarray(head_size, dtype=np.float32)
    at = np.searchsorted(_HEAD_SIZES, wide)
    return np.where(at < len(_HEAD_SIZES), _HEAD_SIZES[np.minimum(at, len(_HEAD_SIZES) - 1)], wide)


def attention_tiled_s(
    dims: tuple[Array, ...], work: tuple[Array, Array], engine: Engine,
    constants: AttentionConstants,
) -> Array:  # fmt: skip
    """Seconds of the fastest tiling of fused attention, forward or backward.

    Args:
        dims: batch, q_heads, kv_heads, q_len, kv_len, head_size, is_causal.
        work: FLOP that run, and device-memory bytes that must move at least.
        engine: The device.
        constants: Fitted constants.
    """
    batch, q_heads, kv_heads, q_len, kv_len, head_size, causal = dims
    flop, moved_bytes = work
    flop_per_cycle = engine.peak_flop_per_s / (engine.num_sms * engine.clock_hz)
    seen_keys = kv_len - causal * q_len / 2
    num_scores = np.maximum(batch * q_heads * q_len * seen_keys, 1)
    score_cycles = flop / num_scores / (flop_per_cycle * constants.compute_frac)
    group_rows = q_heads / np.maximum(kv_heads, 1) * q_len
    s_per_byte = engine.s_per_byte(constants)
    read = 2 * head_size * engine.element_bytes / constants.cache_bytes_per_cycle
    partial = _PARTIAL_BYTES * batch * q_heads * q_len * head_size
    shape = np.broadcast(score_cycles, moved_bytes, group_rows).shape
    best = np.full(shape, np.inf, dtype=np.result_type(score_cycles, moved_bytes))
    at_once = AT_ONCE // max(best.size, 1)
    for rows, split in ways(list(product(_ROWS, _SPLITS)), at_once, best):
        few_rows = np.add(rows, constants.half_rows, dtype=float).astype(rows.dtype)
        arithmetic = np.maximum(few_rows * score_cycles, rows / constants.exponentials_per_cycle)
        key_cycles = np.maximum(np.maximum(arithmetic, read), constants.step_cycles / _STEP)
        tiles = batch * kv_heads * np.ceil(group_rows / rows) * split
        passes = np.ceil(tiles / engine.num_sms)
        keys = np.ceil(seen_keys / (split * _STEP)) * _STEP
        cycles = np.maximum(passes * keys, kv_len / split) * key_cycles
        cycles = cycles + passes * constants.prologue_cycles
        cycles = cycles + np.where(split > 1, split * constants.split_cycles, 0)
        fill = np.clip(tiles / (engine.num_sms * constants.fill_frac), 0.02, 1.0)
        memory_s = (moved_bytes + np.where(split > 1, split, 0) * partial) * s_per_byte / fill
        time_s = np.maximum(cycles / engine.clock_hz, memory_s)
        best = np.minimum(best, least(time_s))
    total: Array = best + np.float32(constants.launch_s)
    return total


def computed_frac(kind: npt.NDArray[np.int16], dims: FloatArray) -> FloatArray:
    """Share of the counted operations that kernels run, (num_points, num_rows).

    A graph counts the whole square of attention; fused kernels skip what a causal mask hides.
    """
    frac = np.ones(dims.shape[:2])
    rows = np.flatnonzero(among(kind, _ATTENTION))
    q_len, kv_len, is_causal = (dims[:, rows, i] for i in (3, 4, 6))
    frac[:, rows] -= is_causal * q_len / (2.0 * np.maximum(kv_len, 1.0))
    return frac
