"""`simulate`: the step, memory and energy of every job on its machine."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from paceline.errors import InvalidInputError, PacelineError
from paceline.parallel.legality import check_strategy
from paceline.parallel.split.sequence import check_sequence
from paceline.parallel.strategy import MeshAxis, Strategy
from paceline.predict import Calibration, DeviceTable
from paceline.simulation.blocks import split_steps
from paceline.simulation.cases import Cases, grouped, num_replicas
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.rank import Lengths, RankPasses, rank_steps
from paceline.simulation.replicas import is_replicated, replicated
from paceline.simulation.shared import served
from paceline.simulation.steps import Steps
from paceline.trace.block_names import block_names, layers_of
from paceline.trace.graph import FloatArray, IntArray


def simulate(
    jobs: Sequence[Job], machines: Sequence[Machine], *, calibration: Calibration | None = None
) -> Steps:
    """``jobs[i]`` on ``machines[i]``, a row each; what cannot run has a reason instead of figures.

    Rows that share a workload, its configuration and its profile are evaluated in one call.

    Args:
        jobs: What is run.
        machines: Where.
        calibration: Of the predictor; the built-in one if None.
    """
    cases = Cases.of(jobs, machines)
    refused = _refused(cases)
    legal = np.array([row not in refused for row in range(len(cases))], dtype=bool)
    kept = np.flatnonzero(legal)
    parts = [(kept, simulate_cases(cases.take(kept), calibration=calibration))]
    parts += [(np.array([row]), Steps.refused(1, error)) for row, error in refused.items()]
    return Steps.joined(parts, len(cases))


def simulate_cases(cases: Cases, *, calibration: Calibration | None = None) -> Steps:
    """Every row of a table whose strategies are legal where they stand.

    Args:
        cases: Jobs and machines.
        calibration: Of the predictor; the built-in one if None.
    """
    parts = []
    jobs_of = grouped([_alike(job) for job in cases.jobs])
    for jobs in jobs_of.values():
        rows = np.flatnonzero(np.isin(cases.job, jobs))
        if len(rows):
            part = cases.take(rows)
            try:
                steps = _of_one_rank(part, calibration)
            except PacelineError as error:
                steps = Steps.refused(len(rows), error)
            parts.append((rows, steps))
    return Steps.joined(parts, len(cases))


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
    if strategy.size("cp") > 1:
        check_sequence(graph)
    _check_length(strategy, job.length)


def _refused(cases: Cases) -> dict[int, PacelineError]:
    """Rows that cannot run, each with the reason."""
    pairs = grouped(list(zip(cases.job.tolist(), cases.machine.tolist(), strict=True)))
    refused: dict[int, PacelineError] = {}
    for (job, machine), rows in pairs.items():
        try:
            check_legal(cases.jobs[job], cases.machines[machine])
        except PacelineError as error:
            refused |= dict.fromkeys(rows.tolist(), error)
    return refused


def _check_length(strategy: Strategy, seq: int) -> None:
    """Each context rank takes a first and a last piece, so that causal work is equal.

    Under sequence parallel tensor ranks cut theirs once more.
    """
    pieces = 2 * strategy.size("cp") if strategy.size("cp") > 1 else 1
    pieces *= strategy.size("tp") if strategy.sequence_parallel else 1
    if seq % pieces:
        raise InvalidInputError(
            f"`{strategy}` cuts each sequence into {pieces} pieces; {seq} does not divide",
            hint=f"take a sequence length that is a multiple of {pieces}, or smaller degrees",
        )


def _tensor(job: Job) -> int:
    """Ranks that share each layer of a pass that is cut as a whole."""
    return job.strategy.size("tp") if job.workload.task == "infer" else 1


def _alike(job: Job) -> Hashable:
    """What jobs have in common whose ranks run the same."""
    seq = job.seq if job.workload.task == "train" else None
    return job.workload, job.how, _tensor(job), job.profile, seq


def _of_one_rank(cases: Cases, calibration: Calibration | None) -> Steps:
    """Rows whose ranks run the same passes."""
    job = cases.jobs[int(cases.job[0])]
    tensor = _tensor(job)
    passes = RankPasses.of(job.workload, job.how, tensor=tensor, profile=job.profile)
    asked = _lengths(cases)
    alone = _alone(cases, passes, asked, calibration)
    if job.workload.task == "infer":
        return served(cases, passes, alone, asked, tensor=tensor)
    is_plain = np.array([_is_plain(one) for one in cases.jobs])[cases.job]
    parts = []
    if is_plain.any():
        rows = np.flatnonzero(is_plain)
        parts.append(
            (rows, replicated(cases.take(rows), passes, alone.take(rows), seq=asked.seq[rows]))
        )
    rest = np.flatnonzero(~is_plain)
    parts += _split(cases.take(rest), alone.take(rest), rest, calibration) if len(rest) else []
    return Steps.joined(parts, len(cases))


def _is_plain(job: Job) -> bool:
    return is_replicated(job.strategy) and "gathers-ahead" not in job.habits


def _split(
    cases: Cases, alone: Steps, places: IntArray, calibration: Calibration | None
) -> list[tuple[IntArray, Steps]]:
    """Rows by job, machine and strategy, each at its place."""
    columns = (cases.job, cases.machine, cases.replicas, cases.microbatches)
    parts = []
    for rows in grouped(list(zip(*(one.tolist() for one in columns), strict=True))).values():
        part = cases.take(rows)
        strategy = _strategy(part)
        try:
            steps = split_steps(part, alone.take(rows), strategy, calibration=calibration)
        except PacelineError as error:
            steps = Steps.refused(len(rows), error)
        parts.append((places[rows], steps))
    return parts


def _strategy(cases: Cases) -> Strategy:
    """Of rows that are alike, with the replicas and microbatches of their columns."""
    strategy = cases.jobs[int(cases.job[0])].strategy
    replicas, count = int(cases.replicas[0]), int(cases.microbatches[0])
    if replicas == num_replicas(strategy) and count == strategy.schedule.num_microbatches:
        return strategy
    others = [axis for axis in strategy.mesh if axis.name != "dp"]
    dp = replicas // strategy.size("fsdp")
    place = sum(axis.name == "pp" for axis in others)
    mesh = [*others[:place], MeshAxis(name="dp", size=dp), *others[place:]] if dp > 1 else others
    schedule = replace(strategy.schedule, num_microbatches=count)
    return replace(strategy, mesh=tuple(mesh), schedule=schedule)


def _lengths(cases: Cases) -> Lengths:
    """What each row asks of a rank."""
    jobs = cases.jobs
    return Lengths(
        batch=cases.batch,
        seq=cases.of_jobs([one.length for one in jobs]),
        prompt=cases.of_jobs([one.prompt_tokens or 0 for one in jobs]),
        output=cases.of_jobs([one.output_tokens or 0 for one in jobs]),
    )


def _alone(
    cases: Cases, passes: RankPasses, asked: Lengths, calibration: Calibration | None
) -> Steps:
    """A rank's own part of every row: all devices at all points in one call."""
    used = [cases.machines[row].device for row in np.unique(cases.machine).tolist()]
    devices = list({id(one): one for one in used}.values())
    numbers = {id(one): number for number, one in enumerate(devices)}
    device = np.array([numbers.get(id(one.device), -1) for one in cases.machines])[cases.machine]
    columns: FloatArray = np.stack([asked.batch, asked.seq, asked.prompt, asked.output])
    points, of_row = np.unique(columns, axis=1, return_inverse=True)
    batch, seq, prompt, output = points
    steps = rank_steps(
        passes, DeviceTable.from_devices(devices),
        Lengths(batch=batch, seq=seq, prompt=prompt, output=output), calibration=calibration,
    )  # fmt: skip
    return steps.take(device * len(batch) + of_row.reshape(-1))
