"""Purchases, pools and the input side as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.reporting.figures import duration_range, number_range
from paceline.reporting.tables import ABSENT, Column, Table, header
from paceline.units import format_duration, format_percent, format_significant, format_usd

if TYPE_CHECKING:
    from paceline.execution.folder_feed import FolderFeed
    from paceline.planfile import Interval
    from paceline.planning.decisions.pool import PoolSchedule
    from paceline.planning.decisions.pool_file import PoolAnswer, TrialsAlone
    from paceline.planning.decisions.purchase import PurchaseAnswer
    from paceline.planning.places.fitting import FittedCard
    from paceline.planning.places.price import JobPrice
    from paceline.prediction.input_side import InputPrediction, Remedy

_Printer = Callable[[Table], str]


def purchases_words(answers: Iterable[PurchaseAnswer], printed: _Printer) -> str:
    """Each purchase: the answer, what it turns on, and where its figures come from."""
    return "\n\n".join(_purchase(answer, printed) for answer in answers)


def fit_table(cards: Iterable[FittedCard]) -> Table:
    """Cards with memory and power, and what keeps each out."""
    return Table(
        columns=header("card ~20+ | GB > | W > | USD > -1 | fits ~24+"),
        rows=tuple(
            (
                card.device.name,
                _or_absent(card.device.memory_bytes, 1e9),
                _or_absent(card.device.tdp_w, 1.0),
                _or_absent(card.device.price_usd, 1.0),
                "; ".join(card.reasons) or "yes, as far as is known",
            )
            for card in cards
        ),
    )


def input_table(delivered: Interval, remedies: Iterable[Remedy]) -> Table:
    """What the host delivers now, in samples per second, and what each change would give."""
    rows = [("as it is", number_range(delivered), "")]
    rows += [(r.change, _rate(r.samples_per_s), f"+{r.gain_frac:.0%}") for r in remedies]
    return Table(
        columns=header("input side ~20+ | samples/s > | gain >"),
        rows=tuple(rows),
    )


def stage_table(delivered: InputPrediction) -> Table:
    """Core time of one sample by stage, the longest first."""
    stages = sorted(delivered.stage_s.items(), key=lambda item: -item[1])
    return Table(
        columns=header("stage | core time per sample >"),
        rows=tuple((name, format_duration(seconds)) for name, seconds in stages),
    )


#: A loader that had less of the cores than this waited for storage, or others had them.
_CROWDED_FRAC = 0.7

#: Inputs that a purchase turns on, in words.
_INPUT_WORDS = {
    "price_usd": "price, USD",
    "pue": "power of the room over the machine's",
    "upkeep_frac_per_year": "upkeep a year, of the price",
    "usd_per_kwh": "electricity, USD/kWh",
}


def _purchase(answer: PurchaseAnswer, printed: _Printer) -> str:
    figures = Table(
        columns=header("figure ~18+ | value > | from ~20+"),
        rows=tuple((f.name, f.value, f.source) for f in answer.figures),
    )
    swings = Table(
        columns=header("what it turns on ~16+ | from > | to > | owning, USD >"),
        rows=tuple(
            (
                _INPUT_WORDS.get(s.name, s.name),
                _input_text(s.name, s.low_input),
                _input_text(s.name, s.high_input),
                f"{format_usd(s.low_usd)} to {format_usd(s.high_usd)}",
            )
            for s in answer.result.sensitivity
        ),
    )
    parts = [answer.text, answer.purchase.title]
    parts += [printed(swings)] if swings.rows else []
    return "\n\n".join([*parts, printed(figures)])


def _input_text(name: str, value: float) -> str:
    return format_usd(value) if name == "price_usd" else f"{value:,.6g}"


def bill_words(offer: str, price: JobPrice, printed: _Printer) -> str:
    """The bill by part, and what was assumed."""
    total, run = price.total_usd, price.run
    rows = [
        ("machines", f"{format_usd(price.compute_usd)} USD"),
        ("storage", f"{format_usd(price.storage_usd)} USD"),
        ("traffic out", f"{format_usd(price.egress_usd)} USD"),
        ("paid time of each machine", format_duration(price.paid_s)),
        ("of it, work done twice", format_duration(run.lost_s)),
        ("of it, restarts", format_duration(run.restart_s)),
        ("of it, saving", format_duration(run.save_s)),
        ("interruptions expected", format_significant(run.num_interruptions, 2)),
    ]
    table = Table(
        columns=(Column(title=offer), Column(title="expected", is_number=True)),
        rows=tuple(row for row in rows if not row[1].startswith(("0 ", "0.00 "))),
    )
    low, high = format_usd(total.low), format_usd(total.high)
    used, done = format_usd(price.used_usd), format_duration(price.wall_s)
    is_committed = price.used_usd < price.compute_usd * (1 - 1e-9)
    paid_for = f", used or not: {used} USD of it" if is_committed else ""
    head = (
        f"{offer} costs {format_usd(total.mid)} USD ({low} to {high}){paid_for} for this job, "
        f"which is done after {done}."
    )
    return "\n\n".join([head, printed(table), "assumed: " + "; ".join(price.assumptions)])


def pool_words(answer: PoolAnswer, printed: _Printer) -> str:
    """The schedule, and what the two usual policies would do."""
    kind = "the best schedule" if answer.best.is_optimal else "the best schedule found"
    lines = [
        f"{kind} ({answer.best.policy}): all done after "
        f"{duration_range(answer.best.makespan_interval_s)}, "
        f"{format_duration(answer.best.mean_finish_s)} on average",
        printed(_schedule_table(answer.best)),
        f"one after the other: {_ends(answer.gang)}; side by side: {_ends(answer.share)}",
        "\n".join(map(_trials_sentence, answer.trials)),
        "assumed: " + "; ".join(answer.assumptions),
    ]
    return "\n\n".join(line for line in lines if line)


def _trials_sentence(one: TrialsAlone) -> str:
    waves = "at once" if one.plan.num_waves == 1 else f"in {one.plan.num_waves} waves"
    return (
        f"{one.num_trials} × {one.job} alone on {one.group}: {one.plan.num_devices_each} each, "
        f"{waves}, done after {duration_range(one.makespan_interval_s)}"
    )


def _schedule_table(schedule: PoolSchedule) -> Table:
    return Table(
        columns=header(
            "job ~8+ | devices ~12+ | starts after > | done after > | share of all > -1"
        ),
        rows=tuple(
            (
                p.job,
                f"{p.num_devices}×{p.group}",
                format_duration(p.start_s) if p.start_s else "at once",
                duration_range(p.finish_interval_s),
                format_percent(p.finish_s / schedule.makespan_s),
            )
            for p in schedule.placements
        ),
    )


def _ends(schedule: PoolSchedule) -> str:
    last, mean = (
        duration_range(schedule.makespan_interval_s),
        format_duration(schedule.mean_finish_s),
    )
    return f"all done after {last}, {mean} on average"


def _or_absent(value: float | None, unit: float) -> str:
    return ABSENT if value is None else format_significant(value / unit)


def _rate(samples_per_s: float) -> str:
    return format_significant(samples_per_s)


def folder_text(found: FolderFeed, damaged: Path | None) -> str:
    """What is there, what it gives, what it is enough for, and what is damaged."""
    return "\n".join([_folder_facts(found), _folder_rate(found), *_folder_verdict(found, damaged)])


def folder_tables(found: FolderFeed) -> list[Table]:
    """Stages, what would help, and how many of which device are fed."""
    stages = Table(
        columns=header("stage | core time per sample > | samples/s on a core >"),
        rows=tuple(
            (stage.name, format_duration(stage.core_s), _rate(1 / max(stage.core_s, 1e-9)))
            for stage in found.stages
        ),
    )
    tables = [stages]
    if found.remedies:
        tables.append(_remedy_table(found.remedies))
    if found.devices:
        tables.append(_device_table(found))
    return tables


def _remedy_table(remedies: Iterable[Remedy]) -> Table:
    return Table(
        columns=header("what would help (tried on some samples) ~20+ | samples/s > | gain >"),
        rows=tuple((r.change, _rate(r.samples_per_s), f"+{r.gain_frac:.0%}") for r in remedies),
    )


def _device_table(found: FolderFeed) -> Table:
    return Table(
        columns=header("device ~16 | takes samples/s (predicted) > | fed >"),
        rows=tuple(
            (one.device, number_range(one.samples_per_s), f"{one.num_fed:.2g}")
            for one in found.devices
        ),
    )


def _folder_facts(found: FolderFeed) -> str:
    kinds = ", ".join(found.formats) or "samples"
    plural = "" if found.num_classes == 1 else "es"
    classes = f" in {found.num_classes:,} class{plural}" if found.num_classes else ""
    size = f", {found.width:.0f}×{found.height:.0f}" if found.width else ""
    stored = f"{format_significant(found.disk_bytes / 1e3)} kB"
    return f"{found.num_samples:,} {kinds}{classes}{size}, {stored} · {found.num_cores} cores"


def _folder_rate(found: FolderFeed) -> str:
    predicted = found.predicted_samples_per_s
    beside = f" (predicted {number_range(predicted)})" if predicted else ""
    if found.samples_per_s is None:
        return f"too little data for a rate{beside}"
    threads = "1 thread" if found.num_threads == 1 else f"{found.num_threads} threads"
    rate = f"{_rate(found.samples_per_s)} samples/s with {threads}{beside}"
    return "\n".join([rate, *_crowding(found)])


def _crowding(found: FolderFeed) -> list[str]:
    """What it would be alone, if other programs had the cores while it was measured."""
    if not found.samples_per_s or not found.core_s:
        return []
    usable = min(found.num_threads, found.num_cores)
    used = found.samples_per_s * found.core_s
    if used > _CROWDED_FRAC * usable:
        return []
    alone = f"with the cores to itself it gives at most {_rate(usable / found.core_s)} samples/s"
    return [f"it had {used:.2g} of {usable} cores beside other programs and waiting; {alone}"]


def _folder_verdict(found: FolderFeed, damaged: Path | None) -> list[str]:
    lines, wanted, rate = [], found.wanted_samples_per_s, found.samples_per_s
    if wanted is not None and rate is not None:
        if found.num_threads_needed is None:
            lines.append(f"feeds {rate / wanted:.0%} of {_rate(wanted)} samples/s")
        else:
            share = f"{wanted / rate:.0%} of what it can"
            threads = found.num_threads_needed
            lines.append(f"feeds {_rate(wanted)} samples/s with {threads} threads ({share})")
    read = "all" if found.num_checked == found.num_samples else f"{found.num_checked:,}"
    if not found.num_damaged:
        return [*lines, f"no damaged sample among {read} that were read"]
    first = ": ".join(found.damaged[0])
    where = f": {damaged}" if damaged else f", the first {first}"
    return [*lines, f"{found.num_damaged:,} damaged of {read} that were read{where}"]
