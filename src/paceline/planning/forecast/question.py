"""What is asked of the search, with everything resolved that does not depend on the catalogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from datetime import date

from paceline.model.graph.workload import Workload
from paceline.planning.goal.amounts import Job, check_global_batch, resolve_job
from paceline.planning.goal.applicable import check_applicable
from paceline.planning.goal.batch_limit import BatchLimit, batch_limit_of
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.input_side import input_format
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.input_side import SampleFormat
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How far the search goes.

    Attributes:
        seq: Sequence length; None takes the workload's.
        max_batch: Largest batch per device that is tried.
        num_largest_batches: Batches kept per place, count, sharding and configuration in training.
        accumulates: Whether gradient accumulation is tried between devices.
        max_choices: Choices listed.
        setup_s: Paid time of a rented machine before work begins: booting, images, fetching data.
        checkpoint_bytes_per_s: Rate at which state is saved where machines can be taken back.
        advance: Called with the share of a long search that is done; changes no answer.
    """

    seq: int | None = None
    max_batch: int = 2048
    num_largest_batches: int = 4
    accumulates: bool = True
    max_choices: int = 6
    setup_s: float = 600.0
    checkpoint_bytes_per_s: float = 1e9
    advance: Callable[[float], None] = field(default=lambda _: None, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """A question to the search.

    Attributes:
        workload: What is run.
        goal: What is wanted.
        work: As the user gave it.
        job: As it was resolved.
        options: How far to search.
        seq: Sequence length used.
        today: The day prices are judged on.
        stored: How samples lie on disk; None where the input is taken to keep up.
        calibration: Of the predictor.
        batch_limit: Most items per optimizer step where the goal states no global batch.
        is_widened: Whether more devices are tried than usual, as those keep no constraint.
        has_usual_deadline: Whether the goal's deadline is the usual one, as none is stated.
    """

    workload: Workload
    goal: Goal
    work: Work
    job: Job
    options: SearchOptions
    seq: int
    today: date
    stored: SampleFormat | None
    calibration: Calibration
    batch_limit: BatchLimit
    is_widened: bool = False
    has_usual_deadline: bool = False

    @property
    def is_training(self) -> bool:
        """Whether gradients are made and reduced."""
        return self.workload.task == "train"


def resolve_question(
    workload: Workload,
    goal: Goal,
    work: Work,
    *,
    today: date,
    options: SearchOptions | None = None,
    calibration: Calibration | None = None,
) -> Question:
    """Fill in what the user left open.

    Args:
        workload: The model with its task.
        goal: Constraints and objective.
        work: How much is to be done.
        today: The day prices are judged on.
        options: How far to go.
        calibration: Of the predictor; the built-in one if None.

    Raises:
        InvalidInputError: The work makes no sense, an epoch does not fill the global batch, or an
            option says nothing about this job.
    """
    options = options or SearchOptions()
    seq = options.seq or workload.default_seq
    stated, work = work, work.of(workload)
    job = resolve_job(workload, work, seq=seq, rewrite=goal.rewrite, data=goal.data)
    check_global_batch(goal.global_batch, job, workload)
    check_applicable(goal, stated, job, workload)
    return Question(
        workload=workload,
        goal=_with_objective(goal, work),
        work=work,
        job=job,
        options=options,
        seq=seq,
        today=today,
        stored=input_format(workload, goal, stated),
        calibration=calibration or builtin_calibration(),
        batch_limit=batch_limit_of(workload, job, goal.rewrite),
    )


def _with_objective(goal: Goal, work: Work) -> Goal:
    """A service that keeps its rate is to be cheap, whatever an hour of it may cost at most."""
    is_open = goal.objective == "auto" and work.requests_per_s is not None
    return replace(goal, objective="cost") if is_open else goal
