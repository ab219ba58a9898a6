"""Ways to train by replicas, as rows that are simulated at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import numpy as np

from paceline.model.graph.costs import Checkpointing
from paceline.parallelism.strategy.strategy import Sharding, Strategy
from paceline.simulation.cases import Cases
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine

#: Powers of two up to this many microbatches are tried.
_MAX_MICROBATCHES = 4096
_SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)


def replica_ways(
    job: Job, machine: Machine, per_rank: Mapping[int, int], *, recompute: Checkpointing = "none"
) -> Cases:
    """Every sharding level with every number of microbatches that divides a rank's items.

    Args:
        job: What is trained.
        machine: With as many devices as the largest count.
        per_rank: Items per device and step, by count of devices.
        recompute: What is computed again in backward.
    """
    powers = [2**power for power in range(_MAX_MICROBATCHES.bit_length())]
    rows = [
        (level, count, microbatches, items // microbatches)
        for count, items in per_rank.items()
        for level in range(len(_SHARDINGS) if count > 1 else 1)
        for microbatches in powers
        if items % microbatches == 0
    ]
    level, count, microbatches, batch = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    strategies = [
        Strategy.from_degrees(dp=2, sharding=sharding, recompute=recompute)
        for sharding in _SHARDINGS
    ]
    return Cases(
        jobs=tuple(replace(job, strategy=one) for one in strategies),
        machines=(machine,),
        job=level,
        machine=np.zeros(len(rows), dtype=np.int64),
        batch=batch.astype(np.float64),
        replicas=count,
        microbatches=microbatches,
    )
