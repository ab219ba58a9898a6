"""Kernels of old releases that get in the way of those which exchange gradients."""

from __future__ import annotations

import numpy as np

from paceline.scoring.groups import Cell, Group
from paceline.scoring.tables import fitting_lines
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
    for line in fitting_lines("contending_kernels.csv", asked):
        if np.any(kinds == OpKind[line["op"]]):
            shared_frac = (cell.row.num_devices - 1.0) / cell.row.num_devices
            return 1.0 + float(line["added_frac"]) * shared_frac
    return 1.0
