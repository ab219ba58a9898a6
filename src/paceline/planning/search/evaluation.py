"""Figures of all candidates at once: step, throughput, time, cost, energy; and which goals hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.engine_sums import engine_sums_of
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.collectives.times import RankGroup
from paceline.parallelism.replicas.data_parallel_work import replicated_step
from paceline.parallelism.serving.answers import exchange_added
from paceline.parallelism.split import Wires
from paceline.parallelism.uncertainty import shared_log_sigmas, sharing_log_sigma, step_log_sigma
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.goal.amounts import Amount
from paceline.planning.goal.chance import normal_quantile
from paceline.planning.goal.goal import Goal
from paceline.planning.places.interruption import (
    Checkpointing,
    interrupted_run,
    interruptions_per_s,
)
from paceline.planning.places.place_table import BoolArray, IntArray, PlaceTable
from paceline.planning.search.candidates import SHARDINGS, CandidateTable
from paceline.units import HOUR_S

if TYPE_CHECKING:
    from paceline.parallelism.search import FoundStrategy

#: Long enough that the first and last interval between saves do not count.
_LONG_JOB_S = 90 * 86_400.0
_NO_CHECKPOINT = Checkpointing(save_s=0.0, restart_s=0.0)

#: Configuration, device and batch of each candidate, as an index into the forecast.
_Cells = tuple[IntArray, IntArray, IntArray]

#: Candidates whose communication is computed at once, which bounds working memory.
_CHUNK = 16_384


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """Medians of all candidates, (num_candidates,) each.

    Attributes:
        step_s: Optimizer step with accumulation, communication and waiting for input, or one
            batch of inference.
        exposed_s: Of it, what communication adds.
        starved_s: Of it, waiting for input.
        efficiency_frac: Throughput against so many single devices.
        log_sigma: Standard deviation of log step time.
        cost_log_sigma: Of log cost, which adds the age of the price.
        global_batch: Items per optimizer step, or in flight on all devices.
        samples_per_s: Of all devices.
        num_steps: Steps of the whole job; 0 if only rates are asked for.
        time_s: To done, set-up and interruptions included; NaN if only rates are asked for.
        run_s: Of it, what scales with the step.
        billed_s: Paid time of each machine; NaN likewise.
        usd_per_hour: Of all machines; NaN without a price.
        cost_usd: To done; NaN as above.
        usd_per_million: Per million samples, without set-up.
        latency_s: Per output token, or of one batch.
        ttft_s: To the first token; NaN where it does not apply.
        energy_j_per_sample: Device energy; NaN if the power is unknown.
        power_w: Rated power of all devices; NaN if unknown.
        heat_w: What warms the user's own room; NaN if unknown.
        pareto_time: What stands for time on the Pareto front.
        pareto_cost: What stands for cost there.
    """

    step_s: FloatArray
    exposed_s: FloatArray
    starved_s: FloatArray
    efficiency_frac: FloatArray
    log_sigma: FloatArray
    cost_log_sigma: FloatArray
    global_batch: IntArray
    samples_per_s: FloatArray
    num_steps: IntArray
    time_s: FloatArray
    run_s: FloatArray
    billed_s: FloatArray
    usd_per_hour: FloatArray
    cost_usd: FloatArray
    usd_per_million: FloatArray
    latency_s: FloatArray
    ttft_s: FloatArray
    energy_j_per_sample: FloatArray
    power_w: FloatArray
    heat_w: FloatArray
    pareto_time: FloatArray
    pareto_cost: FloatArray


def evaluate(
    candidates: CandidateTable,
    places: PlaceTable,
    forecast: Forecast,
    amount: Amount,
    device_link: LinkTable,
    node_link: LinkTable,
    checkpointing: Checkpointing = _NO_CHECKPOINT,
    whole: Sequence[FoundStrategy] = (),
) -> Evaluation:
    """Gather predictions, add communication, and turn steps into time, money and energy.

    Args:
        candidates: What to evaluate.
        places: Where they run.
        forecast: Of one device each.
        amount: The work.
        device_link: Link inside a machine, one row per place.
        node_link: Link between machines, one row per place.
        checkpointing: What saving and restarting costs where machines can be taken back.
        whole: Strategies of the last candidates, whose steps were searched as a whole.
    """
    cell = (candidates.configuration, places.device[candidates.place], candidates.batch)
    tensor = _tensor_times(candidates, places, forecast, device_link, node_link)
    steps = _step_times(candidates, places, forecast, device_link, node_link, tensor, whole)
    num_steps = count_steps(steps.global_batch, amount)
    bill = _bill(candidates, places, num_steps, steps.step_s, checkpointing)
    samples_per_s = steps.global_batch * amount.samples_per_item / steps.step_s
    usd_per_hour = candidates.num_nodes * places.usd_per_hour[candidates.place]
    cost_usd = bill.billed_s * usd_per_hour / HOUR_S
    usd_per_million = bill.paid_frac * usd_per_hour / HOUR_S / samples_per_s * 1e6
    latency_s = _latency_s(forecast, cell, tensor)
    log_sigma = _log_sigma(candidates, places, forecast.log_sigma[cell], device_link, steps, whole)
    pareto_time, pareto_cost = _pareto_axes(
        amount, bill.time_s, cost_usd, samples_per_s, usd_per_million, usd_per_hour, latency_s
    )
    return Evaluation(
        step_s=steps.step_s,
        exposed_s=steps.exposed_s,
        starved_s=steps.starved_s,
        efficiency_frac=steps.alone_s / steps.step_s,
        log_sigma=log_sigma,
        cost_log_sigma=np.hypot(log_sigma, places.price_log_sigma[candidates.place]),
        global_batch=steps.global_batch,
        samples_per_s=samples_per_s,
        num_steps=num_steps,
        time_s=bill.time_s,
        run_s=bill.run_s,
        billed_s=bill.billed_s,
        usd_per_hour=usd_per_hour,
        cost_usd=cost_usd,
        usd_per_million=usd_per_million,
        latency_s=latency_s,
        ttft_s=forecast.ttft_s[cell] + tensor.first_s,
        energy_j_per_sample=_energy_j_per_sample(candidates, places, forecast, cell, amount),
        power_w=candidates.num_devices * places.tdp_w[candidates.place],
        heat_w=candidates.num_nodes * places.heat_w[candidates.place],
        pareto_time=pareto_time,
        pareto_cost=pareto_cost,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _TensorTimes:
    """Tensor-parallel communication, (num_candidates,): first pass, each repeated one, a step."""

    first_s: FloatArray
    repeated_s: FloatArray
    step_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Steps:
    """A step and its parts, (num_candidates,) each: alone on its devices, talking, waiting."""

    alone_s: FloatArray
    exposed_s: FloatArray
    starved_s: FloatArray
    global_batch: IntArray

    @property
    def step_s(self) -> FloatArray:
        """From one update of the weights to the next."""
        return self.alone_s + self.exposed_s + self.starved_s


def _step_times(
    candidates: CandidateTable,
    places: PlaceTable,
    forecast: Forecast,
    device_link: LinkTable,
    node_link: LinkTable,
    tensor: _TensorTimes,
    whole: Sequence[FoundStrategy],
) -> _Steps:
    """Steps of the candidates, those of ``whole``, which come last, as they were searched."""
    batch = forecast.batch[candidates.batch].astype(np.int64)
    alone_s, exposed_s = _steps(candidates, places, forecast, device_link, node_link)
    exposed_s = exposed_s + candidates.microbatches * tensor.step_s
    if whole:
        last = slice(len(candidates) - len(whole), None)
        exposed_s[last] = [one.bubble_s + one.tensor_s + one.exposed_s for one in whole]
        alone_s[last] = [one.step_s for one in whole] - exposed_s[last]
        batch[last] = [one.microbatch for one in whole]
    global_batch = candidates.num_groups * batch * candidates.microbatches
    machine_rate = places.input_samples_per_s[candidates.place]
    input_s = global_batch / candidates.num_nodes / machine_rate
    return _Steps(
        alone_s=alone_s,
        exposed_s=exposed_s,
        starved_s=np.maximum(input_s - (alone_s + exposed_s), 0.0),
        global_batch=global_batch,
    )


def _log_sigma(
    candidates: CandidateTable,
    places: PlaceTable,
    device_log_sigma: FloatArray,
    device_link: LinkTable,
    steps: _Steps,
    whole: Sequence[FoundStrategy],
) -> FloatArray:
    """Spread of log step time; two kinds of device are as sure as the one known less well."""
    sharing = sharing_log_sigma(
        device_link.take(candidates.place),
        np.minimum(candidates.num_devices, places.devices_per_node[candidates.place]),
    )
    device, first = device_log_sigma.copy(), len(candidates) - len(whole)
    for row, one in enumerate(whole, start=first):
        if one.shares:
            device[row], sharing[row] = shared_log_sigmas(one.shares)
    return step_log_sigma(
        device,
        alone_s=steps.alone_s,
        exposed_s=steps.exposed_s,
        starved_s=steps.starved_s,
        sharing_log_sigma=sharing,
    )


def _latency_s(forecast: Forecast, cell: _Cells, tensor: _TensorTimes) -> FloatArray:
    """Of an output token where tokens are generated, else of one batch."""
    is_generated = np.isfinite(forecast.ttft_s[cell])
    added_s = np.where(is_generated, tensor.repeated_s, tensor.step_s)
    return np.asarray(forecast.latency_s[cell] + added_s)


def _energy_j_per_sample(
    candidates: CandidateTable, places: PlaceTable, forecast: Forecast, cell: _Cells, amount: Amount
) -> FloatArray:
    """Energy of all devices that share a batch; unknown where they are of two kinds."""
    batch = forecast.batch[candidates.batch].astype(np.int64)
    degree = forecast.tensor_degree[candidates.configuration]
    energy_j = np.where(places.is_joined[candidates.place], np.nan, forecast.energy_j[cell])
    return np.asarray(energy_j * degree / (batch * amount.samples_per_item))


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
) -> _Bill:
    """Set-up, then steps stretched by interruptions, rounded up to what the provider bills."""
    place = candidates.place
    paid_frac, num_per_s = _stretch(candidates, places, checkpointing)
    work_s = np.where(num_steps > 0, num_steps * step_s, np.nan)
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
    candidates: CandidateTable, places: PlaceTable, checkpointing: Checkpointing
) -> tuple[FloatArray, FloatArray]:
    """Paid time and number of interruptions per second of work, of a job much longer than a save.

    Only a few distinct rates exist, so the formula is asked once for each.
    """
    frac = places.interruption_frac_per_month[candidates.place]
    paid, events = np.ones(len(candidates)), np.zeros(len(candidates))
    rows = np.flatnonzero(frac > 0)
    pairs, inverse = np.unique(
        np.stack([frac[rows], candidates.num_nodes[rows]]), axis=1, return_inverse=True
    )
    for number, (rate, num_nodes) in enumerate(pairs.T.tolist()):
        run = interrupted_run(_LONG_JOB_S, checkpointing, interruptions_per_s(rate, int(num_nodes)))
        alike = rows[inverse.reshape(-1) == number]
        paid[alike] = run.paid_s / _LONG_JOB_S
        events[alike] = run.num_interruptions / _LONG_JOB_S
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


def _steps(
    candidates: CandidateTable,
    places: PlaceTable,
    forecast: Forecast,
    device_link: LinkTable,
    node_link: LinkTable,
) -> tuple[FloatArray, FloatArray]:
    """Step without communication, and what communication adds to it.

    Ranks of a machine that belong to different groups share its network.
    """
    cell = (candidates.configuration, places.device[candidates.place], candidates.batch)
    alone_s = candidates.microbatches * forecast.step_s[cell]
    exposed_s = np.zeros_like(alone_s)
    for rows in _trained_alike(candidates, forecast):
        one = tuple(index[rows] for index in cell)
        place, configuration = candidates.place[rows], int(one[0][0])
        degree = forecast.tensor_degree[configuration]
        step = replicated_step(
            forecast.replicas[configuration],
            alone_s=forecast.step_s[one],
            backward_s=forecast.backward_s[one],
            update_s=forecast.update_s[one],
            microbatches=candidates.microbatches[rows],
            num_ranks=candidates.num_groups[rows],
            ranks_per_node=places.devices_per_node[place] // degree,
            device_link=device_link.take(place),
            node_link=node_link.take(place),
            sharding=SHARDINGS[int(candidates.sharding[rows[0]])],
            node_share_frac=1.0 / degree,
        )
        alone_s[rows], exposed_s[rows] = step.compute_s, step.exposed_s
    return alone_s, exposed_s


def _trained_alike(candidates: CandidateTable, forecast: Forecast) -> Iterator[IntArray]:
    """Rows that train with one configuration and sharding, as many as are computed at once."""
    trains = np.array([work.gradient_bytes > 0 for work in forecast.replicas])
    rows = np.flatnonzero(trains[candidates.configuration])
    kinds = candidates.configuration[rows] * len(SHARDINGS) + candidates.sharding[rows]
    for kind in np.unique(kinds).tolist():
        alike = rows[kinds == kind]
        yield from (alike[start : start + _CHUNK] for start in range(0, len(alike), _CHUNK))


def _tensor_times(
    candidates: CandidateTable,
    places: PlaceTable,
    forecast: Forecast,
    device_link: LinkTable,
    node_link: LinkTable,
) -> _TensorTimes:
    first_s, repeated_s, total_s = (np.zeros(len(candidates)) for _ in range(3))
    for configuration in np.flatnonzero(forecast.tensor_degree > 1).tolist():
        rows = np.flatnonzero(candidates.configuration == configuration)
        if not len(rows):
            continue
        place, calls = candidates.place[rows], forecast.tensor_calls[configuration]
        group = RankGroup.of(
            np.full(len(rows), float(forecast.tensor_degree[configuration])),
            places.devices_per_node[place],
            device_link.take(place),
            node_link.take(place),
        )
        sums = engine_sums_of(group.device, kernel=calls.kernel)
        wires = Wires(groups={"tensor": group}, engine_sums=sums)
        seconds = [
            one.total_s(candidates.batch[rows], wires) for one in (calls.first, calls.repeated)
        ]
        added_s = (*seconds, seconds[0] + calls.num_repeats * seconds[1])
        if forecast.configurations[configuration].is_served:
            added_s = _added_to_answers(candidates.take(rows), places, forecast, *seconds)
        first_s[rows], repeated_s[rows], total_s[rows] = added_s
    return _TensorTimes(first_s=first_s, repeated_s=repeated_s, step_s=total_s)


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
    none = np.zeros_like(e.log_sigma)
    spent = _spent(e, amount)
    demand = max(goal.min_samples_per_s or 0.0, amount.samples_per_s or 0.0)
    slowest_s = 1.0 / demand if demand else None
    served = "--throughput" if goal.min_samples_per_s else "--rps"
    z = normal_quantile(goal.confidence)
    limits = (
        ("misses the deadline", "--deadline", goal.deadline_s, e.time_s - e.run_s, e.run_s,
         e.log_sigma),
        ("over the budget", "--budget", goal.budget_usd, *spent),
        ("too high a latency", "--latency", goal.latency_s, none, e.latency_s, e.log_sigma),
        ("first token too late", "--ttft", goal.ttft_s, none, e.ttft_s, e.log_sigma),
        ("too low a throughput", served, slowest_s, none, 1.0 / e.samples_per_s, e.log_sigma),
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
        run_usd = e.cost_usd * e.run_s / e.time_s
        return e.cost_usd - run_usd, run_usd, e.cost_log_sigma
    none = np.zeros_like(e.log_sigma)
    if amount.samples_per_s is None:
        return none, e.pareto_cost, e.cost_log_sigma
    price_log_sigma = np.sqrt(np.maximum(e.cost_log_sigma**2 - e.log_sigma**2, 0.0))
    return none, e.pareto_cost, price_log_sigma


def objective_values(evaluation: Evaluation, goal: Goal) -> FloatArray:
    """What is to be small: cost, time, energy, or cost per throughput."""
    by_name: Mapping[str, FloatArray] = {
        "cost": evaluation.pareto_cost,
        "time": evaluation.pareto_time,
        "energy": evaluation.energy_j_per_sample,
        "performance-per-usd": evaluation.usd_per_million,
    }
    return by_name[objective_name(goal)]


def objective_name(goal: Goal) -> str:
    """The objective with ``auto`` resolved: time under a budget alone, else cost."""
    if goal.objective != "auto":
        return goal.objective
    return "time" if goal.budget_usd is not None and goal.deadline_s is None else "cost"


def _added_to_answers(
    candidates: CandidateTable,
    places: PlaceTable,
    forecast: Forecast,
    prompt_s: FloatArray,
    token_s: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What exchanging adds where an engine reads prompts meanwhile."""
    assert forecast.runs is not None
    assert forecast.engine is not None
    cell = (candidates.configuration, places.device[candidates.place], candidates.batch)
    return exchange_added(
        forecast.runs.take(candidates.batch),
        forecast.engine_passes(cell),
        forecast.engine,
        prompt_s=prompt_s,
        token_s=token_s,
    )
