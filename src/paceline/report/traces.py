"""A traced model as text: its size, its largest ops, its memory at the peak."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.predict.breakdown import OpShare, OwnerBytes, PassBreakdown
from paceline.report.figures import ABSENT
from paceline.report.tables import Column, Table, markdown_table, text_table
from paceline.units import format_bytes, format_count, format_duration, format_percent


def breakdown_text(title: str, passes: Sequence[PassBreakdown], *, width: int = 100) -> str:
    """Every pass of a model as text."""
    return "\n\n".join((title, *(_pass_text(p, width) for p in passes)))


def breakdown_markdown(title: str, passes: Sequence[PassBreakdown]) -> str:
    """Every pass of a model as Markdown."""
    parts = [f"# {title}"]
    for one in passes:
        parts += [f"## {one.name}", "\n".join(f"- {line}" for line in _summary(one))]
        parts += [markdown_table(op_table(one.ops)), markdown_table(owner_table(one.memory))]
    return "\n\n".join(parts)


def op_table(ops: Sequence[OpShare]) -> Table:
    """The largest ops: by time with what limits them, or by FLOP."""
    has_time = any(op.device_s is not None for op in ops)
    plain = (
        Column(title="op", min_width=16),
        Column(title="phase", drop_order=1),
        Column(title="shape", min_width=12, drop_order=2),
        Column(title="count", is_number=True),
        Column(title="FLOP", is_number=True),
        Column(title="bytes", is_number=True),
    )
    timed = (
        Column(title="time", is_number=True),
        Column(title="share", is_number=True),
        Column(title="limit"),
        Column(title="reached", is_number=True),
    )
    return Table(
        columns=(*plain, *timed) if has_time else plain,
        rows=tuple((*_op_cells(op), *(_time_cells(op) if has_time else ())) for op in ops),
    )


def owner_table(owners: Sequence[OwnerBytes]) -> Table:
    """Live bytes by owner at the peak."""
    total = sum(owner.live_bytes for owner in owners) or 1.0
    return Table(
        columns=(
            Column(title="memory at the peak"),
            Column(title="size", is_number=True),
            Column(title="share", is_number=True),
        ),
        rows=tuple(
            (o.owner, format_bytes(o.live_bytes), format_percent(o.live_bytes / total))
            for o in owners
        ),
    )


def _pass_text(one: PassBreakdown, width: int) -> str:
    where = f"on {one.device}, by time" if one.device else "by FLOP (--device NAME for time)"
    return "\n".join(
        (
            one.name,
            *(f"  {line}" for line in _summary(one)),
            "",
            f"largest ops {where}",
            text_table(op_table(one.ops), width=width),
            "",
            text_table(owner_table(one.memory), width=width),
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
    return lines + ([f"{format_duration(one.device_s)} busy"] if one.device_s is not None else [])


def _op_cells(op: OpShare) -> tuple[str, ...]:
    return (
        op.kind,
        op.phase,
        _shape(op),
        f"{op.count:g}",
        format_count(op.flop),
        format_bytes(op.moved_bytes),
    )


def _shape(op: OpShare) -> str:
    return "×".join(str(size) for size in op.shape.values() if size) or ABSENT


def _time_cells(op: OpShare) -> tuple[str, ...]:
    if op.device_s is None or op.time_frac is None:
        return (ABSENT,) * 4
    reached = ABSENT if op.bound_frac is None else format_percent(min(op.bound_frac, 1.0))
    return (format_duration(op.device_s), format_percent(op.time_frac), str(op.limit), reached)
