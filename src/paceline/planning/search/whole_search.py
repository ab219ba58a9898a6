"""Complete strategies for models that one device cannot train: stages, tensor and data parallel.

The search over sharded data parallel and tensor groups comes first. On the machines that look best
after it, all legal meshes and schedules are evaluated (`parallelism.search`), and the best of
them join the candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.parallelism.steps import Steps
from paceline.planning.forecast.question import Question
from paceline.planning.places.place_table import PlaceTable
from paceline.planning.search.candidates import CandidateTable
from paceline.planning.search.evaluation import Evaluation
from paceline.planning.search.whole_strategies import (
    SearchContext,
    WholeStrategies,
    batch_limit,
    job_of,
    known_configuration,
    machine_kinds,
    machine_of,
    placed,
)
from paceline.simulation.job import Job
from paceline.simulation.search import StrategySearch

_HALF_PRECISIONS = ("bf16", "fp16")
#: Kinds of machine that are searched in full, and strategies kept of each number of them.
_NUM_FABRICS = 8
_NUM_BEST = 2


def search_whole(
    ground: SearchContext,
    candidates: CandidateTable,
    evaluation: Evaluation,
    node_counts: Sequence[int],
) -> WholeStrategies | None:
    """Search complete strategies; None where none fits.

    Args:
        ground: What is asked, and where it could run.
        candidates: Of the first search.
        evaluation: Their figures.
        node_counts: Machine counts to try.
    """
    rows: list[WholeStrategies] = []
    for members in _shortlist(ground, candidates, evaluation):
        configuration = known_configuration(ground, members[0], _HALF_PRECISIONS)
        if configuration is not None:
            rows += _searched(ground, members, configuration, node_counts)
    return WholeStrategies.of(rows) if rows else None


def _shortlist(
    ground: SearchContext, candidates: CandidateTable, evaluation: Evaluation
) -> list[list[int]]:
    """Places of the best few kinds of machine: alike in device, number and links.

    The kinds nearest the front of time and cost, whatever the goal bounds: plans of two goals
    that differ in a limit alone are chosen from the same candidates.
    """
    kind_of = {
        index: members for members in machine_kinds(ground, are_ranked=True) for index in members
    }
    nearest = _nearest_front(ground.table, candidates, evaluation)
    first = [*nearest, *_roomiest(ground.table, kind_of)]
    chosen = {id(kind_of[index]): kind_of[index] for index in first if index in kind_of}
    return list(chosen.values())[:_NUM_FABRICS]


def _nearest_front(
    table: PlaceTable, candidates: CandidateTable, evaluation: Evaluation
) -> list[int]:
    """Places by how little dearer they are than what is as fast, of the first search."""
    time, cost = evaluation.pareto_time, evaluation.pareto_cost
    rows = np.flatnonzero(table.is_ranked[candidates.place] & np.isfinite(time) & np.isfinite(cost))
    rows = rows[np.argsort(time[rows], kind="stable")]
    dearer = cost[rows] / np.minimum.accumulate(cost[rows])
    by_excess = rows[np.argsort(dearer, kind="stable")]
    return list(dict.fromkeys(candidates.place[by_excess].tolist()))


def _roomiest(table: PlaceTable, members: Iterable[int]) -> list[int]:
    """Places that could hold what nothing holds yet: in turn by price and by size of memory.

    The cheapest memory alone would be that of many small cards, too many for a model to span.
    """
    ranked = [index for index in members if np.isfinite(table.usd_per_hour[index])]
    machine_bytes = table.devices_per_node * table.memory_bytes
    by_price = sorted(ranked, key=lambda i: float(table.usd_per_hour[i] / machine_bytes[i]))
    by_size = sorted(ranked, key=lambda i: -float(machine_bytes[i]))
    return [index for pair in zip(by_price, by_size, strict=True) for index in pair]


def _searched(
    ground: SearchContext, members: Sequence[int], configuration: int, node_counts: Sequence[int]
) -> list[WholeStrategies]:
    """The best strategies of one kind of machine, for each number of them, in all its places."""
    first, question, table = members[0], ground.question, ground.table
    machine = machine_of(ground, first)
    search = StrategySearch.of(
        job_of(ground, configuration), machine, capacity_bytes=float(table.memory_bytes[first]),
        memory_confidence=question.goal.memory_confidence, calibration=question.calibration,
    )  # fmt: skip
    rows = []
    for num_nodes in node_counts:
        num_devices = int(num_nodes * table.devices_per_node[first])
        if num_devices > question.goal.most_devices or (
            num_nodes > 1 and not table.has_node_link[first]
        ):
            continue
        jobs, steps = _best(question, search, num_devices, num_nodes)
        if jobs:
            rows.append(placed(ground, members, num_nodes, configuration, jobs, steps))
    return rows


def _best(
    question: Question, search: StrategySearch, num_devices: int, num_nodes: int
) -> tuple[tuple[Job, ...], Steps]:
    """Nothing where no strategy is legal or fits."""
    limit, nothing = batch_limit(question), ((), Steps.of(0, {}))
    global_batch = limit if question.goal.global_batch else limit // num_nodes * num_nodes
    if not search.space.variants or global_batch < 1:
        return nothing
    try:
        return search.fitting(
            num_devices=num_devices, global_batch=global_batch, num_best=_NUM_BEST
        )
    except (DoesNotFitError, InvalidInputError):
        return nothing
