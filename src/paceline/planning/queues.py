"""Candidates of a service as what the queue simulates: their replicas, their load, their limits."""

from __future__ import annotations

import math
from collections.abc import Mapping

from paceline.errors import PacelineError
from paceline.planning.goal.service import service_of
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import place_of, strategy_of
from paceline.prediction.uncertainty.normal import normal_quantile
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.figures import Replicas, tables_of
from paceline.simulation.queue.load import Lengths, Load
from paceline.simulation.queue.service import Bounded, Limit, rate_within

#: What a percentile of requests sees, by the option that limits it.
BOUNDED: Mapping[str, Bounded] = {"--ttft": "first_token", "--latency": "per_token"}


def load_of(search: Search) -> Load:
    """The requests of a service at its rate."""
    work = search.work.of(search.workload)
    if not is_written(search):
        one = Lengths(mean=1.0)
        return Load(arrivals="poisson", prompt=one, output=one, rate_per_s=work.requests_per_s)
    return Load(
        arrivals="poisson",
        prompt=Lengths(mean=work.prompt_length, spread=work.length_spread or 0.0),
        output=Lengths(mean=work.output_length, spread=work.length_spread or 0.0),
        rate_per_s=work.requests_per_s,
    )


def limits_of(search: Search) -> dict[Bounded, Limit]:
    """What the goal bounds of what requests see."""
    goal, writes = search.goal, is_written(search)
    stated = {"--ttft": goal.ttft_s, "--latency": goal.latency_s}
    return {
        BOUNDED[option] if writes else "request": Limit(percentile=goal.percentile, seconds=limit)
        for option, limit in stated.items()
        if limit is not None
    }


def sustained_rates(search: Search, rows: list[int]) -> list[float]:
    """Requests per second at which candidates keep the goal, at its chance; 0 of who keeps none."""
    services = [replicas_of(search, row) for row in rows]
    tables = tables_of(services, calibration=search.question.calibration)
    z, load, limits = normal_quantile(search.goal.confidence), load_of(search), limits_of(search)
    rates = []
    for service, table in zip(services, tables, strict=True):
        if isinstance(table, PacelineError) or not table.fits:
            rates.append(0.0)
            continue
        slowed = table.slower(math.exp(z * table.log_sigma))
        rates.append(rate_within(slowed, load, limits) * service.num_replicas)
    return rates


def is_written(search: Search) -> bool:
    """Whether engines write the answers token by token; else a loop runs whole batches."""
    return service_of(search.goal, search.workload) is not None


def is_queued(search: Search) -> bool:
    """Whether requests wait for an engine, or for a loop that answers batches of them whole."""
    workload = search.workload
    return is_written(search) or workload.encodes or not workload.generates


def is_simulated(search: Search, row: int) -> bool:
    """Whether a candidate's requests can be simulated."""
    if not is_written(search):
        return not place_of(search, row).parts and search.whole_row(row) is None
    return bool(search.forecast.configurations[search.candidates.configuration[row]].is_served)


def replicas_of(search: Search, row: int) -> Replicas:
    """The service of a candidate."""
    place, candidates = place_of(search, row), search.candidates
    configured = search.forecast.configured[candidates.configuration[row]]
    work, generates = search.work.of(search.workload), search.workload.generates
    job = Job(
        workload=search.workload,
        configuration=configured.configuration,
        strategy=strategy_of(search, row),
        seq=None if generates else search.question.seq,
        prompt_tokens=work.prompt_length if generates else None,
        output_tokens=work.output_length if generates else None,
        profile=configured.profile,
    )
    count = int(candidates.num_devices[row])
    machine = Machine.of(
        place.device,
        count,
        devices_per_node=max(count // int(candidates.num_nodes[row]), 1),
        device_link=place.links.device,
        node_link=place.links.node,
    )
    mean_tokens = work.prompt_length + work.output_length / 2.0 if generates else 1.0
    return Replicas.of(job, machine, mean_tokens=mean_tokens)
