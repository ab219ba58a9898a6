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


def choose(layout):
    """Set the layout that the rest of the process reads."""
    global _chosen
    _chosen = layout


def current():
    """The layout in force: the one chosen, else plain data parallel over torchrun's processes."""
    if _chosen is not None:
        return _chosen
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return Layout(rank, ranks, rank, ranks)
