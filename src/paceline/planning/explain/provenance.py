"""Where every figure of the first choice comes from: a source, an assumption, or a formula.

The list is closed: every name that a formula uses is a figure of the list, and every figure that
is not computed says where it was read or what was assumed.
"""

from __future__ import annotations

import math
from typing import Literal

from paceline.catalog.entities import Device, Link
from paceline.dtypes import find_precision
from paceline.planfile import PlannedChoice, TracedFigure
from paceline.planning.goal.chance import chance_text
from paceline.planning.places.place_table import place_terms
from paceline.planning.search.all_candidates import Search
from paceline.planning.search.choices import cell_of, place_of, planned_choice
from paceline.units import (
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    format_significant,
    format_usd,
)

_UNKNOWN = "unknown"

#: How the time of a token and of the first one come about, by who runs the passes.
_FORMULAS = {
    "alone": (
        "one decode pass at the mean past length of the answer",
        "one prefill pass over the prompt",
    ),
    "served": (
        "a step of the engine, halfway through an answer, and its share of the prompts of others",
        "way to the engine, one prompt, half a step, and half of the prompts that come at once",
    ),
}


def explanation(search: Search, row: int) -> tuple[TracedFigure, ...]:
    """The figures of a candidate, results first, facts last."""
    choice = planned_choice(search, row)
    parts = (
        _job(search, row),
        _work(search, row, choice),
        _step(search, row),
        _latency(search, choice, row),
        _communication(search, row),
        _input(search, row),
        _memory(search, row, choice),
        _energy(search, row),
        _facts(search, row),
    )
    return tuple(figure for part in parts for figure in part)


def _job(search: Search, row: int) -> list[TracedFigure]:
    """Cost and time, or rates where no work is given."""
    evaluation = search.evaluation
    price = float(evaluation.usd_per_hour[row])
    rate = float(evaluation.samples_per_s[row])
    usd_per_million = float(evaluation.usd_per_million[row])
    rates = [
        _computed(
            "usd_per_million_samples", usd_per_million, f"{format_usd(usd_per_million)} USD",
            "1e6 * usd_per_hour / 3600 / samples_per_s, times the stretch by interruptions",
            "usd_per_hour", "samples_per_s", "interruption_frac_per_month",
        ),
        _computed(
            "samples_per_s", rate, f"{format_count(rate)}/s",
            "global_batch * samples_per_item / step_s",
            "global_batch", "samples_per_item", "step_s",
        ),
        _price(search, row, price),
        *_interruptions(search, row),
    ]  # fmt: skip
    if not evaluation.num_steps[row]:
        return rates
    cost, billed = float(evaluation.cost_usd[row]), float(evaluation.billed_s[row])
    beside = float(evaluation.beside_usd[row])
    time = float(evaluation.time_s[row])
    return [
        _computed(
            "cost_usd", cost, f"{format_usd(cost)} USD",
            "billed_s * usd_per_hour / 3600 + beside_usd",
            "billed_s", "usd_per_hour", "beside_usd",
        ),
        _assumed(
            "beside_usd", beside, f"{format_usd(beside)} USD",
            "disks and traffic out, where --storage and --egress state them",
        ),
        _computed(
            "time_s", time, format_duration(time),
            "setup_s + num_steps * step_s * (1 + overhead_frac)",
            "setup_s", "num_steps", "step_s", "overhead_frac",
        ),
        _overhead(search, row),
        _computed(
            "billed_s", billed, format_duration(billed),
            "paid time rounded up to granularity_s, at least minimum_s",
            "time_s", "granularity_s", "minimum_s",
        ),
        *rates,
        *_billing(search, row),
    ]  # fmt: skip


def _overhead(search: Search, row: int) -> TracedFigure:
    """What a job does beside its steps, over their time."""
    steps_s = float(search.evaluation.num_steps[row] * search.evaluation.steps.step_s[row])
    frac = float(search.evaluation.run_s[row]) / steps_s - 1.0
    if search.goal.is_ideal or not search.question.is_training:
        text = "steps alone, stretched by interruptions of spot machines and waits for new ones"
    else:
        text = (
            "evaluations (planning/data/job_overheads.csv), saves at the best interval, failures "
            "(parallelism/data/interruptions.csv) and interruptions with their restarts and waits"
        )
    return _assumed("overhead_frac", frac, format_percent(frac), text)


def _price(search: Search, row: int, usd_per_hour: float) -> TracedFigure:
    place = place_of(search, row)
    dated = f", seen {place.priced_on}" if place.priced_on else ""
    machines = int(search.candidates.num_nodes[row])
    source = f"{machines} × {place.offer.name}{dated}: {place.offer.source.text}"
    return _fact("usd_per_hour", usd_per_hour, f"{format_usd(usd_per_hour)} USD/h", source)


def _interruptions(search: Search, row: int) -> list[TracedFigure]:
    place = place_of(search, row)
    frac = float(search.places.interruption_frac_per_month[search.candidates.place[row]])
    if not place.is_spot:
        text = "on-demand and owned machines are taken not to be interrupted"
        return [_assumed("interruption_frac_per_month", frac, "0 %", text)]
    notes = "; ".join(place_terms(place, today=search.question.today).assumptions)
    return [_fact("interruption_frac_per_month", frac, format_percent(frac), notes)]


def _billing(search: Search, row: int) -> list[TracedFigure]:
    place = place_of(search, row)
    terms = place_terms(place, today=search.question.today)
    setup = float(search.places.setup_s[search.candidates.place[row]])
    notes = "; ".join(terms.assumptions) or "an owned machine is not billed"
    setup_note = (
        "an owned machine stands ready" if place.is_owned else "booting, images, fetching data"
    )
    return [
        _assumed("setup_s", setup, format_duration(setup), setup_note),
        _fact("granularity_s", terms.granularity_s, format_duration(terms.granularity_s), notes),
        _fact("minimum_s", terms.minimum_s, format_duration(terms.minimum_s), notes),
    ]


def _work(search: Search, row: int, choice: PlannedChoice) -> list[TracedFigure]:
    """How many steps, and what a step holds."""
    candidates, job = search.candidates, search.job
    counts = [
        _computed(
            "global_batch", choice.global_batch, f"{choice.global_batch:,}",
            "num_groups * microbatch * microbatches", "num_groups", "microbatch", "microbatches",
        ),
        _chosen("num_devices", int(candidates.num_devices[row])),
        _chosen("num_groups", int(candidates.num_groups[row])),
        _chosen("microbatch", _microbatch(search, row)),
        _chosen("microbatches", int(candidates.microbatches[row])),
        _fact(
            "samples_per_item", job.amount.samples_per_item, f"{job.amount.samples_per_item:g}",
            f"{search.workload.sample_unit} in one item of a batch: {search.workload.source}",
        ),
    ]  # fmt: skip
    items = job.amount.items_per_epoch
    if items is None:
        return counts
    reference = search.workload.reference_job
    is_reference = job.assumption.startswith("reference job") and reference is not None
    steps = int(search.evaluation.num_steps[row])
    origin = reference.source if is_reference and reference else "given by the user"
    return [
        _computed(
            "num_steps", steps, f"{steps:,}", "num_epochs * ceil(items_per_epoch / global_batch)",
            "num_epochs", "items_per_epoch", "global_batch",
        ),
        _fact("items_per_epoch", items, f"{items:,}", origin),
        _fact("num_epochs", job.amount.num_epochs, f"{job.amount.num_epochs:g}", origin),
        *counts,
    ]  # fmt: skip


def _microbatch(search: Search, row: int) -> int:
    whole = search.whole_job(row)
    if whole is not None:
        return int(whole.batch)
    return int(search.forecast.batch[search.candidates.batch[row]])


def _step(search: Search, row: int) -> list[TracedFigure]:
    """The step, and the prediction of one device that it is made of."""
    forecast, evaluation = search.forecast, search.evaluation
    cell = cell_of(search, row)
    alone, step = float(forecast.steps.step_s[cell]), float(evaluation.steps.step_s[row])
    flop = float(forecast.steps.flop[cell])
    sigma = float(evaluation.steps.log_sigma[row])
    calibration = search.question.calibration.name
    formula = "microbatches * device_step_s + exposed_communication_s + starved_s"
    if search.whole_job(row) is not None:
        formula = (
            "microbatches of device_step_s cut into blocks, stages and tensor groups, with "
            "exposed_communication_s and starved_s (docs/explanation/scaling.md)"
        )
    return [
        _computed(
            "step_s", step, format_duration(step), formula,
            "microbatches", "device_step_s", "exposed_communication_s", "starved_s",
        ),
        _computed(
            "device_step_s", alone, format_duration(alone),
            "sum over kernels of launch + physical bound / efficiency, on two timelines "
            "(docs/explanation)",
            "flop", "peak_flop_per_s", "memory_bytes_per_s", "efficiency",
        ),
        _computed(
            "interval", sigma, f"log sigma {format_significant(sigma)}",
            "80 % of cases lie within median * exp(±1.2816 log sigma)", "efficiency",
        ),
        _fact("efficiency", None, calibration, f"calibration {calibration}, fitted to published "
              "measurements"),
        _fact("flop", flop, f"{format_count(flop)} FLOP per batch",
              f"traced graph: {search.workload.source}"),
    ]  # fmt: skip


def _latency(search: Search, choice: PlannedChoice, row: int) -> list[TracedFigure]:
    """Waiting times of inference; of a generation, per token and to the first one."""
    if choice.latency_s is None:
        return []
    latency = choice.latency_s.mid
    if choice.ttft_s is None:
        return [
            _computed("latency_s", latency, format_duration(latency), "device_step_s",
                      "device_step_s"),
        ]  # fmt: skip
    first = choice.ttft_s.mid
    work = search.work
    is_served = search.forecast.configurations[cell_of(search, row)[0]].is_served
    per_token, first_token = _FORMULAS["served" if is_served else "alone"]
    return [
        _computed("latency_s", latency, format_duration(latency),
                  per_token,
                  "prompt_tokens", "output_tokens", "efficiency"),
        _computed("ttft_s", first, format_duration(first), first_token,
                  "prompt_tokens", "efficiency"),
        _assumed("prompt_tokens", work.prompt_length, f"{work.prompt_length:,}",
                 "tokens in, given or the default"),
        _assumed("output_tokens", work.output_length, f"{work.output_length:,}",
                 "tokens out, given or the default"),
    ]  # fmt: skip


def _communication(search: Search, row: int) -> list[TracedFigure]:
    exposed = search.evaluation.steps.lost_of(row)
    if int(search.candidates.num_devices[row]) == 1:
        text = "one device exchanges nothing"
        return [_assumed("exposed_communication_s", exposed, format_duration(exposed), text)]
    links = place_of(search, row).links
    number = int(search.candidates.configuration[row])
    gradient = search.forecast.passes[number].step.gradient_bytes
    return [
        _computed(
            "exposed_communication_s", exposed, format_duration(exposed),
            "what of the gradient exchange backward does not hide (docs/explanation/scaling.md)",
            "gradient_bytes", "device_link_bytes_per_s", "node_link_bytes_per_s",
        ),
        _fact("gradient_bytes", gradient, format_bytes(gradient), "traced graph: "
              f"{search.workload.source}"),
        _link("device_link_bytes_per_s", links.device),
        _link("node_link_bytes_per_s", links.node),
    ]  # fmt: skip


def _link(name: str, link: Link | None) -> TracedFigure:
    if link is None:
        return _assumed(name, None, "none", "no such link is used")
    rate = f"{format_bytes(link.bytes_per_s)}/s ({link.name})"
    return _fact(name, link.bytes_per_s, rate, link.source.text)


def _input(search: Search, row: int) -> list[TracedFigure]:
    starved = float(search.evaluation.starved_s[row])
    rate = float(search.places.input_samples_per_s[search.candidates.place[row]])
    stored = search.question.stored
    if stored is None or not math.isfinite(rate):
        text = "the input side is taken to keep up"
        return [_assumed("starved_s", starved, format_duration(starved), text)]
    return [
        _computed(
            "starved_s", starved, format_duration(starved),
            "global_batch / machines / input_samples_per_s, less the rest of the step, if above 0",
            "global_batch", "input_samples_per_s",
        ),
        _fact(
            "input_samples_per_s", rate, f"{format_count(rate)}/s",
            f"{stored.encoding} of {stored.disk_bytes:g} bytes at measured cost per stage "
            "(benchmarks/input_pipeline.py) on the machine's virtual CPUs",
        ),
    ]  # fmt: skip


def _memory(search: Search, row: int, choice: PlannedChoice) -> list[TracedFigure]:
    peak, capacity = choice.memory_bytes.mid, choice.memory_capacity_bytes
    return [
        _computed(
            "chance_memory", choice.chance_memory, chance_text(choice.chance_memory),
            "chance that the log-normal peak stays below the capacity",
            "memory_bytes", "memory_capacity_bytes",
        ),
        _computed(
            "memory_bytes", peak, format_bytes(peak),
            "largest sum of live tensors, rounded by the allocator, with workspace and context, "
            "less what ranks share (docs/explanation/memory.md)",
            "microbatch", "num_devices", "live_tensors",
        ),
        _fact("live_tensors", None, "traced", f"traced graph: {search.workload.source}"),
        _fact(
            "memory_capacity_bytes", capacity, format_bytes(capacity),
            _device_sources(place_of(search, row).device),
        ),
    ]  # fmt: skip


def _energy(search: Search, row: int) -> list[TracedFigure]:
    joules = float(search.evaluation.energy_j_per_sample[row])
    tdp = place_of(search, row).device.tdp_w
    if tdp is None or not math.isfinite(joules):
        return []
    return [
        _computed(
            "energy_j_per_sample", joules, f"{format_significant(joules)} J",
            "mean power of the device while it runs, from its rated power and use, times the step",
            "tdp_w", "device_step_s", "microbatch",
        ),
        _fact("tdp_w", tdp, f"{tdp:g} W", _device_sources(place_of(search, row).device)),
    ]  # fmt: skip


def _facts(search: Search, row: int) -> list[TracedFigure]:
    """What the device can do."""
    device = place_of(search, row).device
    name = search.forecast.configurations[cell_of(search, row)[0]].precision
    peak = device.dense_peak_flop_per_s(find_precision(name))
    bandwidth = device.memory_bytes_per_s
    peak_words = _UNKNOWN if peak is None else f"{format_count(peak)}FLOP/s dense {name}"
    bandwidth_words = _UNKNOWN if bandwidth is None else f"{format_bytes(bandwidth)}/s"
    source = _device_sources(device)
    return [
        _fact("peak_flop_per_s", peak, peak_words, source),
        _fact("memory_bytes_per_s", bandwidth, bandwidth_words, source),
    ]


def _device_sources(device: Device) -> str:
    return f"{device.name}: " + "; ".join(source.text for source in device.sources)


def _computed(name: str, number: float, value: str, formula: str, *inputs: str) -> TracedFigure:
    return TracedFigure(
        name=name, value=value, formula=formula, inputs=inputs, origin="computed", source="",
        number=float(number),
    )  # fmt: skip


def _fact(
    name: str, number: float | None, value: str, source: str,
    origin: Literal["source", "assumption"] = "source",
) -> TracedFigure:  # fmt: skip
    return TracedFigure(
        name=name, value=value, formula="", inputs=(), origin=origin, source=source,
        number=None if number is None else float(number),
    )  # fmt: skip


def _assumed(name: str, number: float | None, value: str, text: str) -> TracedFigure:
    return _fact(name, number, value, text, "assumption")


def _chosen(name: str, count: int) -> TracedFigure:
    return _assumed(name, count, f"{count:,}", "chosen by the search as part of the plan")
