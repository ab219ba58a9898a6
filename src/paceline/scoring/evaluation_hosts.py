"""What published evaluations do on the host beside the network, where that sets their rate."""

from __future__ import annotations

import re

from paceline.scoring.tables import read_table
from paceline.trace.workload import Task


def evaluation_host_s(entry: str, framework: str, task: Task, batch: float) -> float:
    """Seconds that the host adds to a step of a published evaluation; 0 for all others.

    Args:
        entry: Model as resolved.
        framework: As the row has it.
        task: Training is not evaluated.
        batch: Items of a step.

    >>> evaluation_host_s("published:mask_rcnn", "PyTorch", "infer", 4.0)
    0.1
    >>> evaluation_host_s("published:mask_rcnn", "PyTorch", "train", 4.0)
    0.0
    """
    if task == "train":
        return 0.0
    for row in read_table("evaluation_hosts.csv"):
        if row["entry"] == entry and re.search(row["framework"], framework, re.IGNORECASE):
            return float(row["step_s"]) + float(row["item_s"]) * batch
    return 0.0
