"""Sums over the ranks of a node as inference engines make them, beside those of the library.

Small messages are read from all ranks at once, larger ones part by part.

Source: vLLM, ``csrc/custom_all_reduce.cuh`` (sums of one or of two steps).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from paceline.catalog import Link
from paceline.parallel.collectives import RankGroup, all_reduce_s
from paceline.shipped import shipped_rows
from paceline.trace.graph import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSums:
    """How fast an engine's own sums are on one kind of link.

    Attributes:
        peak_bytes_per_s: Of the link.
        direct_s: A sum that reads from all ranks at once, without its bytes.
        split_s: One part by part likewise.
        direct_frac: Share of the peak at which the first reads.
        split_frac: Share at which the second does.
        rank_s: What each further rank adds.
    """

    peak_bytes_per_s: float
    direct_s: float
    split_s: float
    direct_frac: float
    split_frac: float
    rank_s: float


@cache
def engine_sums(link: Link | None) -> EngineSums | None:
    """What was measured on links of a kind and peak; None where no engine was.

    Rows and their sources are in ``data/engine_all_reduce.csv``.
    """
    if link is None:
        return None
    for row in shipped_rows("parallel", "engine_all_reduce.csv"):
        if (row["kind"], float(row["peak_bytes_per_s"])) == (link.kind, link.bytes_per_s):
            return EngineSums(
                **{k: float(value) for k, value in row.items() if k not in ("kind", "source")}
            )
    return None


def engine_all_reduce_s(
    message_bytes: FloatArray, group: RankGroup, sums: EngineSums | None
) -> FloatArray:
    """Seconds of the fastest of an engine's own sums and the library's.

    Args:
        message_bytes: What each rank adds.
        group: Ranks of one node.
        sums: The engine's; None leaves the library's alone.
    """
    best = all_reduce_s(message_bytes, group)
    if sums is None:
        return best
    others = group.num_ranks - 1.0
    direct_s = sums.direct_s + others * message_bytes / (sums.peak_bytes_per_s * sums.direct_frac)
    parts = 2.0 * others / group.num_ranks * message_bytes
    split_s = sums.split_s + parts / (sums.peak_bytes_per_s * sums.split_frac)
    return np.minimum(best, np.minimum(direct_s, split_s) + others * sums.rank_s)
