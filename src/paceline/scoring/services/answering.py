"""Answers to rows of what serves requests: one call of `simulate` for all, then their queues."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from paceline.catalog.entities import Catalog
from paceline.errors import PacelineError
from paceline.model.graph.workload import Workload
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.prediction import Coverage
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.scoring.answers import Answer, Latency
from paceline.scoring.assumed import widening
from paceline.scoring.jobs import Cell
from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.readings import ENGINES
from paceline.scoring.services.engines import RowEngine, engine_of_row, states_ranks
from paceline.scoring.services.kept_rates import KEPT_LOG_SIGMAS, MEAN_SLACK, log_slowness
from paceline.scoring.services.loads import RowLoad, load_of
from paceline.scoring.services.units import rate_in_unit
from paceline.scoring.workloads import with_item
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.engine_tables import EngineTable, engine_tables
from paceline.simulation.queue.load import NUM_REQUESTS
from paceline.simulation.queue.percentiles import Percentiles, Served
from paceline.simulation.queue.service import offered, rate_within, saturation, steady
from paceline.simulation.simulator import simulate
from paceline.stack.engines import is_engine
from paceline.values import dataclass

#: Where not even single requests keep their limits, their times are those of one now and then.
_LEAST_RATE_PER_S = 1e-3
_NO_SIGMAS = (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A row with what it asks of which engine."""

    cell: Cell
    load: RowLoad
    engine: RowEngine


def is_service(cell: Cell) -> bool:
    """Whether a row says how requests come."""
    return bool(cell.row.scenario) and cell.reading.task == "infer"


def answer_services(
    entry: str, pairs: Sequence[tuple[Cell, Workload]], catalog: Catalog, *,
    calibration: Calibration,
) -> list[Answer]:  # fmt: skip
    """Answers to rows with a scenario that run one model, in their order.

    Args:
        entry: The model as typed.
        pairs: The rows, each with the model whose items it counts.
        catalog: Links.
        calibration: Of the predictor.
    """
    weights = _weights_bytes(pairs, calibration)
    asked = [
        _asked(cell, workload, catalog, bytes_)
        for (cell, workload), bytes_ in zip(pairs, weights, strict=True)
    ]
    known = {_key(one.engine): one.engine for one in asked if isinstance(one, _Asked)}
    tables = engine_tables(
        [one.job for one in known.values()],
        [one.machine for one in known.values()],
        calibration=calibration,
        loops_write=True,
    )
    of_key = dict(zip(known, tables, strict=True))
    seen: dict[Hashable, tuple[Served, ...]] = {}
    return [
        _answered(
            Answer(entry=entry, device=cell.device.name),
            one,
            of_key,
            seen,
        )
        for (cell, _), one in zip(pairs, asked, strict=True)
    ]


def _answered(
    failed: Answer, asked: _Asked | str, tables: Mapping[Hashable, EngineTable | PacelineError],
    seen: dict[Hashable, tuple[Served, ...]],
) -> Answer:  # fmt: skip
    """The answer to a row, or why it has none; ``seen`` keeps runs that rows share."""
    if isinstance(asked, str):
        return replace(failed, reason=asked)
    table = tables[_key(asked.engine)]
    if isinstance(table, PacelineError):
        return replace(failed, reason=str(table))
    try:
        return _answer(failed, asked, table, seen)
    except PacelineError as error:
        return replace(failed, reason=str(error))


def _asked(cell: Cell, workload: Workload, catalog: Catalog, weights_bytes: float) -> _Asked | str:
    try:
        workload = with_item(workload, cell.row.item)
        load = load_of(cell.row, generates=workload.generates)
        engine = engine_of_row(cell, workload, catalog, load, weights_bytes)
    except (UnresolvedRowError, PacelineError) as error:
        return str(error)
    return _Asked(cell=cell, load=load, engine=engine)


def _weights_bytes(pairs: Sequence[tuple[Cell, Workload]], calibration: Calibration) -> list[float]:
    """Weights of each row's model in its precision; not a number where no row needs them."""
    known: dict[Hashable, float] = {}
    found = []
    for cell, workload in pairs:
        how = cell.reading.configuration
        needs = workload.generates and cell.row.num_devices > 1 and not states_ranks(cell)
        if needs and how not in known:
            job = Job(workload=workload, configuration=how, prompt_tokens=1, output_tokens=1)
            steps = simulate([job], [Machine.of(cell.device)], calibration=calibration)
            known[how] = float(steps.parameter_bytes[0])
        found.append(known[how] if needs else math.nan)
    return found


def _key(engine: RowEngine) -> Hashable:
    job, machine = engine.job, engine.machine
    lengths = (job.seq, job.prompt_tokens, job.profile, job.habits)
    link = machine.device_link.name if machine.device_link else ""
    how = (job.configuration, str(job.strategy), id(job.workload))
    return *how, *lengths, id(machine.device), link


def _answer(
    failed: Answer, asked: _Asked, table: EngineTable, seen: dict[Hashable, tuple[Served, ...]]
) -> Answer:
    cell, reading = asked.cell, asked.cell.reading
    is_engine_row = reading.framework == ENGINES
    of_load = asked.load.log_sigma if is_engine_row else reading.framework_log_sigma
    parts = (table.log_sigma, reading.log_sigma, of_load, widening(reading.assumed))
    log_sigma = math.hypot(*parts)
    level = math.exp(reading.log_level) * reading.num_passes * cell.row.time_factor
    table = _one_by_one(_in_harness(_with_room(table, asked), asked), asked)
    factors = [level * math.exp(log) for log in _log_factors(asked, table.slower(level), log_sigma)]
    key = (
        id(table.times),
        *factors,
        asked.load,
        asked.engine.num_replicas,
        asked.engine.num_stages,
    )
    if key not in seen:
        seen[key] = tuple(_served(asked, table.slower(factor)) for factor in factors)
    fast, mid, slow = seen[key]
    firsts, tokens = KEPT_LOG_SIGMAS if asked.load.is_kept else (_NO_SIGMAS, _NO_SIGMAS)
    first_token = _latency(fast.first_token, mid.first_token, slow.first_token, firsts)
    per_token = _latency(fast.per_token, mid.per_token, slow.per_token, tokens)
    rates = [rate_in_unit(cell.row, one) for one in (slow, mid, fast)]
    if asked.load.scenario == "poisson":
        rates = [_with_noise(rate, z) for rate, z in zip(rates, (-Z_80, 0.0, Z_80), strict=True)]
    is_generation = asked.engine.job.is_generation
    step = [one.per_token if is_generation else one.request for one in (fast, mid, slow)]
    known = [rate for rate in rates if rate is not None]
    unit = "" if rates[1] is None else cell.row.unit
    return replace(
        failed,
        case=Coverage(table.knowledge).name.lower(),
        step_low_s=_known(step[0].mean_s),
        step_mid_s=_known(step[1].mean_s),
        step_high_s=_known(step[2].mean_s),
        throughput_low=min(known, default=None),
        throughput_mid=rates[1],
        throughput_high=max(known, default=None),
        throughput_unit=unit,
        memory_mid_bytes=table.memory_bytes,
        fits="yes" if table.fits else "no",
        first_token=first_token,
        per_token=per_token if is_generation else None,
        note=_note(asked),
    )


def _log_factors(asked: _Asked, table: EngineTable, log_sigma: float) -> tuple[float, ...]:
    """How many times as long steps take as predicted, as logarithms: fast, median and slow end."""
    load = asked.load
    if load.is_kept:
        each_per_s = (load.load.rate_per_s or 0.0) / asked.engine.num_replicas
        each = load.load.at_rate(each_per_s)
        found = log_slowness(table, each, dict(load.limits), log_sigma)
        if found is not None:
            return found
    return (-Z_80 * log_sigma, 0.0, Z_80 * log_sigma)


def _with_noise(rate: float | None, z: float) -> float | None:
    """What a run completes of requests that come by themselves: as many as happen to come."""
    return None if rate is None else rate * (1.0 + z / math.sqrt(NUM_REQUESTS))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _latency(
    fast: Percentiles, mid: Percentiles, slow: Percentiles, log_sigmas: tuple[float, float]
) -> Latency | None:
    """Percentiles with their interval, which the queue's own error widens: p50's and p99's."""
    if math.isnan(mid.p50_s):
        return None
    ends = ((fast.p50_s, mid.p50_s, slow.p50_s), (fast.p99_s, mid.p99_s, slow.p99_s))
    p50_s, p99_s = (
        _widened(*three, Z_80 * log_sigma)
        for three, log_sigma in zip(ends, log_sigmas, strict=True)
    )
    return Latency(
        p50_low_s=p50_s[0], p50_mid_s=mid.p50_s, p50_high_s=p50_s[1],
        p99_low_s=p99_s[0], p99_mid_s=mid.p99_s, p99_high_s=p99_s[1],
    )  # fmt: skip


def _widened(low: float, mid: float, high: float, log_width: float) -> tuple[float, float]:
    if not log_width:
        return low, high
    below, above = (math.hypot(math.log(ratio), log_width) for ratio in (mid / low, high / mid))
    return mid * math.exp(-below), mid * math.exp(above)


def _with_room(table: EngineTable, asked: _Asked) -> EngineTable:
    """With the memory of all stages, and room for the longest request: what was measured ran."""
    stages = asked.engine.num_stages
    batching, load = table.batching, asked.load.load
    requests = load.requests()
    longest = int(batching.tokens_of(requests).max())
    cache = batching.cache_tokens
    if stages > 1 and math.isfinite(cache):
        bytes_per_token = (table.capacity_bytes - table.memory_bytes) / max(cache, 1.0)
        if bytes_per_token > 0:
            cache += (stages - 1) * table.capacity_bytes / bytes_per_token
    room = max(cache, longest + 1.0)
    return replace(
        table,
        batching=replace(batching, cache_tokens=room),
        capacity_bytes=table.capacity_bytes * stages,
    )


def _in_harness(table: EngineTable, asked: _Asked) -> EngineTable:
    """An engine in the process of whoever measures it: no way over HTTP, and a cache without spare.

    Submitters of MLPerf fill the cache with whoever fits now, whatever an engine does by default
    (``max_util`` of TensorRT-LLM in mlcommons/inference_results_v4.1, closed/NVIDIA/configs).
    """
    if is_engine(asked.cell.row.framework) or not asked.engine.job.is_generation:
        return table
    batching = replace(table.batching, reserves_answers=False)
    return replace(table, batching=batching, path_s=0.0)


def _one_by_one(table: EngineTable, asked: _Asked) -> EngineTable:
    """A loop answers the batch that it is given, and a server around it one request at a time."""
    job = asked.engine.job
    if job.engine is not None or not job.is_generation or job.workload.encodes:
        return table
    is_batch = asked.load.scenario in ("static", "backlog")
    most = asked.load.load.concurrency if is_batch else 1
    most = min(most or 1, table.batching.max_requests)
    return replace(table, batching=replace(table.batching, max_requests=most))


def _served(asked: _Asked, table: EngineTable) -> Served:
    """What requests of a row see; rates are those of all replicas."""
    count, load = asked.engine.num_replicas, asked.load.load
    if asked.load.scenario == "backlog":
        most = saturation(table, load)
        return most.at_rate(most.requests_per_s * count)
    if asked.load.scenario == "poisson":
        rate_per_s = asked.cell.row.rate_per_s
        if not rate_per_s:
            most_per_s = rate_within(table, load, dict(asked.load.limits))
            kept_per_s = most_per_s * math.exp(-MEAN_SLACK)
            rate_per_s = max(kept_per_s, _LEAST_RATE_PER_S) * count
        load = load.at_rate(rate_per_s)
        if asked.load.is_kept:
            return steady(table, load.at_rate(rate_per_s / count)).at_rate(rate_per_s)
    return offered(table, load, num_replicas=count)


def _note(asked: _Asked) -> str:
    reading, engine = asked.cell.reading, asked.engine
    notes = [reading.note] if reading.note else []
    if asked.cell.row.num_devices > 1:
        notes.append(f"{engine.num_replicas} replicas of {engine.machine.num_devices} devices each")
    return "; ".join(notes)
