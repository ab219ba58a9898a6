"""Sums over the ranks of a node as inference engines make them, beside those of the library.

Small messages are read from all ranks at once, larger ones part by part. Where a maker's library is
measured as the engine calls it, it stands in place of what was fitted to others.

Source: vLLM, ``csrc/custom_all_reduce.cuh`` (sums of one or of two steps).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.collectives.times import RankGroup, all_reduce_s
from paceline.shipped import shipped_rows
from paceline.values import dataclass

#: The kernel that engines share, as their profiles call it.
OWN_KERNEL = "custom"
_COLUMNS = ("direct_s", "split_s", "direct_frac", "split_frac", "rank_s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineSums:
    """How fast an engine's own sums are on each row of a table of links; NaN: not measured.

    Attributes:
        peak_bytes_per_s: Of the link.
        direct_s: A sum that reads from all ranks at once, without its bytes.
        split_s: One part by part likewise.
        direct_frac: Share of the peak at which the first reads.
        split_frac: Share at which the second does.
        rank_s: What each further rank adds.
        is_library: Whether that is the library itself, called by the engine.
    """

    peak_bytes_per_s: FloatArray
    direct_s: FloatArray
    split_s: FloatArray
    direct_frac: FloatArray
    split_frac: FloatArray
    rank_s: FloatArray
    is_library: bool = False


def engine_sums_of(links: LinkTable, *, kernel: str | None) -> EngineSums | None:
    """What was measured on links of their kinds and peaks.

    Args:
        links: Between ranks of a node, a row each.
        kernel: The engine's own one (`EngineProfile.all_reduce`); None leaves sums to the library.

    Returns:
        Constants of each row; None without a kernel.
    """
    if kernel is None:
        return None
    kinds, measured = list(links.coefficients.kinds), _measured(kernel)
    rows = zip(links.kind_row.tolist(), links.bytes_per_s.tolist(), strict=True)
    of_kind = [(kinds[row][0], peak) for row, peak in rows]
    found = [measured.get(one, measured.get((one[0], 0.0), {})) for one in of_kind]
    columns = {n: np.array([row.get(n, np.nan) for row in found]) for n in _COLUMNS}
    return EngineSums(
        peak_bytes_per_s=links.bytes_per_s, is_library=kernel != OWN_KERNEL, **columns
    )


@cache
def _measured(kernel: str) -> dict[tuple[str, float], dict[str, float]]:
    """Constants by kind and peak of the link, 0 where they are of all of a kind.

    Sources are in ``data/engine_all_reduce.csv``.
    """
    return {
        (row["kind"], float(row["peak_bytes_per_s"])): {name: float(row[name]) for name in _COLUMNS}
        for row in shipped_rows("parallelism", "engine_all_reduce.csv")
        if row["kernel"] == kernel
    }


def engine_all_reduce_s(
    message_bytes: FloatArray, group: RankGroup, sums: EngineSums | None
) -> FloatArray:
    """Seconds of the fastest of an engine's own sums and the library's.

    Args:
        message_bytes: What each rank adds.
        group: Who sums; beyond one node nothing but the library does.
        sums: The engine's; None leaves the library's alone.
    """
    best = all_reduce_s(message_bytes, group)
    if sums is None:
        return best
    others = group.num_ranks - 1.0
    direct_s = sums.direct_s + others * message_bytes / (sums.peak_bytes_per_s * sums.direct_frac)
    parts = 2.0 * others / group.num_ranks * message_bytes
    split_s = sums.split_s + parts / (sums.peak_bytes_per_s * sums.split_frac)
    own_s = np.minimum(direct_s, split_s) + others * sums.rank_s
    own_s = np.where(group.num_nodes > 1, np.nan, own_s)
    return np.where(np.isnan(own_s), best, own_s) if sums.is_library else np.fmin(best, own_s)
