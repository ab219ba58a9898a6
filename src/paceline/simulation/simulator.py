"""`simulate`: the step, memory and energy of every job on its machine."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from paceline.errors import InvalidInputError, PacelineError
from paceline.model.graph.block_names import block_names, layers_of
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import IntArray
from paceline.parallelism.legality import check_strategy
from paceline.parallelism.memory.memory_fit import peak_log_sigma
from paceline.parallelism.split.sequence import check_shared
from paceline.parallelism.split.shape import SplitShape
from paceline.parallelism.steps import Steps
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.simulation.cases import Cases, grouped
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.rank import Lengths, RankPasses, rank_steps
from paceline.simulation.replicas import is_replicated, replicated
from paceline.values import dataclass


def simulate(
    jobs: Sequence[Job] | Cases,
    machines: Sequence[Machine] = (),
    *,
    calibration: Calibration | None = None,
) -> Steps:
    """``jobs[i]`` on ``machines[i]``, a row each; what cannot run has a reason instead of figures.

    Rows whose ranks run the same passes are evaluated in one call.

    Args:
        jobs: What is run; or cases, whose strategies are legal where they stand.
        machines: Where; nothing more of cases.
        calibration: Of the predictor; the built-in one if None.
    """
    cases = jobs if isinstance(jobs, Cases) else Cases.of(jobs, machines)
    parts = [] if isinstance(jobs, Cases) else _refused(cases)
    for rows in _alike_rows(cases, parts):
        part = cases.take(rows)
        try:
            rank = _Rank.of(part)
            alone = rank_steps(rank.passes, rank.devices, rank.points, calibration=calibration)
            steps = _together(part, rank, alone.take(rank.of_row), calibration)
            how = part.jobs[int(part.job[0])].configuration
            steps = steps.with_peak_spread(peak_log_sigma(how.peaks))
        except PacelineError as error:
            steps = Steps.refused(len(rows), error)
        parts.append((rows, steps))
    return Steps.joined(parts, len(cases))


def _alike_rows(cases: Cases, refused: Sequence[tuple[IntArray, Steps]]) -> list[IntArray]:
    """Rows whose ranks run the same, without those that were refused.

    Devices that are asked at fewer points than others stand apart: each is evaluated at all points.
    """
    is_open = np.ones(len(cases), dtype=bool)
    for rows, _ in refused:
        is_open[rows] = False
    found = []
    for own in grouped([_alike(job) for job in cases.jobs]).values():
        rows = np.flatnonzero(is_open & np.isin(cases.job, own))
        num_points = np.bincount(cases.machine[rows], minlength=1)[cases.machine[rows]]
        found += [rows[num_points == number] for number in distinct(num_points).tolist()]
    return found


def check_legal(job: Job, machine: Machine) -> None:
    """Raise unless the job's strategy can run on the machine.

    Raises:
        InvalidInputError: It cannot.
    """
    strategy, workload = job.strategy, job.workload
    is_training = workload.task == "train"
    if is_training and not is_replicated(strategy) and len(workload.passes) != 1:
        raise InvalidInputError(
            f"`{strategy}` splits one pass, and a step of this job has several",
            hint="state data parallel, such as `dp8` or `dp8+zero3`",
        )
    graph = workload.passes[0].graph
    check_strategy(
        strategy,
        machine.cluster,
        num_devices=machine.num_devices,
        global_batch=strategy.num_parts,
        num_blocks=layers_of(block_names(graph)) if strategy.size("pp") > 1 else 1,
    )
    check_shared(graph, SplitShape.of(strategy), job.length, name=str(strategy))


def _refused(cases: Cases) -> list[tuple[IntArray, Steps]]:
    """Rows that cannot run, with the reason."""
    refused = []
    pairs = grouped(list(zip(cases.job.tolist(), cases.machine.tolist(), strict=True)))
    for (job, machine), rows in pairs.items():
        try:
            check_legal(cases.jobs[job], cases.machines[machine])
        except PacelineError as error:
            refused.append((rows, Steps.refused(len(rows), error)))
    return refused


def _tensor(job: Job) -> int:
    """Ranks that share each layer of a pass that is cut as a whole."""
    return job.strategy.size("tp") if job.workload.task == "infer" else 1


def _alike(job: Job) -> Hashable:
    """What jobs have in common whose ranks run the same."""
    seq = job.seq if job.workload.task == "train" else None
    shape = SplitShape.of(job.strategy) if job.workload.task == "infer" else None
    stages = job.strategy.size("pp") if job.workload.task == "infer" else 1
    return job.workload, job.how, shape, stages, job.profile, seq


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rank:
    """What the ranks of some cases run, and at which device and point each row finds it.

    Attributes:
        passes: The same of all rows.
        devices: Distinct ones.
        points: Distinct ones.
        of_row: Row of the table of devices × points.
    """

    passes: RankPasses
    devices: DeviceTable
    points: Lengths
    asked: Lengths
    of_row: IntArray

    @classmethod
    def of(cls, cases: Cases) -> _Rank:
        """Of cases whose jobs are alike."""
        job = cases.jobs[int(cases.job[0])]
        tensor = _tensor(job)
        used = [cases.machines[row].device for row in distinct(cases.machine).tolist()]
        devices = list({id(one): one for one in used}.values())
        numbers = {id(one): number for number, one in enumerate(devices)}
        device = np.array([numbers.get(id(one.device), -1) for one in cases.machines])
        asked = _lengths(cases)
        columns = np.stack([asked.batch, asked.seq, asked.prompt, asked.output, asked.rounds])
        points, point = np.unique(columns, axis=1, return_inverse=True)
        batch, seq, prompt, output, rounds = points
        return cls(
            passes=RankPasses.of(job, tensor=tensor),
            devices=DeviceTable.from_devices(devices),
            points=Lengths(batch=batch, seq=seq, prompt=prompt, output=output, rounds=rounds),
            asked=asked,
            of_row=device[cases.machine] * len(batch) + point.reshape(-1),
        )


def _together(cases: Cases, rank: _Rank, alone: Steps, calibration: Calibration | None) -> Steps:
    """What all ranks of each row do, from what one does."""
    if cases.jobs[int(cases.job[0])].workload.task == "infer":
        from paceline.simulation.shared import served  # engines: only if needed

        return served(cases, rank.passes, alone, rank.asked, calibration=calibration)
    is_plain = np.array([_is_plain(one) for one in cases.jobs])[cases.job]
    rows, rest = np.flatnonzero(is_plain), np.flatnonzero(~is_plain)
    parts = []
    if len(rows):
        seq = rank.asked.seq[rows]
        own, mine = alone.take(rows), cases.take(rows)
        parts.append((rows, replicated(mine, rank.passes, own, seq=seq, calibration=calibration)))
    parts += _split(cases.take(rest), alone.take(rest), rest, calibration) if len(rest) else []
    return Steps.joined(parts, len(cases))


def _is_plain(job: Job) -> bool:
    return is_replicated(job.strategy)


def _split(
    cases: Cases, alone: Steps, places: IntArray, calibration: Calibration | None
) -> list[tuple[IntArray, Steps]]:
    """Rows by job, machine and strategy, each at its place."""
    from paceline.simulation.blocks import split_steps  # meshes and schedules: only if needed

    columns = (cases.job, cases.machine, cases.replicas, cases.microbatches)
    parts = []
    for rows in grouped(list(zip(*(one.tolist() for one in columns), strict=True))).values():
        part = cases.take(rows)
        strategy = part.strategy_at(0)
        try:
            steps = split_steps(part, alone.take(rows), strategy, calibration=calibration)
        except PacelineError as error:
            steps = Steps.refused(len(rows), error)
        parts.append((places[rows], steps))
    return parts


def _lengths(cases: Cases) -> Lengths:
    """What each row asks of a rank."""
    jobs = cases.jobs
    return Lengths(
        batch=cases.batch,
        seq=cases.of_jobs([one.length for one in jobs]),
        prompt=cases.of_jobs([one.prompt_tokens or 0 for one in jobs]),
        output=cases.of_jobs([one.output_tokens or 0 for one in jobs]),
        rounds=cases.of_jobs([one.rounds for one in jobs]),
    )
