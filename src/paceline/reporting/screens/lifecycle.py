"""The places of a whole lifecycle as text: one row per phase, beside one place for all."""

from __future__ import annotations

from collections.abc import Callable

from paceline.planning.lifecycle.answer import Lifecycle, PlacedLife, PlacedPhase
from paceline.reporting.figures import usd_range
from paceline.reporting.screens.plans import how, machine_name
from paceline.reporting.tables import ABSENT, Table, header, markdown_table, text_table
from paceline.reporting.texts import labelled
from paceline.units import format_duration, format_percent, format_usd


def lifecycle_text(answer: Lifecycle, *, width: int) -> str:
    """What was assumed, the places with their costs, and why."""

    def lines(label: str, sentences: tuple[str, ...]) -> str:
        return "\n".join(labelled(label, sentences, width))

    return _page(answer, lines, lambda table: text_table(table, width=width))


def lifecycle_markdown(answer: Lifecycle) -> str:
    """The same, to be pasted into a request."""

    def lines(label: str, sentences: tuple[str, ...]) -> str:
        return "\n".join([f"**{label}**", "", *(f"- {sentence}" for sentence in sentences)])

    return _page(answer, lines, markdown_table)


def lifecycle_table(answer: Lifecycle) -> Table:
    """One row per phase, and their sum; the last column is the single place, where there is one."""
    phases, other = answer.split.phases, answer.one_place
    rows = [_cells(one) for one in phases]
    rows.append(("together", "", "", "", "", *_sums(answer.split)))
    last = [ABSENT] * len(rows) if other is None else [*_by_phase(other), _mid(other)]
    return Table(
        columns=header(
            "to | place ~20+ | batch, how ~12+ -1 | paid for > -3 | busy > -2 | USD >"
            " | moving > -4 | in one place > -5"
        ),
        rows=tuple((*row, cell) for row, cell in zip(rows, last, strict=True)),
    )


def _page(
    answer: Lifecycle,
    lines: Callable[[str, tuple[str, ...]], str],
    printed: Callable[[Table], str],
) -> str:
    reasons = tuple(f"{one.phase}: {one.reason}" for one in answer.split.phases)
    blocks = (
        answer.title,
        lines("assumed", answer.assumptions),
        printed(lifecycle_table(answer)),
        lines("why", reasons),
        lines("one place", answer.why),
    )
    return "\n\n".join(blocks)


def _cells(one: PlacedPhase) -> tuple[str, ...]:
    return (
        one.phase,
        machine_name(one.choice),
        how(one.choice),
        format_duration(one.held_s),
        ABSENT if one.busy_frac is None else format_percent(one.busy_frac),
        usd_range(one.machines_usd),
        format_usd(one.moving_usd),
    )


def _sums(life: PlacedLife) -> tuple[str, str]:
    return usd_range(life.total_usd), format_usd(sum(one.moving_usd for one in life.phases))


def _by_phase(life: PlacedLife) -> list[str]:
    return [format_usd(one.machines_usd.mid + one.moving_usd) for one in life.phases]


def _mid(life: PlacedLife) -> str:
    return format_usd(life.total_usd.mid)
