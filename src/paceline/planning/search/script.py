"""What a plan asks of the training script, and whether that is worth writing.

A script trains data parallel, fully sharded or not, and recomputes with a call each. What is
written into the model takes days, and must gain more than they cost unless the user says that the
script can do it. Where nothing simpler keeps the goal, it is needed, whatever it costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from paceline.errors import DoesNotFitError
from paceline.model.graph.graph import FloatArray
from paceline.model.table_updates import updates_rows
from paceline.parallelism.strategy.complexity import (
    STRATEGY_KINDS,
    USUAL_KINDS,
    StrategyKind,
    complexity,
    kinds_in,
    kinds_mask,
    kinds_of,
)
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.goal.goal import Goal
from paceline.planning.places.place_table import BoolArray, IntArray
from paceline.planning.search.candidates import CandidateTable
from paceline.planning.search.evaluation import hour_value_usd, objective_name
from paceline.shipped import shipped_rows
from paceline.simulation.job import Job
from paceline.units import HOUR_S

if TYPE_CHECKING:
    from paceline.planning.search.whole_strategies import WholeStrategies


def strategy_masks(
    candidates: CandidateTable, forecast: Forecast, whole: WholeStrategies | None
) -> IntArray:
    """Kinds that each candidate needs, as `kinds_mask` has them, (num_candidates,).

    Args:
        candidates: All of them.
        forecast: What they are made of.
        whole: The last of them, if their strategies were searched as a whole.
    """
    recomputes = np.array([c.checkpointing != "none" for c in forecast.configurations])
    parts: dict[StrategyKind, BoolArray] = {
        "dp": np.ones(len(candidates), dtype=np.bool_),
        "fsdp": (candidates.sharding > 0) & (candidates.num_groups > 1),
        "recompute": recomputes[candidates.configuration],
        "tp": forecast.tensor_degree[candidates.configuration] > 1,
    }
    masks = sum(is_needed * kinds_mask(kind) for kind, is_needed in parts.items())
    masks = np.asarray(masks, dtype=np.int64)
    if whole is not None and whole.jobs:
        masks[-len(whole.jobs) :] = [_kinds_of(job) for job in whole.jobs]
    return masks


def _kinds_of(job: Job) -> int:
    """Kinds that a job needs: what updates tables by rows shares them in a call, as FSDP wraps.

    Source: TorchRec, ``DistributedModelParallel``; HugeCTR's solver (recalled 2026-11-27).
    """
    mask, shared = kinds_of(job.strategy), kinds_mask("ep")
    how = job.configuration.table_updates
    if mask & shared and updates_rows(job.workload.passes[0].graph, how):
        return mask & ~shared | kinds_mask("fsdp")
    return mask


def within(masks: IntArray, kinds: Sequence[str]) -> BoolArray:
    """Whether a script that can do these kinds runs each strategy; data parallel it always can."""
    beyond = ~kinds_mask("dp", *(kind for kind in STRATEGY_KINDS if kind in kinds))
    return np.asarray(masks & beyond == 0)


def able_to_run(
    candidates: CandidateTable, whole: WholeStrategies | None, forecast: Forecast, goal: Goal
) -> tuple[CandidateTable, WholeStrategies | None]:
    """What a script can run that can do what the goal states, and nothing else; all if it does not.

    Args:
        candidates: All of them.
        whole: The last of them, if their strategies were searched as a whole.
        forecast: What they are made of.
        goal: Its ``strategies``.

    Raises:
        DoesNotFitError: There are candidates, and none of them can be run so.
    """
    if not goal.strategies or not len(candidates):
        return candidates, whole
    masks = strategy_masks(candidates, forecast, whole)
    able = within(masks, goal.strategies)
    if not able.any():
        simplest = int(masks[np.argmin(complexity(masks))])
        lacking = [one for one in kinds_in(simplest) if one not in (*goal.strategies, "dp")]
        raise DoesNotFitError(
            f"nothing fits with {', '.join(goal.strategies)} alone",
            hint=f"the simplest strategy that fits also takes {', '.join(lacking)}: add it to "
            "--strategies, or allow larger devices",
        )
    if whole is not None:
        whole = whole.take(np.flatnonzero(able[len(candidates) - len(whole.jobs) :]))
    return candidates.take(np.flatnonzero(able)), whole


def effort_h(masks: IntArray, kinds: Sequence[str]) -> FloatArray:
    """Hours of a person to teach a script what it cannot do, of the shape of the masks."""
    hours = _effort_h()
    new = [kind for kind in STRATEGY_KINDS if kind not in kinds]
    parts = [(masks & kinds_mask(kind) > 0) * hours[kind] for kind in new]
    return np.asarray(sum(parts, start=np.zeros(masks.shape)))


def worth_writing(
    masks: IntArray, objective: FloatArray, mask: BoolArray, goal: Goal, *, has_work: bool
) -> BoolArray:
    """The candidates of a mask whose gain over what the script can do pays for writing them.

    All of them where it can do none of them, where the user says what it can do, where no amount of
    work is known, and where the objective is neither money nor time.

    Args:
        masks: Kinds that they need, (num_candidates,), as the rest.
        objective: What is to be small.
        mask: Which of them count.
        goal: Whose objective it is.
        has_work: Whether the objective is that of a whole job.
    """
    inside = within(masks, goal.strategies or USUAL_KINDS) & mask & np.isfinite(objective)
    added = _added(effort_h(masks, USUAL_KINDS), goal) if has_work and not goal.strategies else None
    if added is None or not inside.any():
        return mask
    pays = objective + added < objective[inside].min()
    return np.asarray(mask & (within(masks, USUAL_KINDS) | pays))


def _added(hours: FloatArray, goal: Goal) -> FloatArray | None:
    """What such hours add to the objective."""
    name = objective_name(goal)
    if name == "time":
        return hours * HOUR_S
    return hours * hour_value_usd(goal) if name in ("cost", "balanced") else None


@cache
def _effort_h() -> dict[str, float]:
    rows = shipped_rows("planning", "strategy_effort.csv")
    return {row["kind"]: float(row["effort_h"]) for row in rows}
