"""Fit the all-reduce that inference engines write themselves to published measurements.

    PYTHONPATH=tools python -m fit.engine_all_reduce ../shared/truth/ops > OUT
where OUT is src/paceline/parallelism/data/engine_all_reduce.csv.

Messages of up to 16 MB of vLLM, SGLang (both replayed as graphs) and TensorRT-LLM; of the three the
median counts. Two ways, as those kernels have: every rank reads all others' data at once, or it
reads its part and then the sums.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import least_squares

#: Link of each kind, and the systems that were measured on it.
KINDS = {
    3e11: ("a100_sxm",),
    4.5e11: ("h100_sxm", "h200_sxm"),
    9e11: ("b200_sxm", "b300_sxm", "gb200", "gb300"),
}
WAYS = ("vLLM_custom_graph", "SGLang_CustomAllReduce_graph", "TRTLLM")
LARGEST_BYTES = 2**24
#: As profiles of engines call them (`stack/data/engines.toml`).
KERNEL = "custom"
#: Seconds of both ways, shares of the link, and seconds per further rank: where the search begins.
START = np.log([4e-6, 6e-6, 0.5, 0.5, 1e-7])
FIELDS = (
    "kernel",
    "kind",
    "peak_bytes_per_s",
    "direct_s",
    "split_s",
    "direct_frac",
    "split_frac",
    "rank_s",
)
SOURCE = "fitted to ai-dynamo/aiconfigurator custom_allreduce tables 095f58a51 (Apache-2.0): "

Array = npt.NDArray[np.float64]


def measured(truth: Path) -> pd.DataFrame:
    """Median seconds by system, ranks and size."""
    rows = pd.read_csv(truth / "aic_comm.csv.xz")
    rows = rows[rows.impl.isin(WAYS) & (rows.bytes <= LARGEST_BYTES)]
    keys = ["system", "num_gpus", "bytes"]
    rows = rows.groupby([*keys, "impl"], as_index=False).latency_ms.median()
    return rows.groupby(keys, as_index=False).latency_ms.median()


def seconds(log_constants: Array, num_bytes: Array, ranks: Array, peak: float) -> Array:
    """The faster of both ways."""
    direct_s, split_s, direct_frac, split_frac, rank_s = np.exp(log_constants)
    others = ranks - 1
    direct = direct_s + others * num_bytes / (peak * direct_frac)
    split = split_s + 2 * others / ranks * num_bytes / (peak * split_frac)
    return np.asarray(np.minimum(direct, split) + rank_s * others)


def fitted(rows: pd.DataFrame, peak: float) -> Array:
    """Constants of one kind of link; errors count in proportion."""
    size, ranks = rows.bytes.to_numpy(float), rows.num_gpus.to_numpy(float)
    truth_s = rows.latency_ms.to_numpy(float) / 1e3

    def log_error(log_constants: Array) -> Array:
        return np.asarray(np.log(seconds(log_constants, size, ranks, peak) / truth_s))

    return np.asarray(np.exp(least_squares(log_error, START, loss="soft_l1").x))


def main() -> None:
    """Print the table, and to the other stream how well it holds."""
    rows = measured(Path(sys.argv[1]))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow((*FIELDS, "source"))
    for peak, systems in KINDS.items():
        mine = rows[rows.system.isin(systems)]
        if not len(mine):
            continue
        constants = fitted(mine, peak)
        told = seconds(
            np.log(constants), mine.bytes.to_numpy(float), mine.num_gpus.to_numpy(float), peak
        )
        error = np.abs(told / (mine.latency_ms.to_numpy(float) / 1e3) - 1)
        print(f"{peak:g}: {len(mine)} sizes, mean error {error.mean():.1%}", file=sys.stderr)
        cells = (f"{value:.4g}" for value in constants)
        writer.writerow((KERNEL, "nvlink", f"{peak:g}", *cells, SOURCE + " ".join(systems)))


if __name__ == "__main__":
    main()
