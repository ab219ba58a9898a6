"""Complete strategies for models that one device cannot train: stages, tensor and data parallel.

The search over sharded data parallel and tensor groups comes first. On the machines that look best
after it, ranks with whole layers are searched (`parallelism.search`); all legal meshes and
schedules only where the bound below their steps leaves a gain that matters over what is simple.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.table_updates import is_mostly_tables
from paceline.parallelism.search import MICROBATCHES, microbatch_sizes
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.uncertainty import is_rough
from paceline.planning.forecast.question import Question
from paceline.planning.places.place_table import PlaceTable
from paceline.planning.search.candidate_steps import figures
from paceline.planning.search.candidates import CandidateTable
from paceline.planning.search.evaluation import MATTERS_FRAC, Evaluation
from paceline.planning.search.pareto import pareto_front
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
from paceline.values import dataclass

_HALF_PRECISIONS = ("bf16", "fp16")
#: Kinds of machine that are searched in full, and strategies kept of each number of them.
_NUM_FABRICS = 8
_NUM_BEST = 2


def search_whole(
    ground: SearchContext,
    candidates: CandidateTable,
    evaluation: Evaluation,
    node_counts: Sequence[int],
) -> tuple[WholeStrategies | None, IntArray]:
    """Search complete strategies.

    Args:
        ground: What is asked, and where it could run.
        candidates: Of the first search.
        evaluation: Their figures.
        node_counts: Machine counts to try.

    Returns:
        The best strategies, None where none fits, and the places that were searched.
    """
    front = _simple_front(ground, candidates, evaluation)
    kinds = [
        _Kind(ground, members, configuration)
        for members in _shortlist(ground, candidates, evaluation)
        if (configuration := known_configuration(ground, members[0], _HALF_PRECISIONS)) is not None
    ]
    found: dict[int, list[WholeStrategies]] = {}
    # What ranks run is kept of one configuration at a time.
    alike = sorted(range(len(kinds)), key=lambda number: kinds[number].configuration)
    for number in alike:
        ground.question.options.advance(len(found) / len(kinds))
        found[number] = _searched(kinds[number], node_counts, front)
    rows = [one for number in range(len(kinds)) for one in found[number]]
    places = [place for kind in kinds for place in kind.members]
    return WholeStrategies.of(rows) if rows else None, np.array(places, dtype=np.int64)


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


@dataclass(frozen=True, slots=True)
class _Kind:
    """Places of one kind of machine, and the configuration of the forecast that is run there."""

    ground: SearchContext
    members: Sequence[int]
    configuration: int

    def num_devices(self, num_nodes: int) -> int:
        """Devices of so many machines."""
        return int(num_nodes * self.ground.table.devices_per_node[self.members[0]])

    def can_have(self, num_nodes: int) -> bool:
        """Whether so many machines can work together."""
        most, table = self.ground.question.goal.most_devices, self.ground.table
        if num_nodes > max(table.num_machines[self.members]):
            return False
        is_joined = bool(table.can_join(self.members[0], num_nodes))
        return is_joined and self.num_devices(num_nodes) <= most

    def search(self, *, splits_model: bool) -> StrategySearch:
        """What can be tried there."""
        question = self.ground.question
        sizes: Sequence[int] = MICROBATCHES
        if is_mostly_tables(question.workload.passes[0].graph):
            most = batch_limit(question) // self.num_devices(1)
            sizes = microbatch_sizes(sizes[-1], most)
        return StrategySearch.of(
            job_of(self.ground, self.configuration, self.members[0]),
            machine_of(self.ground, self.members[0]),
            capacity_bytes=float(self.ground.table.memory_bytes[self.members[0]]),
            memory_confidence=question.goal.memory_confidence,
            calibration=question.calibration,
            splits_model=splits_model,
            microbatches=sizes,
        )

    def placed(self, num_nodes: int, jobs: Sequence[Job], steps: Steps) -> WholeStrategies:
        """Jobs on so many machines, in all places that have them."""
        most = self.ground.table.num_machines
        members = [place for place in self.members if most[place] >= num_nodes]
        return placed(self.ground, members, num_nodes, self.configuration, jobs, steps)


def _simple_front(
    ground: SearchContext, candidates: CandidateTable, evaluation: Evaluation
) -> tuple[FloatArray, FloatArray]:
    """Time and cost on the front of the first search, by rising cost, without tensor groups.

    None where the goal says what a script can do: what is simple may not be wanted.
    """
    time, cost = evaluation.pareto_time, evaluation.pareto_cost
    is_simple = ground.forecast.tensor_degree[candidates.configuration] == 1
    is_simple &= ground.table.is_ranked[candidates.place] & np.isfinite(time) & np.isfinite(cost)
    is_simple &= ~is_rough(evaluation.steps.log_sigma) & (not ground.question.goal.strategies)
    rows = np.flatnonzero(is_simple)
    rows = rows[pareto_front(cost[rows], time[rows])]
    return time[rows], cost[rows]


def _searched(
    kind: _Kind, node_counts: Sequence[int], front: tuple[FloatArray, FloatArray]
) -> list[WholeStrategies]:
    """The best strategies of one kind of machine, for each number of them, in all its places."""
    counts = [count for count in node_counts if kind.can_have(count)]
    search = kind.search(splits_model=False)
    found = {count: _best(kind, search, count) for count in counts}
    gaining = [count for count in counts if _can_gain(kind, search, count, front)]
    if gaining:
        search = kind.search(splits_model=True)
        found |= {count: _best(kind, search, count) for count in gaining}
    return [kind.placed(count, *found[count]) for count in counts if found[count][0]]


def _can_gain(
    kind: _Kind, search: StrategySearch, num_nodes: int, front: tuple[FloatArray, FloatArray]
) -> bool:
    """Whether ranks that share layers could be on the front beside what is simple.

    A strategy that is written into the model must gain what matters over one that is not.
    """
    question, devices = kind.ground.question, kind.num_devices(num_nodes)
    global_batch = _global_batch(question, num_nodes)
    if global_batch < 1 or not search.space.kinds:
        return bool(search.space.kinds)
    least_s = search.space.least_step_s(num_devices=devices, global_batch=global_batch)
    job = replace(search.job, strategy=Strategy(), batch=float(global_batch))
    ideal = kind.placed(num_nodes, [job], Steps.of(1, {"step_s": least_s}))
    bound, (time, cost) = figures(kind.ground, ideal.candidates, ideal.steps), front
    near = 1.0 + MATTERS_FRAC
    is_beaten = (time[:, None] <= near * bound.pareto_time) & (
        cost[:, None] <= near * bound.pareto_cost
    )
    return not bool(is_beaten.any(axis=0).all())


def _global_batch(question: Question, num_nodes: int) -> int:
    """Items per optimizer step that so many machines share evenly, unless it is stated."""
    limit = batch_limit(question)
    return limit if question.goal.global_batch else limit // num_nodes * num_nodes


def _best(kind: _Kind, search: StrategySearch, num_nodes: int) -> tuple[tuple[Job, ...], Steps]:
    """Nothing where no strategy is legal or fits."""
    global_batch, nothing = _global_batch(kind.ground.question, num_nodes), ((), Steps.of(0, {}))
    if not search.space.kinds or global_batch < 1:
        return nothing
    try:
        return search.fitting(
            num_devices=kind.num_devices(num_nodes), global_batch=global_batch, num_best=_NUM_BEST
        )
    except InvalidInputError:
        return nothing
