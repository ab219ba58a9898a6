"""Kernels of old releases that get in the way of those which exchange gradients."""

from __future__ import annotations

import re

import numpy as np

from paceline.app.scoring.groups import Cell, Group
from paceline.app.scoring.tables import read_table
from paceline.trace.graph import OpKind


def contention(cell: Cell, group: Group) -> float:
    """By how many times a device's own part of a step takes longer beside its exchange.

    ``data/contending_kernels.csv`` states the share that each exchange adds; a ring of N ranks
    exchanges ``(N - 1) / N`` of what many do.
    """
    kinds = group.workload.passes[0].graph.ops.kind
    asked = {
        "framework": cell.row.framework,
        "precision": group.lowered.configuration.precision,
        "compiler": group.lowered.configuration.compiler,
    }
    num_ranks = max(cell.row.num_gpus or 1.0, 1.0)
    for line in read_table("contending_kernels.csv"):
        is_there = bool(np.any(kinds == OpKind[line["op"]]))
        if is_there and all(re.search(line[name], asked[name], re.IGNORECASE) for name in asked):
            return 1.0 + float(line["added_frac"]) * (num_ranks - 1.0) / num_ranks
    return 1.0
