"""The search: places × nodes × sharding × configuration × batch, evaluated in arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from paceline.catalog.entities import Catalog, Device
from paceline.columns import join_tables
from paceline.dtypes import find_precision
from paceline.errors import PacelineError
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray
from paceline.model.graph.workload import Workload
from paceline.parallelism.replicas.shares import Share
from paceline.parallelism.steps import Steps
from paceline.parallelism.uncertainty import is_rough
from paceline.planning.forecast.forecast_choice import (
    MOST_KEPT,
    Ground,
    choose_forecast,
    pinned_count,
)
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.forecast.question import Question
from paceline.planning.goal.amounts import Job as AskedJob
from paceline.planning.goal.goal import USUAL_DEVICES, Goal, Work
from paceline.planning.places.input_side import place_input_samples_per_s
from paceline.planning.places.place_table import BoolArray, IntArray, PlaceTable, place_table
from paceline.planning.places.places import Place, PlaceSearch, find_places, pinned_offers
from paceline.planning.search.candidate_steps import candidate_steps, figures
from paceline.planning.search.candidates import (
    BatchRule,
    CandidateTable,
    enumerate_candidates,
)
from paceline.planning.search.evaluation import (
    Constraint,
    Evaluation,
    constraints,
    objective_name,
    objective_values,
)
from paceline.planning.search.joint_placement import search_together, with_joined
from paceline.planning.search.pinned import (
    evaluate_pinned,
    is_searched,
    narrowed,
    pinned_node_counts,
    pinned_strategy,
)
from paceline.planning.search.script import able_to_run, strategy_masks
from paceline.planning.search.whole_strategies import (
    SearchContext,
    WholeStrategies,
    is_searched_whole,
    without_searched,
)
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.job import Job
from paceline.values import dataclass

if TYPE_CHECKING:
    from paceline.simulation.queue.figures import ServiceFigures


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Search:
    """Everything the search saw; the plan and its explanations are read from it.

    Attributes:
        question: What was asked.
        found: Places and rejections.
        devices: Devices, by row of the forecast.
        forecast: Predictions of one device each.
        places: Places as arrays.
        candidates: Everything that fits.
        whole: The last candidates, if their strategies were searched as a whole.
        evaluation: Its figures.
        constraints: What the goal demands.
        is_certain: Finite figures, and an interval narrow enough to be an answer,
            (num_candidates,).
        is_ranked: Certain, with a fresh price, likewise.
        is_feasible: Ranked, and every constraint met, (num_candidates,).
        objective: What is to be small, (num_candidates,).
        kinds: What each strategy asks of a script, as `kinds_mask` has it, likewise.
        refused: Candidates that do not fit once their allocations are replayed.
        services: Candidates whose requests were simulated, with what they see, or why they cannot.
    """

    question: Question
    found: PlaceSearch
    devices: tuple[Device, ...]
    forecast: Forecast
    places: PlaceTable
    candidates: CandidateTable
    whole: WholeStrategies | None
    evaluation: Evaluation
    constraints: tuple[Constraint, ...]
    is_certain: BoolArray
    is_ranked: BoolArray
    is_feasible: BoolArray
    objective: FloatArray
    kinds: IntArray
    refused: frozenset[int] = frozenset()
    services: Mapping[int, ServiceFigures | PacelineError] = field(default_factory=dict)

    def whole_row(self, row: int) -> int | None:
        """Row among ``whole`` of a candidate; None where its strategy is of the usual search."""
        num_whole = 0 if self.whole is None else len(self.whole.jobs)
        position = row - (len(self.candidates) - num_whole)
        return position if position >= 0 else None

    def whole_job(self, row: int) -> Job | None:
        """What a candidate runs whose strategy was searched as a whole; None of the others."""
        position = self.whole_row(row)
        return None if position is None or self.whole is None else self.whole.jobs[position]

    def shares(self, row: int) -> tuple[Share, ...]:
        """What each of two kinds of device does of a batch; empty where all do the same."""
        position = self.whole_row(row)
        return () if position is None or self.whole is None else self.whole.shares[position]

    @property
    def workload(self) -> Workload:
        """What is run."""
        return self.question.workload

    @property
    def goal(self) -> Goal:
        """What is wanted."""
        return self.question.goal

    @property
    def work(self) -> Work:
        """The work as the user gave it."""
        return self.question.work

    @property
    def job(self) -> AskedJob:
        """The work as it was resolved."""
        return self.question.job


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unlimited:
    """A question without its deadline and budget; those alike share places and candidates.

    Attributes:
        catalog: Devices and offers, by identity as the next two.
        workload: What is run.
        calibration: Of the predictor.
        text: Everything else that is asked.
        question: All of it.
    """

    catalog: Catalog
    workload: Workload
    calibration: Calibration
    text: str
    question: Question = field(compare=False)

    @classmethod
    def of(cls, question: Question, catalog: Catalog) -> _Unlimited:
        """What is left of a question."""
        goal = _without_limits(question.goal)
        question = replace(question, goal=goal, has_usual_deadline=False)
        names = [f.name for f in fields(Question) if f.name not in ("workload", "calibration")]
        return cls(
            catalog=catalog,
            workload=question.workload,
            calibration=question.calibration,
            text=repr([getattr(question, name) for name in names]),
            question=question,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Evaluated:
    """Candidates that a script can run, and their figures."""

    places: PlaceTable
    candidates: CandidateTable
    whole: WholeStrategies | None
    evaluation: Evaluation


def _without_limits(goal: Goal) -> Goal:
    """The goal without what only chooses among candidates, which a user moves back and forth."""
    return replace(goal, deadline_s=None, budget_usd=None)


def run_search(question: Question, catalog: Catalog, *, has_meshes: bool = True) -> Search:
    """Evaluate every candidate; those of the last few questions, whatever their limits, are kept.

    Args:
        question: What is asked.
        catalog: Devices and offers.
        has_meshes: Whether complete strategies are searched too, where they can pay.
    """
    asked = _Unlimited.of(question, catalog)
    ground, _ = _ground(asked)
    forecast = choose_forecast(ground)
    evaluated = _evaluated(asked, _node_counts(question, ground.found.places), has_meshes)
    places, candidates, evaluation = evaluated.places, evaluated.candidates, evaluated.evaluation
    stated = constraints(evaluation, question.goal, question.job.amount)
    is_certain = _is_certain(evaluation.steps, has_named=_names_places(question.goal))
    is_ranked = places.is_ranked[candidates.place] & is_certain
    is_ranked &= np.isfinite(evaluation.pareto_cost)
    return Search(
        question=question,
        found=ground.found,
        devices=ground.devices,
        forecast=forecast,
        places=places,
        candidates=candidates,
        whole=evaluated.whole,
        evaluation=evaluation,
        constraints=stated,
        is_certain=is_certain,
        is_ranked=is_ranked,
        is_feasible=np.logical_and.reduce([is_ranked, *(c.is_met for c in stated)]),
        objective=objective_values(evaluation, question.goal),
        kinds=strategy_masks(candidates, forecast, evaluated.whole),
    )


def _is_certain(steps: Steps, *, has_named: bool) -> BoolArray:
    """Figures that a choice can be made by.

    Rough ones are those alone where devices or places were named and nothing better is known of
    them: their doubt is shared, so that counts and strategies still compare.
    """
    is_known = np.isfinite(steps.step_s)
    is_narrow = is_known & ~is_rough(steps.log_sigma)
    return np.asarray(is_known if has_named and not is_narrow.any() else is_narrow)


def _names_places(goal: Goal) -> bool:
    return bool(goal.devices or goal.clouds or goal.pins.keys() & {"offer", "device"})


def flop_bound_s(question: Question, catalog: Catalog) -> float:
    """Least seconds of a job: its FLOP over the dense peak of as many devices as are tried.

    Args:
        question: What is asked; its job has an end.
        catalog: Devices and offers.

    Returns:
        Zero where no device is for rent, or no peak of one is known whose price is ranked.
    """
    ground, table = _ground(_Unlimited.of(question, catalog))
    forecast, amount = choose_forecast(ground), question.job.amount
    per_item = forecast.steps.flop * forecast.tensor_degree[:, None, None] / forecast.batch
    if not per_item.size:
        return 0.0
    flop = float(np.nanmin(per_item)) * (amount.items_per_epoch or 0) * amount.num_epochs
    precisions = {find_precision(one.precision) for one in forecast.configurations}
    ranked = [ground.devices[index] for index in distinct(table.device[table.is_ranked])]
    peaks = [device.dense_peak_flop_per_s(one) or 0.0 for device in ranked for one in precisions]
    most = max(peaks, default=0.0)
    return flop / (most * question.goal.most_devices) if most else 0.0


@lru_cache(maxsize=MOST_KEPT)
def _ground(asked: _Unlimited) -> tuple[Ground, PlaceTable]:
    """Where it could run, on which devices, and the terms there."""
    question, catalog = asked.question, asked.catalog
    found = find_places(catalog, question.goal, today=question.today)
    found = with_joined(found, catalog, question)
    parts = [part for place in found.places for part in (place, *place.parts)]
    devices = tuple({p.device.name: p.device for p in parts}.values())
    ground = Ground(question=question, found=found, devices=devices)
    return ground, _place_table(question, found, devices)


@lru_cache(maxsize=MOST_KEPT)
def _evaluated(asked: _Unlimited, node_counts: tuple[int, ...], has_meshes: bool) -> _Evaluated:
    """What competes with so many machines, which is all that a limit says of it."""
    ground, table = _ground(asked)
    context = SearchContext(
        question=asked.question,
        places=ground.found.places,
        devices=ground.devices,
        table=table,
        forecast=choose_forecast(ground),
    )
    every, whole, usual = _candidates(context, node_counts, has_meshes)
    candidates, whole = able_to_run(every, whole, context.forecast, asked.question.goal)
    evaluation = _evaluation(context, candidates, whole, usual if candidates is every else None)
    return _Evaluated(places=table, candidates=candidates, whole=whole, evaluation=evaluation)


def _place_table(question: Question, found: PlaceSearch, devices: Sequence[Device]) -> PlaceTable:
    stored = question.stored
    fed = [
        place_input_samples_per_s(place, question.workload, stored) if stored else math.inf
        for place in found.places
    ]
    return place_table(
        found.places, devices, fed, today=question.today, setup_s=question.options.setup_s,
        storage_bytes=question.goal.storage_bytes or 0.0,
        egress_bytes=question.goal.egress_bytes or 0.0,
    )  # fmt: skip


def _candidates(
    ground: SearchContext, node_counts: tuple[int, ...], has_meshes: bool
) -> tuple[CandidateTable, WholeStrategies | None, Steps | None]:
    """What competes; the last of them may have been searched as a whole.

    Where the steps of the others were needed already, they come too.
    """
    question, places, forecast = ground.question, ground.table, ground.forecast
    pinned = pinned_strategy(question.goal, ground.places)
    if pinned is not None and question.is_training and not is_searched(pinned):
        stated = evaluate_pinned(ground, pinned)
        return stated.candidates, stated, None
    first = enumerate_candidates(
        places,
        forecast,
        _batch_rule(question),
        node_counts=node_counts,
        max_devices=question.goal.most_devices,
        is_training=question.is_training,
    )
    if pinned is not None:
        return narrowed(first, forecast, pinned), None, None
    whole = usual = None
    if len(pinned_offers(question.goal)) > 1:
        first = first.take(np.arange(0))
    elif has_meshes and is_searched_whole(question):
        from paceline.planning.search.whole_search import (
            search_whole,  # meshes and schedules: only if needed
        )

        usual = candidate_steps(ground, first)
        whole, searched = search_whole(ground, first, figures(ground, first, usual), node_counts)
        if whole is not None:
            kept = without_searched(first, forecast, searched)
            first, usual = first.take(kept), usual.take(kept)
    rows = [more for more in (whole, search_together(ground)) if more is not None]
    if not rows:
        return first, None, usual
    last = WholeStrategies.of(rows)
    return join_tables(first, last.candidates), last, usual


def _evaluation(
    ground: SearchContext,
    candidates: CandidateTable,
    whole: WholeStrategies | None,
    usual: Steps | None,
) -> Evaluation:
    """Figures of candidates, of which the last may have been searched as a whole.

    The steps of the others are ``usual``, or worked out.
    """
    first = np.arange(len(candidates) - (len(whole.jobs) if whole else 0))
    if usual is None:
        usual = candidate_steps(ground, candidates.take(first))
    parts = [(first, usual)]
    if whole is not None:
        parts.append((np.arange(len(first), len(candidates)), whole.steps))
    return figures(ground, candidates, Steps.joined(parts, len(candidates)))


def _batch_rule(question: Question) -> BatchRule:
    goal, options, is_training = question.goal, question.options, question.is_training
    accumulates = options.accumulates and is_training and goal.global_batch is None
    return BatchRule(
        max_global_batch=question.batch_limit.max_items,
        exact_global_batch=goal.global_batch if is_training else None,
        in_flight=None if is_training else question.work.concurrency,
        num_largest=options.num_largest_batches if is_training else options.max_batch,
        accumulates=accumulates,
        memory_confidence=goal.memory_confidence,
        shards_freely="strategy" in goal.pins,
        least_global_batch=question.batch_limit.least_items if accumulates else 1,
    )


def _node_counts(question: Question, places: Sequence[Place]) -> tuple[int, ...]:
    """Machine counts: powers of two where ranks work together, finer where they only serve.

    And all machines of a cluster of one's own, however many there are.
    """
    goal = question.goal
    whole = {place.num_machines for place in places if place.num_machines is not None}
    if "nodes" in goal.pins:
        return (pinned_count(goal.pins["nodes"]),)
    least = goal.most_devices // USUAL_DEVICES if question.is_widened else 1
    powers = [2**i for i in range(31) if least <= 2**i <= goal.most_devices]
    powers += sorted(count for count in whole if least <= count <= goal.most_devices)
    if question.is_training:
        return tuple(sorted({*powers, *pinned_node_counts(goal)}))
    if not _needs_replicas(goal, question.work):
        return (1,)
    finer = {n for p in powers for n in (p, p + p // 4, p + p // 2, p + 3 * p // 4)}
    return tuple(sorted(n for n in finer if n <= goal.most_devices))


def _needs_replicas(goal: Goal, work: Work) -> bool:
    """Whether several machines could be better than one: only if speed is asked for."""
    limits = (goal.deadline_s, goal.min_samples_per_s, work.requests_per_s)
    return any(limits) or objective_name(goal) == "time"
