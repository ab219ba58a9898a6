"""A matrix product as its library runs it: output tiles, waves over the multiprocessors, split k.

Every tile shape and split that libraries offer is tried and the fastest kept, as their heuristics
do. One tile takes the longest of its arithmetic, its traffic from the cache and its chain of
dependent steps, plus a fixed prologue; whole waves of tiles follow one another. Splitting k makes
more tiles and adds partial results to write and read.

Sources:
    NVIDIA, "Matrix Multiplication Background User's Guide" (tile and wave quantisation);
    Osama et al., "Stream-K", PPoPP 2023 (split k and its costs).
    Frantar et al., "MARLIN", PPoPP 2025 (4-bit weights are streamed at up to 16 to 32 rows).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from paceline.catalog.architectures import Generation
from paceline.prediction.features import Array
from paceline.values import dataclass

_TILES = ((256, 128), (128, 128), (128, 64), (64, 64), (64, 32), (32, 32), (128, 32))
#: Of batched products alone.
_BATCHED_TILES = ((64, 128),)
#: Only matrix units are fed with these.
_LARGE_TILES = ((256, 256), (192, 128))
_SPLITS = (1, 2, 4, 8)
#: By so many more where the kernel is written for the shape.
_DEEP_SPLITS = (1, 16, 128, 1024)
#: k is walked in steps of so many elements.
_STEP = 32.0
_PARTIAL_BYTES = 4.0
#: Numbers of all products and ways that are worked out in one pass: what a nearby cache holds.
AT_ONCE = 16_384
#: Rows of one step of the matrix units (PTX: mma.m16n8k16).
_FEW_ROWS = 16
#: Vector over matrix peak, where no more is known: 19.5 of 312 TFLOP/s on an A100 (its datasheet).
_VECTOR_FRAC = 1 / 16
_UNKNOWN: Array = np.array(np.nan, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileConstants:
    """What is the same on every device, fitted from measured products.

    Attributes:
        launch_cycles: Fixed cycles of a kernel.
        prologue_cycles: Fixed cycles of a tile.
        step_cycles: Least cycles of 64 elements of k.
        cache_bytes_per_cycle: What one multiprocessor reads from the cache.
        compute_frac: Share of the peak that a large tile reaches.
        half_tile: Elements of a tile that reaches half of that.
        memory_frac: Share of the bandwidth that large products reach.
        fill_frac: Tiles per multiprocessor from which the bandwidth is reached.
        launch_s: Fixed seconds of a kernel, whatever the clock.
        resident_bytes_per_cycle: What one multiprocessor reads from the last-level cache where
            repeated calls find their operands there.
        split_cycles: Fixed cycles for each part of a split k: partial results are handed over.
        chain_cycles: Cycles of 64 elements of k where few rows are streamed: their steps depend
            on one another.
    """

    launch_cycles: float
    prologue_cycles: float
    step_cycles: float
    cache_bytes_per_cycle: float
    compute_frac: float
    half_tile: float
    memory_frac: float
    fill_frac: float
    launch_s: float
    resident_bytes_per_cycle: float
    split_cycles: float = 0.0
    chain_cycles: float = 0.0

    @classmethod
    def from_mapping(cls, values: Mapping[str, float]) -> TileConstants:
        """Constants from a table of the calibration."""
        return cls(**{name: float(value) for name, value in values.items()})


class ReachedRates(Protocol):
    """Constants of kernels that read: see `TileConstants`."""

    @property
    def memory_frac(self) -> float:
        """Share of the bandwidth that long reads reach."""

    @property
    def resident_bytes_per_cycle(self) -> float:
        """What one multiprocessor reads from the last-level cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What runs the product, broadcast against the shapes.

    Attributes:
        num_sms: Multiprocessors.
        clock_hz: Clock under load.
        peak_flop_per_s: Dense peak at that clock.
        memory_bytes_per_s: Bandwidth of device memory.
        element_bytes: Of the operands.
        has_matrix_units: Whether the peak is that of matrix units.
        hit_frac: Share of the bytes found in the last-level cache. None in a step, where every
            layer has weights of its own; benchmarks that repeat a call do find them.
        unhalved_flop_per_s: Peaks of FP32 on vector units and of INT8 beside those of matrix units,
            which cards for consumers halve where sums are wide; NaN where they are not known.
        batched_tile: Rows and columns of the one tile, never split, that the library has for
            batched products of this device; 0 where it chooses.
    """

    num_sms: Array
    clock_hz: Array
    peak_flop_per_s: Array
    memory_bytes_per_s: Array
    element_bytes: Array
    has_matrix_units: bool
    hit_frac: Array | float = 0.0
    unhalved_flop_per_s: tuple[Array, ...] = (_UNKNOWN, _UNKNOWN)
    batched_tile: tuple[Array, Array] | None = None

    def s_per_byte(self, constants: ReachedRates) -> Array:
        """Seconds to read one byte from wherever it lies."""
        memory = self.memory_bytes_per_s * constants.memory_frac
        cache = self.num_sms * self.clock_hz * constants.resident_bytes_per_cycle
        hit_frac = np.asarray(self.hit_frac, dtype=np.float32)
        seconds: Array = (1 - hit_frac) / memory + hit_frac / np.maximum(cache, memory)
        return seconds


def tiled_s(
    product: tuple[Array, ...], moved_bytes: Array, engine: Engine, constants: TileConstants
) -> Array:
    """Seconds of the fastest tiling of products.

    Args:
        product: batch, m, n, k.
        moved_bytes: Device-memory bytes that must move at least.
        engine: The device.
        constants: Fitted constants.
    """
    batch, m, n, k = product
    s_per_byte = engine.s_per_byte(constants)
    chain_s = k * (constants.chain_cycles / 64) / engine.clock_hz
    best = _streamed_s(product, np.maximum(moved_bytes * s_per_byte, chain_s), engine)
    at_once = AT_ONCE // max(best.size, 1)
    splits = [
        (split, _moved_bytes(product, moved_bytes, split) * s_per_byte)
        for (split,) in ways([(split,) for split in _SPLITS], at_once, best)
    ]
    for tile in ways(_tiles_of(engine), at_once // len(_SPLITS), best):
        rows, columns = (side[:, None] for side in tile)
        num_tiles = batch * np.ceil(m / rows) * np.ceil(n / columns)
        k_cycles = _k_cycles(rows, columns, engine, constants)
        for split, bytes_s in splits:
            cycles = np.ceil(k / (split * _STEP)) * _STEP * k_cycles + constants.prologue_cycles
            cycles = np.ceil(num_tiles * split / engine.num_sms) * cycles
            cycles = cycles + np.where(split > 1, split * constants.split_cycles, 0)
            fill = num_tiles * split / (engine.num_sms * constants.fill_frac)
            time_s = np.maximum(cycles / engine.clock_hz, bytes_s / np.clip(fill, 0.02, 1.0))
            time_s = _where_offered(time_s, (rows, columns, split), batch, engine)
            best = np.minimum(best, least(least(time_s)))
    total: Array = best + constants.launch_s + constants.launch_cycles / engine.clock_hz
    return total


def ways(
    numbers: Sequence[tuple[int, ...]], at_once: int, each: Array
) -> Iterator[tuple[Array, ...]]:
    """A few ways after another, on an axis before those of ``each``."""
    for first in range(0, len(numbers), max(at_once, 1)):
        few = np.array(numbers[first : first + max(at_once, 1)], dtype=each.dtype)
        yield tuple(few.T.reshape(few.shape[1], -1, *(1,) * each.ndim))


def least(time_s: Array) -> Array:
    """The least of all ways on the first axis."""
    found: Array = time_s[0] if len(time_s) == 1 else np.minimum.reduce(time_s)
    return found


def _k_cycles(rows: Array, columns: Array, engine: Engine, constants: TileConstants) -> Array:
    """Cycles of one element of k of a tile: its arithmetic, and what it takes to feed it.

    Cards for consumers multiply at half the rate of their chip where sums are wide; what feeds
    the units is that of the whole rate.
    """
    area = (rows * columns).astype(rows.dtype)
    cycles = 2 / constants.compute_frac * engine.num_sms * engine.clock_hz
    peak = engine.peak_flop_per_s
    fed = _higher(engine, peak, engine.unhalved_flop_per_s[1] / engine.element_bytes)
    read = (rows + columns) * engine.element_bytes / constants.cache_bytes_per_cycle
    busy = np.maximum(cycles * (area / peak + constants.half_tile / fed), read)
    least_cycles: Array = np.maximum(busy, constants.step_cycles / 64)
    return least_cycles


def _moved_bytes(product: tuple[Array, ...], moved_bytes: Array, split: Array) -> Array:
    """Bytes with the partial results that parts of a sum write and read."""
    batch, m, n, _ = product
    return moved_bytes + np.where(split > 1, split * _PARTIAL_BYTES, 0) * batch * m * n


def tuned_s(
    product: tuple[Array, ...], moved_bytes: Array, engine: Engine, constants: TileConstants
) -> Array:
    """Seconds of a product whose kernel is written for its shape: k is split as deep as it needs.

    The gradient of a convolution's weights sums over all pixels of a batch into a few tiles.
    Libraries split such a sum into few parts; a kernel of its own fills the device. Partial results
    are written and read.

    Args: as of `tiled_s`.
    """
    batch, m, n, k = product
    best: Array = np.full((), np.inf, dtype=np.float32)
    for split in _DEEP_SPLITS:
        partial = 0.0 if split == 1 else 2 * split * _PARTIAL_BYTES * batch * m * n
        parts = (batch * split, m, n, np.ceil(k / split))
        best = np.minimum(best, tiled_s(parts, moved_bytes + partial, engine, constants))
    return best


def batched_tiles(generations: Sequence[Generation]) -> tuple[Array, Array]:
    """Rows and columns of the tile of batched FP32 products on each device, 0 where unknown.

    cuBLAS has one such kernel for some generations, whatever the shape, and a choice for others.

    >>> from paceline.catalog.architectures import generation_of, shipped_generations
    >>> known = shipped_generations()
    >>> rows, columns = batched_tiles([generation_of(known, "", code) for code in ("8.9", "9.0")])
    >>> rows.tolist(), columns.tolist()
    ([128.0, 0.0], [128.0, 0.0])
    """
    tiles = np.array([one.batched_tile or (0, 0) for one in generations], dtype=np.float32)
    return tiles.reshape(-1, 2)[:, 0], tiles.reshape(-1, 2)[:, 1]


def _tiles_of(engine: Engine) -> tuple[tuple[int, int], ...]:
    more = _LARGE_TILES if engine.has_matrix_units else ()
    return _TILES + more + (_BATCHED_TILES if engine.batched_tile else ())


def _where_offered(
    time_s: Array, way: tuple[Array, Array, Array], batch: Array, engine: Engine
) -> Array:
    """Infinite where the library has another way for batched products."""
    if engine.batched_tile is None:
        return time_s
    rows, columns, split = way
    own_rows, own_columns = engine.batched_tile
    is_own = (own_rows == rows) & (own_columns == columns) & (split == 1)
    is_other = np.any([(rows == x) & (columns == y) for x, y in _BATCHED_TILES], axis=0)
    is_free = (batch <= 1) | ((own_rows == 0) & ~is_other)
    return np.where(is_own | is_free, time_s, time_s.dtype.type(np.inf))


def _streamed_s(product: tuple[Array, ...], stream_s: Array, engine: Engine) -> Array:
    """Few rows or one column, whose kernels fill no tile; infinite for more.

    They stream the operands once; a row more costs arithmetic at the pace of the vector units. On
    vector units this is a matrix times a vector, so one row. One column per group is what a
    depthwise convolution has.
    """
    batch, m, n, k = product
    vector_frac = _VECTOR_FRAC if engine.has_matrix_units else 1.0
    vector_flop_per_s = _higher(
        engine, engine.peak_flop_per_s * vector_frac, engine.unhalved_flop_per_s[0]
    )
    compute_s = 2 * batch * m * n * k / vector_flop_per_s
    is_meant = (m <= (_FEW_ROWS if engine.has_matrix_units else 1)) | (n <= 1)
    return np.where(is_meant, np.maximum(stream_s, compute_s), np.float32(np.inf))


def _higher(engine: Engine, peak: Array, other: Array) -> Array:
    """The higher of two peaks beside matrix units; the first where the other is not known."""
    found: Array = np.where(other > peak, other, peak) if engine.has_matrix_units else peak
    return found
