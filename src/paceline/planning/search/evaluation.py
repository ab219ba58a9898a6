"""Figures of all candidates at once: step, throughput, time, cost, energy; and which goals hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from paceline.model.graph.distinct import distinct_columns
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.steps import Steps
from paceline.parallelism.uncertainty import step_log_sigma
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.goal.amounts import Amount
from paceline.planning.goal.chance import Z_80
from paceline.planning.goal.goal import Goal
from paceline.planning.places.interruption import (
    Checkpointing,
    interrupted_run,
    interruptions_per_s,
)
from paceline.planning.places.place_table import BoolArray, IntArray, PlaceTable
from paceline.planning.places.whole_job import NO_OVERHEADS, Overheads
from paceline.planning.search.candidates import CandidateTable
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.kernels.power import idle_power_w
from paceline.prediction.uncertainty.normal import normal_quantile
from paceline.shipped import shipped_rows
from paceline.units import HOUR_S
from paceline.values import dataclass

#: Nobody takes another plan for a smaller share of a job's cost, or of its time.
MATTERS_FRAC = 0.1
#: Long enough that the first and last interval between saves do not count.
_LONG_JOB_S = 90 * 86_400.0
_NO_CHECKPOINT = Checkpointing(save_s=0.0, restart_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """Medians of all candidates, (num_candidates,) each.

    Attributes:
        steps: As they run, waiting for input included.
        starved_s: Of ``steps.step_s``, that waiting.
        efficiency_frac: Throughput against so many single devices.
        cost_log_sigma: Standard deviation of log cost, which adds the age of the price.
        samples_per_s: Of all devices.
        num_steps: Steps of the whole job; 0 if only rates are asked for.
        time_s: To done, set-up and interruptions included; NaN if only rates are asked for.
        run_s: Of it, what scales with the step.
        billed_s: Paid time of each machine; NaN likewise.
        usd_per_hour: Of all machines; NaN without a price.
        cost_usd: To done, files kept and taken out included; NaN as above.
        spread_usd: Of it, what scales with the step; NaN likewise.
        beside_usd: Of it, what no price of machines changes: files kept and taken out; 0 without.
        usd_per_million: Per million samples, without set-up.
        energy_j_per_sample: Device energy; NaN if the power is unknown.
        power_w: Rated power of all devices; NaN if unknown.
        heat_w: What warms the user's own room; NaN if unknown.
        pareto_time: What stands for time on the Pareto front.
        pareto_cost: What stands for cost there.
    """

    steps: Steps
    starved_s: FloatArray
    efficiency_frac: FloatArray
    cost_log_sigma: FloatArray
    samples_per_s: FloatArray
    num_steps: IntArray
    time_s: FloatArray
    run_s: FloatArray
    billed_s: FloatArray
    usd_per_hour: FloatArray
    cost_usd: FloatArray
    spread_usd: FloatArray
    beside_usd: FloatArray
    usd_per_million: FloatArray
    energy_j_per_sample: FloatArray
    power_w: FloatArray
    heat_w: FloatArray
    pareto_time: FloatArray
    pareto_cost: FloatArray


def evaluate(
    candidates: CandidateTable,
    places: PlaceTable,
    forecast: Forecast,
    steps: Steps,
    amount: Amount,
    checkpointing: Checkpointing = _NO_CHECKPOINT,
    overheads: Overheads = NO_OVERHEADS,
    calibration: Calibration | None = None,
) -> Evaluation:
    """Turn steps into time, money and energy.

    Args:
        candidates: What to evaluate.
        places: Where they run.
        forecast: Of one device each.
        steps: Of the candidates, fed fast enough.
        amount: The work.
        checkpointing: What saving on one machine and restarting costs.
        overheads: What the job does beside its steps.
        calibration: Of the power that devices draw; the built-in one if None.
    """
    calibration = calibration or builtin_calibration()
    starved_s = _starved_s(candidates, places, steps)
    alone_s = np.where(np.isfinite(steps.step_s), steps.step_s - steps.lost_s, 0.0)
    steps = _waiting(steps, alone_s, starved_s)
    num_steps = count_steps(candidates.global_batch, amount)
    bill = _bill(candidates, places, num_steps, steps.step_s, checkpointing, overheads)
    samples_per_s = candidates.global_batch * amount.samples_per_item / steps.step_s
    usd_per_hour = candidates.num_nodes * places.usd_per_hour[candidates.place]
    kept_usd = places.storage_usd_per_s[candidates.place] * np.nan_to_num(bill.time_s)
    taken_out_usd = places.egress_usd[candidates.place]
    paid_usd = bill.billed_s * usd_per_hour / HOUR_S + kept_usd
    cost_usd = paid_usd + taken_out_usd
    usd_per_million = bill.paid_frac * usd_per_hour / HOUR_S / samples_per_s * 1e6
    # What is paid whole costs the same however long the steps take.
    is_whole = bill.billed_s <= places.minimum_s[candidates.place]
    cost_log_sigma = np.hypot(
        np.where(is_whole, 0.0, steps.log_sigma), places.price_log_sigma[candidates.place]
    )
    pareto_time, pareto_cost = _pareto_axes(
        amount, bill.time_s, cost_usd, samples_per_s, usd_per_million, usd_per_hour,
        steps.per_token_s,
    )  # fmt: skip
    return Evaluation(
        steps=steps,
        starved_s=starved_s,
        efficiency_frac=alone_s / steps.step_s,
        cost_log_sigma=cost_log_sigma,
        samples_per_s=samples_per_s,
        num_steps=num_steps,
        time_s=bill.time_s,
        run_s=bill.run_s,
        billed_s=bill.billed_s,
        usd_per_hour=usd_per_hour,
        cost_usd=cost_usd,
        spread_usd=np.where(is_whole, paid_usd, paid_usd * bill.run_s / bill.time_s),
        beside_usd=kept_usd + taken_out_usd,
        usd_per_million=usd_per_million,
        energy_j_per_sample=_energy_j_per_sample(
            candidates,
            places,
            forecast,
            amount,
            steps.step_s,
            idle_power_w(places.tdp_w, calibration),
        ),
        power_w=candidates.num_devices * places.tdp_w[candidates.place],
        heat_w=candidates.num_nodes * places.heat_w[candidates.place],
        pareto_time=pareto_time,
        pareto_cost=pareto_cost,
    )


def _starved_s(candidates: CandidateTable, places: PlaceTable, steps: Steps) -> FloatArray:
    """What a step waits for its input."""
    machine_rate = places.input_samples_per_s[candidates.place]
    input_s = candidates.global_batch / candidates.num_nodes / machine_rate
    return np.maximum(input_s - steps.step_s, 0.0)


def _waiting(steps: Steps, alone_s: FloatArray, starved_s: FloatArray) -> Steps:
    """The steps with what they wait for input; the interval of one that does not is its own."""
    log_sigma = step_log_sigma(
        steps.device_log_sigma, alone_s=alone_s, exposed_s=steps.lost_s, starved_s=starved_s,
        sharing_log_sigma=steps.sharing_log_sigma,
    )  # fmt: skip
    return replace(steps, step_s=steps.step_s + starved_s).with_spread(log_sigma, steps)


def _energy_j_per_sample(
    candidates: CandidateTable, places: PlaceTable, forecast: Forecast, amount: Amount,
    step_s: FloatArray, idle_w: FloatArray,
) -> FloatArray:  # fmt: skip
    """Energy of all devices over a whole step, per sample; unknown where they are of two kinds.

    Devices work as long as their batches take, and wait for the rest of the step: for one another,
    for their input, for an update on the host.
    """
    place = candidates.place
    cell = (candidates.configuration, places.device[place], candidates.batch)
    num_batches = candidates.global_batch / forecast.batch[cell[2]]
    num_batches = num_batches * forecast.tensor_degree[candidates.configuration]
    busy_s = num_batches * forecast.steps.step_s[cell]
    waiting_s = np.maximum(candidates.num_devices * step_s - busy_s, 0.0)
    energy_j = num_batches * forecast.steps.energy_j[cell] + waiting_s * idle_w[place]
    per_sample_j = energy_j / (candidates.global_batch * amount.samples_per_item)
    return np.where(places.is_joined[place], np.nan, per_sample_j)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Bill:
    """Time as it passes and as it is paid, (num_candidates,) each; NaN without work."""

    time_s: FloatArray
    run_s: FloatArray
    billed_s: FloatArray
    paid_frac: FloatArray


def _bill(
    candidates: CandidateTable,
    places: PlaceTable,
    num_steps: IntArray,
    step_s: FloatArray,
    checkpointing: Checkpointing,
    overheads: Overheads,
) -> _Bill:
    """Set-up, then steps and evaluations stretched by interruptions, as the provider bills them."""
    place = candidates.place
    paid_frac, num_per_s = _stretch(candidates, places, checkpointing, overheads.device_mtbf_s)
    evaluated = 1.0 + overheads.evaluation_frac
    work_s = np.where(num_steps > 0, num_steps * step_s * evaluated, np.nan)
    paid_s = places.setup_s[place] + work_s * paid_frac
    waits_s = work_s * num_per_s * places.wait_s[place]
    granularity_s = places.granularity_s[place]
    billed_s = np.ceil(np.round(paid_s / granularity_s, 9)) * granularity_s
    return _Bill(
        time_s=paid_s + waits_s,
        run_s=work_s * paid_frac + waits_s,
        billed_s=np.maximum(billed_s, places.minimum_s[place]),
        paid_frac=paid_frac,
    )


def _stretch(
    candidates: CandidateTable,
    places: PlaceTable,
    checkpointing: Checkpointing,
    device_mtbf_s: float,
) -> tuple[FloatArray, FloatArray]:
    """Paid time and number of interruptions per second of work, of a job much longer than a save.

    Machines are taken back, and devices fail; each machine saves its part of the state. Only a few
    distinct rates exist, so the formula is asked once for each.
    """
    frac = places.interruption_frac_per_month[candidates.place]
    paid, events = np.ones(len(candidates)), np.zeros(len(candidates))
    rows = np.flatnonzero((frac > 0) | math.isfinite(device_mtbf_s))
    columns = (frac[rows], candidates.num_nodes[rows], candidates.num_devices[rows])
    first, of_row = distinct_columns(columns)
    found = np.zeros((2, len(first)))
    for number, key in enumerate(zip(*(column[first].tolist() for column in columns), strict=True)):
        taken, num_nodes, num_devices = key
        per_s = interruptions_per_s(taken, num_nodes) + num_devices / device_mtbf_s
        saving = replace(checkpointing, save_s=checkpointing.save_s / num_nodes)
        run = interrupted_run(_LONG_JOB_S, saving, per_s)
        found[:, number] = run.paid_s / _LONG_JOB_S, run.num_interruptions / _LONG_JOB_S
    paid[rows], events[rows] = found[:, of_row]
    return paid, events


def count_steps(global_batch: IntArray, amount: Amount) -> IntArray:
    """Steps of the whole job, exactly: the last, partial batch of an epoch is a step of its own.

    A fraction of an epoch is rounded up to whole steps. Without an amount of work there are none.
    """
    if amount.items_per_epoch is None:
        return np.zeros_like(global_batch)
    per_epoch = -(-amount.items_per_epoch // global_batch)
    return np.asarray(np.ceil(per_epoch * amount.num_epochs - 1e-9), dtype=np.int64)


def _pareto_axes(
    amount: Amount,
    time_s: FloatArray,
    cost_usd: FloatArray,
    samples_per_s: FloatArray,
    usd_per_million: FloatArray,
    usd_per_hour: FloatArray,
    latency_s: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Time and cost of the job.

    Of a served stream, latency and the price per hour; of a rate, seconds and dollars per sample.
    """
    if amount.samples_per_s is not None:
        return latency_s, usd_per_hour
    if amount.items_per_epoch is not None:
        return time_s, cost_usd
    return 1.0 / samples_per_s, usd_per_million


#: Options that state a power, as words.
IN_WATTS = {"--power-limit": "a power limit", "--cooling-limit": "a cooling limit"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Constraint:
    """One constraint over all candidates.

    The quantity is a fixed part and a log-normal one.

    Attributes:
        kind: What a candidate that fails it does, as words: ``misses the deadline`` …
        option: The option that states it.
        limit: In SI units.
        fixed: The part without spread, (num_candidates,), as the rest.
        median: Median of the log-normal part.
        log_sigma: Standard deviation of its logarithm.
        value: What must not pass the limit, at the stated chance.
    """

    kind: str
    option: str
    limit: float
    fixed: FloatArray
    median: FloatArray
    log_sigma: FloatArray
    value: FloatArray

    @property
    def is_met(self) -> BoolArray:
        """Whether it holds at the stated chance; what is unknown does not, (num_candidates,)."""
        return np.asarray(self.value <= self.limit)


def constraints(evaluation: Evaluation, goal: Goal, amount: Amount) -> tuple[Constraint, ...]:
    """The constraints that the goal states, each at its chance."""
    e = evaluation
    none, log_sigma = np.zeros_like(e.starved_s), e.steps.log_sigma
    spent = _spent(e, amount)
    demand = max(goal.min_samples_per_s or 0.0, amount.samples_per_s or 0.0)
    slowest_s = 1.0 / demand if demand else None
    served = "--throughput" if goal.min_samples_per_s else "--rps"
    z = normal_quantile(goal.confidence)
    limits = (
        ("misses the deadline", "--deadline", goal.deadline_s, e.time_s - e.run_s, e.run_s,
         log_sigma),
        ("over the budget", "--budget", goal.budget_usd, *spent),
        ("too high a latency", "--latency", goal.latency_s, none, e.steps.per_token_s, log_sigma),
        ("first token too late", "--ttft", goal.ttft_s, none, e.steps.first_token_s, log_sigma),
        ("too low a throughput", served, slowest_s, none, 1.0 / e.samples_per_s, log_sigma),
        ("over the power limit", "--power-limit", goal.power_limit_w, none, e.power_w, none),
        ("too hot for the room", "--cooling-limit", goal.cooling_limit_w, none, e.heat_w, none),
    )  # fmt: skip
    return tuple(
        Constraint(
            kind=kind,
            option=option,
            limit=limit,
            fixed=fixed,
            median=median,
            log_sigma=sigma,
            value=fixed + median * np.exp(z * sigma),
        )
        for kind, option, limit, fixed, median, sigma in limits
        if limit is not None
    )


def _spent(evaluation: Evaluation, amount: Amount) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What a budget limits, fixed and with its spread: the job, else what stands for its cost.

    A stream without end is paid by the hour, whatever a step takes; a rate by the million samples.
    """
    e = evaluation
    if amount.items_per_epoch is not None:
        return e.cost_usd - e.spread_usd, e.spread_usd, e.cost_log_sigma
    none = np.zeros_like(e.starved_s)
    if amount.samples_per_s is None:
        return none, e.pareto_cost, e.cost_log_sigma
    price_log_sigma = np.sqrt(np.maximum(e.cost_log_sigma**2 - e.steps.log_sigma**2, 0.0))
    return none, e.pareto_cost, price_log_sigma


def objective_values(evaluation: Evaluation, goal: Goal) -> FloatArray:
    """What is to be small: cost, time, energy, or cost per throughput."""
    by_name: Mapping[str, FloatArray] = {
        "cost": evaluation.pareto_cost,
        "time": evaluation.pareto_time,
        "balanced": balanced_usd(evaluation, goal),
        "energy": evaluation.energy_j_per_sample,
        "performance-per-usd": evaluation.usd_per_million,
    }
    return by_name[objective_name(goal)]


def objective_log_sigma(evaluation: Evaluation, goal: Goal) -> FloatArray:
    """Standard deviation of the log objective of all candidates, (num_candidates,).

    An hour of serving is paid for as many machines as keep the rate, which is as unsure as a step.
    """
    e, name = evaluation, objective_name(goal)
    log_sigma = e.steps.log_sigma if name in ("time", "energy") else e.cost_log_sigma
    if name in ("energy", "performance-per-usd"):
        return log_sigma
    run_frac = np.where(np.isfinite(e.time_s), e.run_s / e.time_s, 1.0)
    high = 1.0 - run_frac + run_frac * np.exp(Z_80 * log_sigma)
    low = 1.0 - run_frac + run_frac * np.exp(-Z_80 * log_sigma)
    return np.asarray(np.log(high / low) / (2.0 * Z_80))


def balanced_usd(evaluation: Evaluation, goal: Goal) -> FloatArray:
    """Cost with every hour at what it is worth: of the job, or of a million samples."""
    is_job = np.isfinite(evaluation.time_s)
    waited_s = np.where(is_job, evaluation.pareto_time, 1e6 * evaluation.pareto_time)
    return np.asarray(evaluation.pareto_cost + hour_value_usd(goal) * waited_s / HOUR_S)


def hour_value_usd(goal: Goal) -> float:
    """What an hour is worth: as stated, else what a developer costs (``data/hour_value.csv``)."""
    if goal.hour_value_usd is not None:
        return goal.hour_value_usd
    return float(shipped_rows("planning", "hour_value.csv")[0]["usd_per_hour"])


def objective_name(goal: Goal) -> str:
    """The objective with ``auto`` resolved: time under a budget alone, else cost."""
    if goal.objective != "auto":
        return goal.objective
    return "time" if goal.budget_usd is not None and goal.deadline_s is None else "cost"
