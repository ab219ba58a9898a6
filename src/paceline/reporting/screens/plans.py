"""A plan on one terminal screen: assumptions, goal, the ranked choices, why, and what is next."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from paceline.planfile import (
    Interval,
    PlanFile,
    PlannedChoice,
    PlannedPlace,
    PlannedService,
    PlannedWorkload,
    RejectedChoice,
    term_words,
)
from paceline.planning.explain.reasons import RUNNER_UP, TOSS_UP
from paceline.planning.explain.wording import cloud_title
from paceline.planning.goal.chance import chance_text
from paceline.planning.goal.providers import provider_kind
from paceline.reporting.figures import (
    chance,
    duration_range,
    memory_share,
    number_range,
    short_name,
    usd_range,
)
from paceline.reporting.tables import ABSENT, Column, Table, header, text_table
from paceline.reporting.texts import labelled
from paceline.units import format_count, format_duration, format_significant, format_usd

_NUM_CHOICES_SHOWN = 6
#: Lines of reasons, unless all are asked for.
_NUM_REASON_LINES = 8
#: Microbatches, which the batch says already.
_ACCUMULATED = re.compile(r"/mb[0-9]+")
_NUM_REJECTED_SHOWN = 4


def plan_text(plan: PlanFile, *, width: int = 100, is_full: bool = False) -> str:
    """The plan as text: what to do, the choices, and the reasons that matter most."""
    blocks = (
        "\n".join(textwrap.wrap(headline(plan), width, break_on_hyphens=False)),
        "\n".join(_opening(plan, width)),
        text_table(
            choice_table(
                plan.choices[:_NUM_CHOICES_SHOWN], plan.workload.sample_unit, asked_columns(plan)
            ),
            width=width,
        ),
        "\n".join(_explanations(plan, width, is_full=is_full)),
        "\n".join(labelled("next", plan.next_commands, width)),
    )
    return "\n\n".join(block for block in blocks if block)


def headline(plan: PlanFile) -> str:
    """What to do, in one sentence: device and count, where, for how long, at what cost, how sure.

    Such as ``Rent 4×H100 SXM5 80GB at Lambda for 1.9 h: 31 USD, fits, in time with 99 %.``
    """
    if not plan.choices:
        return ""
    choice = plan.choices[0]
    figures = [*_figures(choice, plan.workload), "fits" if choice.chance_memory else ""]
    for word, likely in (("in time", choice.chance_time), ("in budget", choice.chance_cost)):
        figures.append("" if likely is None else f"{word} with {chance_text(likely)}")
    return f"{_what_to_do(choice)}: {', '.join(figure for figure in figures if figure)}."


def _what_to_do(choice: PlannedChoice) -> str:
    place = choice.place
    name = machine_name(choice)
    title = f"{cloud_title(place.cloud)} "
    length = "" if choice.time_s is None else f" for {format_duration(choice.time_s.mid)}"
    if place.cloud == "own":
        return f"Use your own {name.removeprefix(title)}{length}"
    hosts = " (a marketplace)" if provider_kind(place.cloud) == "marketplace" else ""
    return f"Rent {name.removeprefix(title)} at {title.strip()}{hosts}{length}"


def _figures(choice: PlannedChoice, workload: PlannedWorkload) -> list[str]:
    """Money and speed, by what is asked: a job, a service, or rates."""
    if choice.cost_usd is not None:
        return [f"{format_usd(choice.cost_usd.mid)} USD"]
    unit, rate = workload.sample_unit, format_count(choice.samples_per_s.mid)
    if workload.requests_per_s is not None:
        usd = f"{format_usd(choice.place.usd_per_hour)} USD/h"
        served = choice.service
        most = "" if served is None else format_significant(served.capacity_requests_per_s.mid)
        able = f"{rate} {unit}/s" if served is None else f"up to {most} requests/s"
        return [usd, able, *seen_words(choice)]
    usd = format_usd(choice.usd_per_million_samples.mid)
    return [f"{rate} {unit}/s", f"{usd} USD per million {unit}"]


def seen_words(choice: PlannedChoice) -> list[str]:
    """What requests see of a choice, or how long a batch takes; empty in training."""
    latency, first, service = choice.latency_s, choice.ttft_s, choice.service
    if latency is None:
        return []
    share = "" if service is None else f" (p{service.percentile})"
    if first is not None:
        return [
            f"first token after {format_duration(first.mid)}",
            f"{format_duration(latency.mid)} per token{share}",
        ]
    whole = "latency" if service is None else f"an answer{share}"
    return [f"{format_duration(latency.mid)} {whole}"]


def workload_line(workload: PlannedWorkload) -> str:
    """The job in one line, such as ``ResNet-50 · training · 1,281,167 images × 90 epochs``."""
    task = "training" if workload.task == "train" else "inference"
    size = f"{format_count(workload.num_parameters)} parameters"
    return " · ".join(part for part in (workload.title, task, workload.job, size) if part)


def place_name(place: PlannedPlace) -> str:
    """Who rents out how many of what, such as ``Lambda 8×H100 SXM5 80GB spot``."""
    count = place.devices_per_node * place.num_nodes
    paid = term_words(is_spot=place.is_spot, term=place.term)
    nodes = f" ({place.num_nodes} nodes)" if place.num_nodes > 1 else ""
    device = short_name(place.device)
    devices = device if " + " in device else f"{count:g}×{device}"
    return f"{cloud_title(place.cloud)} {devices}{paid}{nodes}"


def machine_name(choice: PlannedChoice) -> str:
    """The same, with how much of a processor it is, where processors do the work."""
    cores = choice.place.num_vcpus_per_node
    is_cpu = choice.stack is not None and choice.stack.platform == "cpu"
    return f"{place_name(choice.place)}{f' {cores} vCPU' if is_cpu and cores else ''}"


def how(choice: PlannedChoice, facets: Sequence[str] = ("precision", "compiler")) -> str:
    """The configuration in a few words, such as ``8×256×2 bf16 compiled``.

    The batch is devices × items per device and microbatch × accumulation steps; ones are left out.
    A service is replicas × devices of each.

    Args:
        choice: What is described.
        facets: Fields that are named beside the batch.
    """
    if choice.service is not None:
        replicas = f"{choice.service.num_replicas}×{choice.service.num_ranks}"
        return " ".join((replicas, *(getattr(choice, facet) for facet in facets)))
    per_microbatch = choice.batch_per_device // choice.microbatches
    factors = (choice.num_devices, per_microbatch, choice.microbatches)
    batch = "×".join(str(n) for i, n in enumerate(factors) if n > 1 or i == 1)
    parts = [" ".join((batch, *(getattr(choice, facet) for facet in facets)))]
    plain = f"dp{choice.num_devices}"
    strategy = _ACCUMULATED.sub("", choice.strategy).removeprefix(plain).removeprefix("+")
    if strategy:
        parts.append(strategy)
    if choice.checkpointing != "none" and "recompute" not in strategy:
        parts.append(f"recompute {choice.checkpointing}")
    return " · ".join(parts)


def asked_columns(plan: PlanFile) -> tuple[str, ...]:
    """The columns that a goal asks for beside the usual ones."""
    return ("energy",) if plan.goal.get("objective") == "energy" else ()


def choice_table(
    choices: Sequence[PlannedChoice], sample_unit: str, more: Sequence[str] = ()
) -> Table:
    """One row per choice; columns that no choice fills are left out.

    Precision and compiler of the first choice stand among the plan's assumptions; a row names its
    own only where the choices differ.

    Args:
        choices: Best first.
        sample_unit: What throughput counts.
        more: From `asked_columns`.
    """
    columns = _choice_columns(choices, sample_unit)
    facets = [f for f in ("precision", "compiler") if len({getattr(c, f) for c in choices}) > 1]
    cells = [
        (*_choice_cells(rank, choice, more), how(choice, facets))
        for rank, choice in enumerate(choices, start=1)
    ]
    kept = [
        i
        for i, column in enumerate(columns)
        if column.drop_order == 0 or any(row[i] != ABSENT for row in cells)
    ]
    return Table(
        columns=tuple(columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in cells),
        remarks=tuple(_remark(rank, choice) for rank, choice in enumerate(choices)),
    )


def _choice_columns(choices: Sequence[PlannedChoice], sample_unit: str) -> tuple[Column, ...]:
    service = next((c.service for c in choices if c.service is not None), None)
    share = "" if service is None else f" p{service.percentile}"
    whole = "latency" if service is None else "answer"
    writes = any(c.ttft_s is not None for c in choices)
    rate = f"{sample_unit}/s" if service is None else "requests/s at most"
    return header(
        "# > | offer ~20+ | USD/h > | time -9 | cost USD > -9"
        f" | J/{sample_unit.removesuffix('s')} > -9 | {'per token' if writes else whole}{share} -8"
        f" | first token{share} -{5 if service is None else 8} | {rate} > -7"
        f" | USD/M {sample_unit} > -6 | in time > -4 | memory > -1 | batch, how ~12+ -2"
    )


def _choice_cells(rank: int, choice: PlannedChoice, more: Sequence[str]) -> tuple[str, ...]:
    has_work = choice.time_s is not None
    energy = choice.energy_interval_j_per_sample if "energy" in more else None
    return (
        str(rank),
        machine_name(choice),
        format_usd(choice.place.usd_per_hour),
        ABSENT if choice.time_s is None else duration_range(choice.time_s),
        ABSENT if choice.cost_usd is None else usd_range(choice.cost_usd),
        ABSENT if energy is None else number_range(energy),
        ABSENT if choice.latency_s is None else duration_range(choice.latency_s),
        ABSENT if choice.ttft_s is None else duration_range(choice.ttft_s),
        ABSENT if has_work else number_range(_rate(choice)),
        ABSENT if has_work else format_usd(choice.usd_per_million_samples.mid),
        chance(choice.chance_time),
        memory_share(choice.memory_bytes, choice.memory_capacity_bytes),
    )


def _rate(choice: PlannedChoice) -> Interval:
    """What is done in a second: requests of a service, else samples."""
    service = choice.service
    return choice.samples_per_s if service is None else service.capacity_requests_per_s


def _remark(rank: int, choice: PlannedChoice) -> str:
    label = choice.label if rank else ""
    return " · ".join(note for note in (label, choice.remark) if note)


def _opening(plan: PlanFile, width: int) -> list[str]:
    goal = plan.goal_text or " · ".join(f"{name} {value}" for name, value in plan.goal.items())
    return [
        workload_line(plan.workload),
        *labelled("assumed", plan.assumptions, width),
        *labelled("goal", (goal,) if goal else (), width),
    ]


def _explanations(plan: PlanFile, width: int, *, is_full: bool) -> list[str]:
    """Reasons by label, the first sentence of each before the second of any."""
    hidden = len(plan.choices) - _NUM_CHOICES_SHOWN
    more = (f"{hidden} further choices with --json",) if hidden > 0 and is_full else ()
    why = plan.why or tuple(c.reason for c in plan.choices[:1])
    paragraphs = {
        "toss-up": _beginning(why, TOSS_UP),
        "how": tuple(how_in_full(c) for c in plan.choices[:1]),
        "one setting": tuple("; ".join(c.service.settings) for c in plan.choices[:1] if c.service),
        "why": tuple(one for one in why if not one.startswith((TOSS_UP, RUNNER_UP))),
        "sensitivity": plan.turns,
        "excluded": _excluded(plan.rejected),
        "runner-up": _beginning(why, RUNNER_UP),
        "rent or buy": (plan.rent_or_buy,),
        "electricity": (plan.emissions,),
        "scaling": (plan.knee,),
        "more": more,
    }
    kept = paragraphs if is_full else _most_important(paragraphs, width)
    lines = [line for label, texts in kept.items() for line in labelled(label, texts, width)]
    is_cut = kept != paragraphs
    return [*lines, "all reasons, with the source of every figure: --explain"] if is_cut else lines


def _beginning(sentences: Sequence[str], words: str) -> tuple[str, ...]:
    """Those that begin with some words, without these."""
    return tuple(one.removeprefix(f"{words} ") for one in sentences if one.startswith(words))


def _most_important(
    paragraphs: Mapping[str, tuple[str, ...]], width: int
) -> dict[str, tuple[str, ...]]:
    """As many sentences as there is room for; whole ones, and none of a paragraph after a gap."""
    kept: dict[str, tuple[str, ...]] = dict.fromkeys(paragraphs, ())
    left = _NUM_REASON_LINES - 1
    for rank in range(max(map(len, paragraphs.values()))):
        for label, texts in paragraphs.items():
            if rank < len(texts) and len(kept[label]) == rank:
                taken = len(labelled(label, texts[rank : rank + 1], width))
                if taken <= left:
                    kept[label], left = (*kept[label], texts[rank]), left - taken
    return kept


def how_in_full(choice: PlannedChoice) -> str:
    """What the last column says of a choice, with its words: the column may be cut."""
    per_microbatch = choice.batch_per_device // choice.microbatches
    if choice.service is not None:
        return f"{_service_words(choice.service)}, {choice.precision.upper()}, {choice.compiler}"
    parts = (
        f"{choice.num_devices} {'device' if choice.num_devices == 1 else 'devices'} × "
        f"batch {per_microbatch}",
        f"{choice.microbatches} accumulated" if choice.microbatches > 1 else "",
        choice.precision.upper(),
        choice.compiler,
        f"strategy {choice.strategy}" if choice.num_devices > 1 else "",
        f"recompute {choice.checkpointing}"
        if choice.checkpointing != "none" and choice.num_devices == 1
        else "",
    )
    return ", ".join(part for part in parts if part)


def _service_words(service: PlannedService) -> str:
    """Replicas, the devices of each, and what each puts into a step."""
    count, ranks = service.num_replicas, service.num_ranks
    words = f"{count} {'replica' if count == 1 else 'replicas'} of {ranks} "
    words += "device" if ranks == 1 else "devices"
    if service.max_requests is None or service.chunk_tokens is None:
        return f"{words}, answering those that wait in whole batches"
    return (
        f"{words}, each for up to {service.max_requests:,} requests and {service.chunk_tokens:,} "
        "tokens a step"
    )


def _excluded(rejected: Sequence[RejectedChoice]) -> tuple[str, ...]:
    shown = [rejection_text(choice) for choice in rejected[:_NUM_REJECTED_SHOWN]]
    hidden = sum(choice.num_rejected for choice in rejected[_NUM_REJECTED_SHOWN:])
    if hidden:
        shown.append(f"{hidden} more (all with --json, one with --why-not NAME)")
    return tuple(shown)


def rejection_text(choice: RejectedChoice) -> str:
    """Why a choice is excluded, and the price at which it would be first, if there is one."""
    if choice.wins_below_usd_per_hour is None:
        return f"{choice.name}: {choice.reason}"
    price = format_usd(choice.wins_below_usd_per_hour)
    return f"{choice.name}: {choice.reason}; would win below {price} USD/h"
