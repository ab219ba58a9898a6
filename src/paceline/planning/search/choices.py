"""A candidate row as a complete, printable choice."""

from __future__ import annotations

import math

import numpy as np

from paceline.dtypes import find_precision
from paceline.parallelism.memory import memory_fit
from paceline.parallelism.strategy.strategy import SEARCHED_SHARDINGS, Schedule, Strategy
from paceline.parallelism.uncertainty import energy_interval_of, interval_of
from paceline.planfile import (
    Interval,
    PlannedChoice,
    PlannedPlace,
    PlannedService,
    PlannedShare,
)
from paceline.planning.goal.amounts import is_generation
from paceline.planning.places.configurations import widens_fp8
from paceline.planning.places.own_machines import is_part
from paceline.planning.places.place_table import num_devices
from paceline.planning.places.places import Place
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.selection import standard_margin
from paceline.prediction.prediction import Bound
from paceline.prediction.uncertainty.normal import normal_cdf
from paceline.simulation.held_memory import held_interval
from paceline.simulation.job import Job, usual_habits
from paceline.simulation.queue.figures import ServiceFigures


def planned_choice(search: Search, row: int) -> PlannedChoice:
    """The choice at a row of the candidate table with all its figures and intervals.

    Its words are empty: who ranks it knows its reason, label, remark and notes.
    """
    candidates, evaluation, forecast = search.candidates, search.evaluation, search.forecast
    place = search.found.places[candidates.place[row]]
    cell = cell_of(search, row)
    configuration = forecast.configurations[cell[0]]
    whole = search.whole_job(row)
    num_steps = int(evaluation.num_steps[row])
    global_batch = int(candidates.global_batch[row])
    latency_s, ttft_s = _latency_intervals(search, row)
    is_training = search.workload.task == "train"
    energy_j = _known(float(evaluation.energy_j_per_sample[row]))
    return PlannedChoice(
        place=planned_place(search, row),
        strategy=str(strategy_of(search, row)),
        batch_per_device=-(-global_batch // int(candidates.num_groups[row])),
        microbatches=int(candidates.microbatches[row]),
        global_batch=global_batch,
        precision=configuration.precision,
        compiler=configuration.compiler,
        checkpointing=configuration.checkpointing if whole is None else whole.strategy.recompute,
        channels_last=configuration.channels_last,
        stack=place.stack,
        step_s=step_interval(search, row),
        samples_per_s=_rate_interval(search, row),
        time_s=time_interval(search, row) if num_steps else None,
        cost_usd=cost_interval(search, row) if num_steps else None,
        usd_per_million_samples=interval_of(
            float(evaluation.usd_per_million[row]), float(evaluation.cost_log_sigma[row])
        ),
        energy_j_per_sample=energy_j,
        energy_interval_j_per_sample=energy_interval_of(
            energy_j, float(evaluation.steps.log_sigma[row])
        ),
        power_w=mean_power_w(search, row),
        memory_bytes=_memory_interval(search, row),
        memory_capacity_bytes=float(search.places.memory_bytes[candidates.place[row]]),
        parallel_efficiency_frac=float(evaluation.efficiency_frac[row]),
        latency_s=latency_s,
        ttft_s=ttft_s,
        chance_time=_chance_of(search, row, ("--deadline", "--latency", "--ttft")),
        chance_cost=_chance_of(search, row, ("--budget",)),
        chance_memory=chance_to_fit(search, row),
        bound=bound_word(search, row),
        reason="",
        meets_goal=bool(search.is_feasible[row]),
        num_devices=int(candidates.num_devices[row]),
        optimizer_steps=num_steps if is_training and num_steps else None,
        exposed_communication_s=evaluation.steps.lost_of(row),
        mfu_frac=mfu_frac(search, row),
        shares=_shares(search, row),
        service=_planned_service(search, row),
    )


def _shares(search: Search, row: int) -> tuple[PlannedShare, ...]:
    """What each of two kinds of device does; nothing where all do the same."""
    return tuple(
        PlannedShare(
            device=share.device, num_devices=share.count, items_per_device=share.items_per_device
        )
        for share in search.shares(row)
    )


def _rate_interval(search: Search, row: int) -> Interval:
    """Samples per second, slow where the step is long; of a service what it does at most."""
    if (service := _service(search, row)) is not None:
        per_request = search.job.amount.samples_per_item
        return Interval(
            low=service.capacity_low_per_s * per_request,
            mid=service.capacity_per_s * per_request,
            high=service.capacity_high_per_s * per_request,
        )
    step = step_interval(search, row)
    global_batch = int(search.candidates.global_batch[row])
    samples_per_step = global_batch * search.job.amount.samples_per_item
    return Interval(
        low=samples_per_step / step.high,
        mid=float(search.evaluation.samples_per_s[row]),
        high=samples_per_step / step.low,
    )


def _latency_intervals(search: Search, row: int) -> tuple[Interval | None, Interval | None]:
    """Latency, None in training, and time to the first token, None where none is generated.

    Of a service that was simulated both are those of the goal's percentile of requests.
    """
    if (service := _service(search, row)) is not None:
        low, mid, high = service.seconds("per_token", search.goal.percentile)
        latency = Interval(low=low, mid=mid, high=high)
        low, mid, high = service.seconds("first_token", search.goal.percentile)
        return latency, Interval(low=low, mid=mid, high=high) if service.writes else None
    log_sigma = float(search.evaluation.steps.log_sigma[row])
    latency_s = float(search.evaluation.steps.per_token_s[row])
    ttft_s = float(search.evaluation.steps.first_token_s[row])
    return (
        None if search.workload.task == "train" else interval_of(latency_s, log_sigma),
        interval_of(ttft_s, log_sigma) if is_generation(search.workload) else None,
    )


def _service(search: Search, row: int) -> ServiceFigures | None:
    found = search.services.get(row)
    return found if isinstance(found, ServiceFigures) else None


def _planned_service(search: Search, row: int) -> PlannedService | None:
    """How the requests of a service are answered; None of what was not simulated."""
    found, rate = _service(search, row), search.work.requests_per_s
    if found is None or rate is None:
        return None
    engine = search.forecast.configured[search.candidates.configuration[row]].engine
    limits = found.limits
    return PlannedService(
        engine="" if engine is None else str(engine),
        num_replicas=found.num_replicas,
        num_ranks=found.num_ranks,
        max_requests=None if limits is None else limits.max_requests,
        chunk_tokens=None if limits is None else limits.chunk_tokens,
        memory_frac=None if limits is None else limits.memory_frac,
        percentile=search.goal.percentile,
        requests_per_s=rate,
        length_spread=search.work.length_spread or 0.0,
        cache_format="fp8" if found.service.job.how.cache_format == "fp8" else "",
        weight_format="fp8" if widens_weights(search, row) else "",
        prefix_share=search.workload.prefix_share,
        adapters=str(search.workload.adapters or ""),
        speculation=str(search.workload.speculation or ""),
        capacity_requests_per_s=Interval(
            low=found.capacity_low_per_s, mid=found.capacity_per_s, high=found.capacity_high_per_s
        ),
    )


def widens_weights(search: Search, row: int) -> bool:
    """Whether a candidate's weights stay in FP8, and its products are wider."""
    configured = search.forecast.configured[search.candidates.configuration[row]]
    return widens_fp8(configured, place_of(search, row).device, search.goal)


def cell_of(search: Search, row: int) -> tuple[int, int, int]:
    """Configuration, device and batch of a candidate, as an index into the forecast."""
    candidates = search.candidates
    device = search.places.device[candidates.place[row]]
    return int(candidates.configuration[row]), int(device), int(candidates.batch[row])


def place_of(search: Search, row: int) -> Place:
    """The place of a candidate."""
    return search.found.places[int(search.candidates.place[row])]


def strategy_of(search: Search, row: int) -> Strategy:
    """The strategy of a candidate."""
    candidates, forecast = search.candidates, search.forecast
    whole = search.whole_job(row)
    if whole is not None:
        return whole.strategy
    configuration = candidates.configuration[row]
    one = forecast.configured[configuration]
    num_groups = int(candidates.num_groups[row]) // (one.stages * one.experts)
    own = Schedule(num_microbatches=int(candidates.microbatches[row]))
    return Strategy.from_degrees(
        dp=num_groups,
        tp=int(forecast.tensor_degree[configuration]),
        pp=one.stages,
        ep=one.experts,
        sharding=SEARCHED_SHARDINGS[candidates.sharding[row]] if num_groups > 1 else "none",
        schedule=own if one.stages == 1 else Schedule.filled(one.stages),
        recompute=forecast.configurations[configuration].checkpointing,
    )


def planned_place(search: Search, row: int) -> PlannedPlace:
    """Where a candidate runs, at the price of all its machines."""
    place = place_of(search, row)
    offer = place.offer
    link = place.links.device
    return PlannedPlace(
        offer=offer.name,
        cloud=offer.cloud,
        instance_type=offer.instance_type,
        region=offer.region,
        is_spot=place.is_spot,
        term=place.term,
        usd_per_hour=float(search.evaluation.usd_per_hour[row]),
        priced_on=place.priced_on.isoformat() if place.priced_on else None,
        source=offer.source.text,
        device=offer.accelerator if place.parts else offer.device_name or place.device.name,
        num_nodes=int(search.candidates.num_nodes[row]),
        devices_per_node=_devices_per_node(place),
        num_vcpus_per_node=offer.num_vcpus,
        host_memory_bytes_per_node=offer.host_memory_bytes,
        interconnect=link.name if link else offer.interconnect,
        network_bytes_per_s=offer.network_bytes_per_s,
        interruption_frac_per_month=offer.interruption_frac_per_month if place.is_spot else None,
    )


def step_interval(search: Search, row: int) -> Interval:
    """80 % interval of the step."""
    return search.evaluation.steps.step_interval_s(row)


def bound_word(search: Search, row: int) -> str:
    """What holds a candidate back, as a word."""
    if search.evaluation.starved_s[row] > 0:
        return "input"
    if search.evaluation.steps.waits_for_ranks(row):
        return "communication"
    return Bound(int(search.forecast.steps.bound[cell_of(search, row)])).name.lower()


def mfu_frac(search: Search, row: int) -> float | None:
    """FLOP of the step over what the devices' dense peak allows; None where none is known."""
    cell = configuration, _, batch = cell_of(search, row)
    device = place_of(search, row).device
    precision = find_precision(search.forecast.configurations[configuration].precision)
    if place_of(search, row).parts:
        return None
    forecast = search.forecast
    whole_flop = float(forecast.steps.flop[cell] * forecast.tensor_degree[configuration])
    flop = whole_flop / float(forecast.batch[batch]) * float(search.candidates.global_batch[row])
    flop /= float(search.candidates.num_devices[row])
    return device.peak_frac(flop / float(search.evaluation.steps.step_s[row]), precision)


def time_interval(search: Search, row: int) -> Interval:
    """Set-up is certain, the run as uncertain as its step."""
    evaluation = search.evaluation
    mid, run = float(evaluation.time_s[row]), float(evaluation.run_s[row])
    step = step_interval(search, row)
    return Interval(
        low=mid - run + run * (step.low / step.mid),
        mid=mid,
        high=mid - run + run * (step.high / step.mid),
    )


def cost_interval(search: Search, row: int) -> Interval:
    """The age of the price adds to the spread of the run."""
    evaluation = search.evaluation
    mid, run = float(evaluation.cost_usd[row]), float(evaluation.spread_usd[row])
    spread = interval_of(run, float(evaluation.cost_log_sigma[row]))
    return Interval(low=mid - run + spread.low, mid=mid, high=mid - run + spread.high)


def _memory_interval(search: Search, row: int) -> Interval:
    """Sharding and accumulation change it by a known amount; the lower end goes with the median.

    What two kinds of device do of a batch was replayed already.
    """
    cell, steps, candidates = cell_of(search, row), search.forecast.steps, search.candidates
    mid = float(candidates.memory_mid_bytes[row])
    low_frac = float(steps.memory_low_bytes[cell] / steps.memory_mid_bytes[cell])
    told = Interval(low=mid * low_frac, mid=mid, high=float(candidates.memory_high_bytes[row]))
    if place_of(search, row).parts:
        return told
    return held_interval(
        job_at(search, row), told,
        capacity_bytes=float(search.places.memory_bytes[candidates.place[row]]),
        joined_bytes=float(np.nan_to_num(search.evaluation.steps.communicator_bytes[row])),
    )  # fmt: skip


def job_at(search: Search, row: int) -> Job:
    """What each rank of a candidate runs, as the named software does."""
    if (whole := search.whole_job(row)) is not None:
        return whole
    strategy, workload = strategy_of(search, row), search.workload
    how = search.forecast.configurations[cell_of(search, row)[0]]
    habits = usual_habits(
        search.goal.framework or "", model=workload.name, device=None, configuration=how
    )
    return Job(
        workload=workload,
        configuration=how,
        strategy=strategy,
        batch=float(np.ceil(search.candidates.global_batch[row] / strategy.num_parts)),
        seq=search.question.seq,
        habits=habits if strategy.sharding != "none" else (),
    )


def chance_to_fit(search: Search, row: int) -> float:
    """Chance that a candidate fits, by tier one of memory."""
    candidates = search.candidates
    return memory_fit.chance_to_fit(
        float(search.places.memory_bytes[candidates.place[row]]),
        float(candidates.memory_mid_bytes[row]),
        float(candidates.memory_high_bytes[row]),
    )


def _chance_of(search: Search, row: int, options: tuple[str, ...]) -> float | None:
    """Chance of meeting the tightest of the stated constraints."""
    stated = [c for c in search.constraints if c.option in options]
    if not stated:
        return None
    rows = np.array([row])
    return min(normal_cdf(float(standard_margin(c, rows)[0])) for c in stated)


def mean_power_w(search: Search, row: int) -> float | None:
    """Mean power of all devices; None where it is not known, and of two kinds of machine."""
    if place_of(search, row).parts:
        return None
    evaluation = search.evaluation
    return _known(float(evaluation.energy_j_per_sample[row] * evaluation.samples_per_s[row]))


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _devices_per_node(place: Place) -> float:
    """As rented: a fraction for a part of an accelerator; processors count as one."""
    is_gpu_part = is_part(place.offer) and place.device.kind != "cpu"
    return place.offer.num_devices if is_gpu_part else float(num_devices(place))
