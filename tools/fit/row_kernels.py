"""Streams as PyTorch's kernels run them: which bytes of a row are read again, and from where.

A block of threads walks a row: layer norm twice, a long softmax three times, unless its rows are
kept in shared memory. Rows that are under way at once on a multiprocessor fit its L1 cache, or all
of them together the last-level cache, or they are read from device memory again. What comes from
caches and what a row costs beside its bytes adds to the time of device memory where all threads of
a multiprocessor wait for one another (softmax, whose blocks are few and large), and is partly
hidden behind it where they do not (layer norm).

Sources:
    PyTorch 2.1, aten/src/ATen/native/cuda/{SoftMax,layer_norm_kernel}.cu (threads of a row, when a
    softmax fits a warp or shared memory);
    Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", 2024 (levels of
    cache); limits of multiprocessors in row_limits.csv, with their source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

_LIMITS = Path(__file__).parent / "row_limits.csv"
_ELEMENT_BYTES, _VECTOR = 4, 4
#: Threads on one row: layer norm, and least and most of softmax.
_NORM_THREADS, _LEAST_THREADS, _MOST_THREADS = 128, 32, 1024
#: A softmax of up to so many columns is kept in the registers of a warp.
_WARP_COLUMNS = 1024
#: What a block takes of shared memory where it keeps its row there, and what the system adds.
_SHARED_BLOCK_BYTES, _SYSTEM_BYTES = 48 * 1024, 1024
#: How steeply hits end where rows under way outgrow a cache.
_STEEPNESS = 3.0
_START = {
    "launch_s": 3e-6, "softmax_launch_s": 3e-6, "norm_launch_s": 3e-6, "l2_bytes_per_cycle": 20.0,
    "l1_bytes_per_cycle": 60.0, "l1_share": 1.0, "l2_share": 0.6, "norm_cycles": 200.0,
    "shared_cycles": 1500.0, "row_frac": 0.95, "overlap": 2.0,
}  # fmt: skip
_START_FRAC = 0.85
#: On the squared log of constants over their start, and of the devices' bandwidths over their mean.
_PRIOR, _LEVEL_PRIOR = 0.01, 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class RowConstants:
    """What is the same on every device, fitted from measured streams.

    Attributes:
        launch_s: Fixed seconds of an elementwise kernel.
        softmax_launch_s: Of a softmax.
        norm_launch_s: Of a layer norm.
        l1_bytes_per_cycle: What a multiprocessor reads again from its own cache.
        l2_bytes_per_cycle: And from the last-level cache.
        l1_share: Share of that cache that rows under way fill where half of them miss.
        l2_share: The same of the last-level cache.
        norm_cycles: Cycles of a multiprocessor for each row of a layer norm.
        shared_cycles: Cycles of a block for each row that it keeps in shared memory.
        row_frac: Share of the bandwidth of elementwise kernels that those of rows reach.
        overlap: Exponent by which a layer norm hides its work on the chip; at 1 it hides nothing.
        bandwidth_frac: Share of the bandwidth that elementwise kernels reach.
    """

    launch_s: float
    softmax_launch_s: float
    norm_launch_s: float
    l1_bytes_per_cycle: float
    l2_bytes_per_cycle: float
    l1_share: float
    l2_share: float
    norm_cycles: float
    shared_cycles: float
    row_frac: float
    overlap: float
    bandwidth_frac: float | np.ndarray


def row_log(rows: pd.DataFrame, constants: RowConstants) -> np.ndarray:
    """Log seconds of streams with rows, columns, moved_bytes, flags and device facts."""
    walk = _Walk.of(rows)
    return np.log(walk.seconds(constants))


def fit_rows(rows: pd.DataFrame, *, num_rows: int = 200, rounds: int = 3000) -> RowConstants:
    """Least mean absolute log error over a balanced draw of rows, by Nelder-Mead.

    Every device has a bandwidth of its own while fitting, so that the constants need not explain
    the habits of one card; the answer has their geometric mean.

    Args:
        rows: Streams with device facts and the time of the kernel alone.
        num_rows: Rows drawn of each device and kind of kernel.
        rounds: Iterations.
    """
    drawn = pd.concat([
        group.sample(min(num_rows, len(group)), random_state=0)
        for _, group in rows.groupby([rows.source_name, _kinds(rows)])
    ])  # fmt: skip
    walk, measured = _Walk.of(drawn), np.log(drawn.time_s.to_numpy())
    devices, code = np.unique(drawn.source_name, return_inverse=True)
    start = np.log(list(_START.values()))

    def loss(logs: np.ndarray) -> float:
        own, levels = logs[: len(start)], logs[len(start) :]
        seconds = walk.seconds(_constants(own, np.exp(levels[code])))
        away = _PRIOR * ((own - start) ** 2).mean()
        apart = _LEVEL_PRIOR * ((levels - levels.mean()) ** 2).mean()
        return float(np.abs(np.log(seconds) - measured).mean() + away + apart)

    first = np.concatenate([start, np.full(len(devices), np.log(_START_FRAC))])
    options = {"maxiter": rounds, "maxfev": 2 * rounds, "adaptive": True}
    found = minimize(loss, first, method="Nelder-Mead", options=options).x
    return _constants(found[: len(start)], float(np.exp(found[len(start) :].mean())))


def _constants(logs: np.ndarray, bandwidth_frac: float | np.ndarray) -> RowConstants:
    values: Mapping[str, float] = dict(zip(_START, np.exp(logs), strict=True))
    overlap = max(values["overlap"], 1.0)
    return RowConstants(**{**values, "overlap": overlap}, bandwidth_frac=bandwidth_frac)


def _kinds(rows: pd.DataFrame) -> np.ndarray:
    """Kind of kernel: 0 elementwise, 1 layer norm, 2 softmax in a warp, 3 in a block."""
    is_long = (rows.is_softmax > 0) & (rows["columns"] > _WARP_COLUMNS)
    kinds: np.ndarray = (rows.is_norm + 2 * rows.is_softmax + is_long).to_numpy(int)
    return kinds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Walk:
    """What kernels of rows ask of their device; all (num_rows,).

    Attributes:
        rows: Rows walked.
        kind: Kind of kernel.
        is_shared: Whether rows are kept in shared memory.
        moved_bytes: Read once and written once.
        again_bytes: Read again.
        blocks: Rows that a multiprocessor can have under way.
        l1_fill: Bytes under way on a multiprocessor over its own cache.
        l2_fill: Bytes under way on all of them over the last-level cache.
        cycles_per_s: Of all multiprocessors together.
        bytes_per_s: Of device memory.
    """

    rows: np.ndarray
    kind: np.ndarray
    is_shared: np.ndarray
    moved_bytes: np.ndarray
    again_bytes: np.ndarray
    blocks: np.ndarray
    l1_fill: np.ndarray
    l2_fill: np.ndarray
    cycles_per_s: np.ndarray
    bytes_per_s: np.ndarray

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _Walk:
        max_threads, l1_bytes, shared_bytes = _limits(rows)
        count, columns = rows.rows.to_numpy(float), rows["columns"].to_numpy(float)
        sms, kind, row_bytes = rows.num_sms.to_numpy(float), _kinds(rows), _ELEMENT_BYTES * columns
        is_shared = (kind == 3) & (columns % _VECTOR == 0) & (row_bytes < _SHARED_BLOCK_BYTES)
        threads = 2.0 ** np.floor(np.log2(np.maximum(columns / _VECTOR, 1.0)))
        threads = np.clip(threads, _LEAST_THREADS, _MOST_THREADS)
        by_threads = max_threads / np.where(kind == 1, _NORM_THREADS, threads)
        by_shared = np.floor(shared_bytes / (_SHARED_BLOCK_BYTES + _SYSTEM_BYTES))
        blocks = np.where(is_shared, by_shared, by_threads)
        under_way = np.minimum(count / sms, blocks) * row_bytes
        walks_again = np.select([kind == 1, (kind == 3) & ~is_shared], [1.0, 2.0], 0.0)
        return cls(
            rows=count, kind=kind, is_shared=is_shared, blocks=np.maximum(blocks, 1.0),
            moved_bytes=rows.moved_bytes.to_numpy(float),
            again_bytes=walks_again * count * row_bytes,
            l1_fill=under_way / l1_bytes,
            l2_fill=under_way * sms / rows.l2_bytes.to_numpy(float),
            cycles_per_s=sms * rows.clock_hz.to_numpy(float),
            bytes_per_s=rows.memory_bytes_per_s.to_numpy(float),
        )  # fmt: skip

    def seconds(self, constants: RowConstants) -> np.ndarray:
        """Time of the kernels."""
        is_norm, is_rowwise = self.kind == 1, self.kind > 0
        l1_hit = _hit_frac(self.l1_fill / constants.l1_share)
        l2_hit = (1 - l1_hit) * _hit_frac(self.l2_fill / constants.l2_share)
        missed_bytes = self.again_bytes * (1 - l1_hit - l2_hit)
        once_bytes = self.moved_bytes / np.where(is_rowwise, constants.row_frac, 1.0)
        memory_s = (once_bytes + missed_bytes) / (self.bytes_per_s * constants.bandwidth_frac)
        row_cycles = np.select(
            [is_norm, self.is_shared],
            [constants.norm_cycles, constants.shared_cycles / self.blocks],
            0.0,
        )
        byte_cycles = l1_hit / constants.l1_bytes_per_cycle + l2_hit / constants.l2_bytes_per_cycle
        chip_s = (self.again_bytes * byte_cycles + self.rows * row_cycles) / self.cycles_per_s
        power = np.where(is_norm, constants.overlap, 1.0)
        busy_s = (memory_s**power + chip_s**power) ** (1 / power)
        launches = (constants.launch_s, constants.norm_launch_s, constants.softmax_launch_s)
        total: np.ndarray = busy_s + np.array(launches)[np.minimum(self.kind, 2)]
        return total


def _hit_frac(fill: np.ndarray) -> np.ndarray:
    hit: np.ndarray = 1 / (1 + fill**_STEEPNESS)
    return hit


def _limits(rows: pd.DataFrame) -> np.ndarray:
    """Threads, L1 and shared bytes of a multiprocessor, (3, num_rows); NaN where not known."""
    known = pd.read_csv(_LIMITS, dtype={"compute_capability": str}).set_index("compute_capability")
    own = known.reindex(rows.compute_capability.astype(str))
    return own[["max_threads", "l1_bytes", "shared_bytes"]].to_numpy(float).T
