"""Steps of candidates, and their figures: jobs on machines, those alike simulated once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.model.graph.distinct import distinct, distinct_columns
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import SEARCHED_SHARDINGS, Strategy
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.forecast.question import SearchOptions
from paceline.planning.places.interruption import Checkpointing
from paceline.planning.places.place_table import IntArray
from paceline.planning.places.whole_job import NO_OVERHEADS, usual_overheads
from paceline.planning.search.candidates import CandidateTable
from paceline.planning.search.evaluation import Evaluation, evaluate
from paceline.planning.search.whole_strategies import SearchContext, job_of, machine_of
from paceline.simulation.cases import Cases, Wires, distinct_machines
from paceline.simulation.machine import Machine
from paceline.simulation.replicas import ranks_together


def figures(ground: SearchContext, candidates: CandidateTable, steps: Steps) -> Evaluation:
    """Time, money and energy of candidates for what is asked."""
    question = ground.question
    return evaluate(
        candidates,
        ground.table,
        ground.forecast,
        steps,
        question.job.amount,
        _checkpointing(ground.forecast, question.options),
        NO_OVERHEADS if question.goal.is_ideal else usual_overheads(question.workload),
        question.calibration,
    )


def _checkpointing(predictions: Forecast, options: SearchOptions) -> Checkpointing:
    """What saving the state costs on machines that can be taken back."""
    steps = predictions.steps
    state = np.nan_to_num(steps.parameter_bytes + steps.optimizer_state_bytes)
    save_s = float(state.max(initial=0.0)) / options.checkpoint_bytes_per_s
    return Checkpointing(save_s=max(save_s, 1.0), restart_s=options.setup_s)


def candidate_steps(ground: SearchContext, candidates: CandidateTable) -> Steps:
    """Steps of replicas, each of one device or of a few that share every layer."""
    machines, of_place = distinct_machines(
        [machine_of(ground, place) for place in range(len(ground.places))]
    )
    wires, parts = Wires.of(machines), []
    for number in distinct(candidates.configuration).tolist():
        rows = np.flatnonzero(candidates.configuration == number)
        steps = _of_configuration(ground, candidates.take(rows), machines, wires, of_place)
        parts.append((rows, steps))
    return Steps.joined(parts, len(candidates))


def _of_configuration(
    ground: SearchContext,
    candidates: CandidateTable,
    machines: tuple[Machine, ...],
    wires: Wires,
    of_place: IntArray,
) -> Steps:
    """Candidates of one configuration; equal jobs on equal machines are evaluated once."""
    forecast, question = ground.forecast, ground.question
    number = int(candidates.configuration[0])
    device = ground.table.device[candidates.place]
    columns = (candidates.sharding, of_place[candidates.place], device, candidates.batch,
               candidates.num_groups, candidates.microbatches)  # fmt: skip
    first, of_row = distinct_columns(columns)
    sharding, machine, device, batch, groups, count = (column[first] for column in columns)
    job = job_of(ground, number)
    cases = Cases(
        jobs=tuple(
            replace(job, strategy=Strategy.from_degrees(dp=2, sharding=one))
            for one in SEARCHED_SHARDINGS
        ),
        machines=machines,
        job=sharding,
        machine=machine,
        batch=forecast.batch[batch],
        replicas=groups,
        microbatches=count,
        wires=wires,
    )
    alone = forecast.steps.take((np.full_like(batch, number), device, batch))
    steps = ranks_together(
        cases, forecast.passes[number], alone, forecast.lengths.take(batch),
        calibration=question.calibration,
    )  # fmt: skip
    return steps.take(of_row)
