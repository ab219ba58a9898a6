"""A traced model as text: its size, its largest ops, its memory over the pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from paceline.model.live_bytes import MemoryCourse
from paceline.prediction.comparison import ComparedFigure, PassComparison
from paceline.prediction.memory.remedies import MemoryRemedy
from paceline.prediction.step.breakdown import Limit, OpShare, OwnerBytes, PassBreakdown
from paceline.reporting.tables import ABSENT, Table, cut, header, markdown_table, text_table
from paceline.simulation.observed import Trace
from paceline.units import format_bytes, format_count, format_duration, format_percent

_BARS = "▁▂▃▄▅▆▇█"
_SHORT_NAMES = {
    "conv backward input": "conv input grad",
    "conv backward weight": "conv weight grad",
}
_SHORT_PHASES = {"forward": "fwd", "backward": "bwd", "optimizer": "update", "recompute": "again"}


#: Limit of products whose rows begin anywhere, and what helps.
_ODD: Limit = "odd width"
_ODD_HINT = "odd width: rows of no multiple of 16 bytes; compile, or pad them (widths=padded)"


def breakdown_text(traced: Trace, *, width: int = 100) -> str:
    """Every pass of a model as text."""
    parts = [cut(_title(traced), width), *filter(None, (traced.assumption,))]
    for number, one in enumerate(traced.passes):
        parts += [
            _pass_text(one, _position_line(traced, number), width),
            course_text(traced.memory_courses[number], width=width),
            text_table(owner_table(one.memory), width=width),
        ]
        if traced.remedies[number]:
            parts.append(text_table(remedy_table(traced.remedies[number]), width=width))
        if traced.comparisons:
            table = text_table(comparison_table(traced.comparisons[number]), width=width)
            parts.append("\n".join((cut(_against(traced), width), table)))
    return "\n\n".join(parts)


def breakdown_markdown(traced: Trace) -> str:
    """Every pass of a model as Markdown."""
    parts = [f"# {_title(traced)}", *filter(None, (traced.assumption,))]
    for number, one in enumerate(traced.passes):
        course = traced.memory_courses[number]
        lines = [*_summary(one), *_position_line(traced, number), _peak_line(course)]
        parts += [f"## {one.name}", "\n".join(f"- {line}" for line in lines)]
        parts += [markdown_table(op_table(one.ops)), markdown_table(owner_table(one.memory))]
        if traced.remedies[number]:
            parts.append(markdown_table(remedy_table(traced.remedies[number])))
        if traced.comparisons:
            table = comparison_table(traced.comparisons[number])
            parts += [_against(traced), markdown_table(table)]
    return "\n\n".join(parts)


def course_text(course: MemoryCourse, *, width: int = 100) -> str:
    """Live bytes over a pass as one line of bars, with its phases below."""
    starts = range(0, len(course.moments_bytes), -(-len(course.moments_bytes) // width))
    step = starts.step
    moments = [max(course.moments_bytes[n : n + step]) for n in starts]
    phases = [course.phases[n] for n in starts]
    highest = max(moments) or 1.0
    levels = (min(int(m / highest * len(_BARS)), len(_BARS) - 1) for m in moments)
    spans = [(phase, len(list(group))) for phase, group in groupby(phases)]
    below = "".join(f"{f'|{phase}'[:length]:<{length}}" for phase, length in spans)
    return "\n".join((
        cut(_peak_line(course), width), "".join(_BARS[n] for n in levels), below.rstrip(),
    ))  # fmt: skip


def _title(traced: Trace) -> str:
    """Model, task and settings."""
    task = "training" if traced.task == "train" else "inference"
    settings = f" · {traced.rewrite}" if traced.rewrite else ""
    return f"{traced.title} · {task} · {traced.precision} {traced.compiler}{settings}"


def _against(traced: Trace) -> str:
    return f"the same with {traced.compared_with}"


def comparison_table(compared: PassComparison) -> Table:
    """Figures of a pass as it is shown and with other settings."""
    return Table(
        columns=header("figure | above > | then > | change >"),
        rows=tuple(_compared(figure) for figure in compared.figures),
    )


def _compared(figure: ComparedFigure) -> tuple[str, ...]:
    change = ABSENT if not figure.base else _change(figure.other / figure.base - 1.0)
    return (figure.name, _figure(figure, figure.base), _figure(figure, figure.other), change)


def _change(frac: float) -> str:
    text = format_percent(abs(frac))
    return "same" if not frac else f"{'+' if frac > 0 else '-'}{text}"


def _figure(figure: ComparedFigure, value: float) -> str:
    if figure.unit == "bytes":
        return format_bytes(value)
    if figure.unit == "s":
        return format_duration(value)
    return format_count(value) if figure.unit == "flop" else f"{value:,.0f}"


def _peak_line(course: MemoryCourse) -> str:
    where = f", {course.peak_module}" if course.peak_module else ""
    return (
        f"memory over the pass: at most {format_bytes(course.peak_bytes)} live, at op "
        f"{course.peak_op:,} of {course.num_ops:,} ({course.peak_phase}{where})"
    )


def _position_line(traced: Trace, number: int) -> list[str]:
    """How near the pass comes to what the device could do; nothing without a device."""
    if not traced.positions:
        return []
    place, device = traced.positions[number], traced.passes[number].device
    shares = " · ".join(
        f"{limit} {format_percent(frac)}"
        for limit, frac in place.time_frac_by_limit.items()
        if frac or limit != _ODD
    )
    odd = [_ODD_HINT] if place.time_frac_by_limit.get(_ODD) else []
    side = "bandwidth" if place.flop_per_byte < place.ridge_flop_per_byte else "compute"
    return [
        f"roofline of {device}: {side} side, {place.flop_per_byte:.0f} FLOP/B against a ridge at "
        f"{place.ridge_flop_per_byte:.0f}",
        f"{format_percent(place.reached_flop_per_s / place.peak_flop_per_s)} of "
        f"{format_count(place.peak_flop_per_s)} FLOP/s, "
        f"{format_percent(place.reached_bytes_per_s / place.memory_bytes_per_s)} of "
        f"{format_bytes(place.memory_bytes_per_s)}/s",
        f"busy time held back by {shares}",
        *odd,
    ]


def op_table(ops: Sequence[OpShare]) -> Table:
    """The largest ops: by time with what limits them, or by FLOP."""
    has_time = any(op.device_s is not None for op in ops)
    plain = header("op ~16 | phase -3 | shape ~14 | count > | FLOP > -1 | bytes > -2")
    timed = header("time > | share > | limit | reached >")
    return Table(
        columns=(*plain, *timed) if has_time else plain,
        rows=tuple((*_op_cells(op), *(_time_cells(op) if has_time else ())) for op in ops),
    )


def owner_table(owners: Sequence[OwnerBytes]) -> Table:
    """Live bytes by owner at the peak."""
    total = sum(owner.live_bytes for owner in owners) or 1.0
    return Table(
        columns=header("memory at the peak | size > | share >"),
        rows=tuple(
            (o.owner, format_bytes(o.live_bytes), format_percent(o.live_bytes / total))
            for o in owners
        ),
    )


def remedy_table(remedies: Sequence[MemoryRemedy]) -> Table:
    """What would lower the peak: each line is a setting of ``--rewrite``."""
    return Table(
        columns=header(
            "to need less, --rewrite | peak > | saves > | FLOP > | at the price of ~16 -1"
        ),
        rows=tuple(
            (
                one.settings,
                format_bytes(one.peak_bytes),
                format_bytes(one.saved_bytes),
                _change(round(one.flop_factor - 1.0, 3)),
                one.price,
            )
            for one in remedies
        ),
    )


def _pass_text(one: PassBreakdown, position: list[str], width: int) -> str:
    where = f"on {one.device}, by time" if one.device else "by FLOP (--device NAME for time)"
    return "\n".join(
        (
            one.name,
            *(cut(f"  {line}", width) for line in (*_summary(one), *position)),
            "",
            f"largest ops {where}",
            text_table(op_table(one.ops), width=width),
        )
    )


def _summary(one: PassBreakdown) -> list[str]:
    phases = " · ".join(f"{name} {format_count(flop)}" for name, flop in one.flop_by_phase.items())
    trainable = one.num_trainable_parameters
    frozen = f" ({format_count(trainable)} trained)" if trainable != one.num_parameters else ""
    live_bytes = sum(owner.live_bytes for owner in one.memory)
    lines = [
        f"{one.num_parameters:,} parameters{frozen}, batch {one.batch}"
        + (f", length {one.seq}" if one.seq > 1 else ""),
        f"{format_count(one.flop)} FLOP ({phases})",
        f"{format_bytes(one.moved_bytes)} moved, {one.flop / max(one.moved_bytes, 1.0):.0f} FLOP/B",
        f"{one.num_ops:,} ops, {one.num_kernels:,.0f} kernels",
        f"{format_bytes(live_bytes)} live at the peak, before allocator and context",
    ]
    median = "a median; `paceline predict` says how sure a step is"
    busy = [f"{format_duration(one.device_s)} busy, {median}"] if one.device_s is not None else []
    return [*lines, *busy, *_waits(one)]


def _waits(one: PassBreakdown) -> list[str]:
    """How often the host waits, and what that costs on a device whose facts are known."""
    if not one.num_waits:
        return []
    times = "once" if one.num_waits == 1 else f"{one.num_waits:,} times"
    text = f"the host waits {times} for the device"
    if one.waiting_frac is None or math.isnan(one.waiting_frac):
        return [text]
    return [f"{text}: {format_percent(one.waiting_frac)} of the pass is lost"]


def _op_cells(op: OpShare) -> tuple[str, ...]:
    is_transposed = (op.kind, op.phase) == ("conv backward input", "forward")
    return (
        "transposed conv" if is_transposed else _SHORT_NAMES.get(op.kind, op.kind),
        _SHORT_PHASES.get(op.phase, op.phase),
        _shape(op),
        f"{op.count:g}",
        format_count(op.flop),
        format_bytes(op.moved_bytes),
    )


def _shape(op: OpShare) -> str:
    """Channels, window and image; m×n×k; batch×heads and lengths; or the number of elements."""
    size = op.shape
    if "groups" in size:
        groups = f" /{size['groups']}" if size["groups"] > 1 else ""
        window = f"{size['r']}×{size['s']}"
        return f"{size['c']}→{size['k']}{groups} {window} {size['h']}×{size['w']}"
    if "m" in size:
        batch = f"{size['batch']}×" if size["batch"] > 1 else ""
        return f"{batch}{size['m']}×{size['n']}×{size['k']}"
    if "q_heads" in size:
        lengths = "×".join(str(size[name]) for name in ("q_len", "kv_len", "head_size"))
        return f"{size['batch']}×{size['q_heads']} {lengths}"
    if "steps" in size:
        return f"{size['input']}→{size['hidden']} {size['steps']} steps"
    elements = size.get("elements", size.get("rows", 0) * size.get("columns", 1))
    return f"{format_count(elements)} elements" if elements else ABSENT


def _time_cells(op: OpShare) -> tuple[str, ...]:
    if op.device_s is None or op.time_frac is None:
        return (ABSENT,) * 4
    reached = ABSENT if op.bound_frac is None else format_percent(min(op.bound_frac, 1.0))
    return (format_duration(op.device_s), format_percent(op.time_frac), str(op.limit), reached)
