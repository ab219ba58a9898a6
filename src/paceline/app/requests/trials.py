"""Which strategies to run once before one is chosen."""

from __future__ import annotations

from paceline.app.progress import progress
from paceline.app.requests.plan_request import read_calibration
from paceline.app.requests.scaling import ScalingQuestion, place_of
from paceline.errors import InvalidInputError
from paceline.model.graph.workload import Workload
from paceline.planning.decisions.device_counts import default_batch
from paceline.planning.decisions.trials import Trial, worthwhile_trials
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Runs that are worth measuring before a strategy is chosen.

    Attributes:
        model: As typed.
        title: As printed.
        device: ``Device.name``.
        offer: ``Offer.name`` of the machines.
        count: Devices.
        global_batch: Items per step.
        assumptions: Printed first, one sentence each.
        trials: Most worth first; none where the choice is sure.
        saved_frac: Share of the step's time that is lost less on average once all are measured.
    """

    model: str
    title: str
    device: str
    offer: str
    count: int
    global_batch: int
    assumptions: tuple[str, ...]
    trials: tuple[Trial, ...]
    saved_frac: float


def answer_trials(workload: Workload, question: ScalingQuestion, num_trials: int) -> Trials:
    """The runs of one device count.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    if len(workload.passes) != 1:
        raise InvalidInputError(
            f"a step of {workload.title} runs several programs, which replicas alone share",
            hint="`paceline scale` shows what more replicas bring",
        )
    (count,) = question.counts
    question.job(workload)  # Refuses a global batch that no epoch fills.
    place, seq = place_of(question), question.length(workload)
    calibration = read_calibration(question.calibration) or builtin_calibration()
    job = place.job(workload, question)
    batch = question.global_batch or count * default_batch(
        job, place.cluster, question.rule(workload),
        calibration=calibration,
    )  # fmt: skip
    with progress("comparing strategies"):
        found = worthwhile_trials(
            job, place.cluster, num_devices=count, global_batch=batch, num_trials=num_trials,
            calibration=calibration,
        )  # fmt: skip
    return Trials(
        model=workload.name,
        title=workload.title,
        device=place.device.name,
        offer=place.offer.name,
        count=count,
        global_batch=batch,
        assumptions=place.assumptions(workload, question, seq),
        trials=found.trials,
        saved_frac=found.saved_frac,
    )
