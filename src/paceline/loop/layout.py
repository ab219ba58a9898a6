"""Which share of the work this process has: the device mesh that the loop's functions agree on.

``parallelize`` sets the layout; ``resume`` and ``feed`` read it. Without one, every process of the
group holds the whole model and its own share of the samples.
"""

import os
from collections import namedtuple

#: ``rank`` of ``ranks`` processes; this process reads share ``data_rank`` of ``data_ranks`` of the
#: samples (ranks that hold parts of one replica read the same share).
Layout = namedtuple("Layout", ["rank", "ranks", "data_rank", "data_ranks"])

_chosen = None
_parts = ""


def choose(layout, parts=""):
    """Set the layout that the rest of the process reads.

    Args:
        layout: Of the samples.
        parts: How weights are split, such as ``tp2``; nothing where each rank holds all.
    """
    global _chosen, _parts
    _chosen, _parts = layout, parts


def parts():
    """How ranks split the weights, such as ``fsdp2.tp2``; nothing where each holds all."""
    return _parts if _chosen is not None else ""


def current():
    """The layout in force: the one chosen, else plain data parallel over torchrun's processes."""
    if _chosen is not None:
        return _chosen
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return Layout(rank, ranks, rank, ranks)
