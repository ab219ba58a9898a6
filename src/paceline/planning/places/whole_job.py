"""What a training job does beside its steps: it evaluates, saves its state, fails and restarts."""

from __future__ import annotations

import math

from paceline.model.graph.workload import Workload
from paceline.parallelism.collectives.failures import usual_mtbf_s
from paceline.shipped import shipped_rows
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """What comes on top of the steps of a job.

    Attributes:
        evaluation_frac: Time of evaluations over that of steps.
        device_mtbf_s: Time between failures of one device with its share of node and network; each
            stops the whole job. Infinite where nothing fails, and then nothing is saved.
    """

    evaluation_frac: float = 0.0
    device_mtbf_s: float = math.inf


#: Steps alone.
NO_OVERHEADS = Overheads()


def usual_overheads(workload: Workload) -> Overheads:
    """What is usual: ``data/job_overheads.csv``, and failures as published.

    Args:
        workload: What is trained; inference has none.
    """
    if workload.task != "train":
        return NO_OVERHEADS
    rows = shipped_rows("planning", "job_overheads.csv")
    fracs = {row["sample_unit"]: float(row["evaluation_frac"]) for row in rows}
    return Overheads(
        evaluation_frac=fracs.get(workload.sample_unit, fracs["samples"]),
        device_mtbf_s=usual_mtbf_s(),
    )
