"""Predictions as text: the whole catalogue best first, or tables of batch against device count."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Literal, get_args

from paceline.parallelism.uncertainty import width_cause
from paceline.reporting.figures import (
    duration_range,
    memory_share,
    number_range,
    percentile_range,
)
from paceline.reporting.headlines import predicted_headline
from paceline.reporting.tables import (
    ABSENT,
    Table,
    display_width,
    header,
    markdown_table,
    table_width,
    text_table,
)
from paceline.reporting.texts import labelled
from paceline.units import (
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    format_significant,
)

if TYPE_CHECKING:
    from paceline.planfile import Interval
    from paceline.planning.forecast.grid import GridCell, PredictionGrid
    from paceline.planning.forecast.services import SeenTimes, ServiceCell

_NUM_RANKED_SHOWN = 25
_NUM_REASONS_SHOWN = 3
_NUM_NAMES_SHOWN = 3
#: Marks a figure whose interval is wider than half to double.
_ROUGH = "~ rough"
#: What requests to an engine see, by the title of its column.
_SEEN = {"first token": "first_token", "per token": "per_token"}
#: How much of each figure of a service stands in its row, the most first.
Detail = Literal["all", "tail", "middle"]
_DETAILS: Sequence[Detail] = get_args(Detail)
_STATUS_WORDS = {"out of memory": "OOM", "abstained": "?"}


def grid_text(grid: PredictionGrid, *, width: int = 100) -> str:
    """One table per device: batch against count, or batch against figures for a single count.

    Where requests come to a service, one table of what they see.
    """
    if grid.services:
        return services_text(grid, width=width)
    blocks = [
        _opening(grid, width),
        *(_device_text(grid, cells, width) for cells in _by_device(grid)),
    ]
    remedies = "\n".join(labelled("remedy", grid.remedies, width))
    return "\n\n".join(block for block in (*blocks, remedies, _unanswered(grid, width)) if block)


def services_text(grid: PredictionGrid, *, width: int = 100) -> str:
    """What requests see of each service: percentiles, what is completed, and what could be."""
    blocks = (
        _opening(grid, width),
        "\n".join(labelled("load", (grid.load,), width)),
        _fitted_services(grid.services, width),
        "\n".join(labelled("note", _service_notes(grid.services), width)),
        _unanswered(grid, width),
    )
    return "\n\n".join(block for block in blocks if block)


def services_markdown(grid: PredictionGrid) -> str:
    """The same as Markdown."""
    parts = [f"# {_title(grid)}", "\n".join(f"- {text}" for text in (*grid.assumptions, grid.load))]
    parts.append(markdown_table(services_table(grid.services)))
    parts.append("\n".join(f"- {note}" for note in _service_notes(grid.services)))
    return "\n\n".join(part for part in parts if part)


def _fitted_services(cells: Sequence[ServiceCell], width: int) -> str:
    """The table of services, with as many figures of each time as fit in a width."""
    texts = [text_table(services_table(cells, detail), width=width) for detail in _DETAILS]
    fitting = (text for text in texts if max(map(display_width, text.splitlines())) <= width)
    return next(fitting, texts[-1])


def services_table(cells: Sequence[ServiceCell], detail: Detail = "all") -> Table:
    """A row for each service: what its requests see, what is completed, and what could be.

    Args:
        cells: A service each.
        detail: All three percentiles, the 95th alone, or that without intervals.
    """
    is_whole = all(cell.first_token is None for cell in cells)
    seen = {"answer": "request"} if is_whole else _SEEN
    percentiles = "p50/p95/p99" if detail == "all" else "p95"
    titles = [f"{title} {percentiles} >" for title in seen]
    rows = tuple(_service_row(cell, tuple(seen.values()), detail) for cell in cells)
    # What tells rows apart stays on a narrow terminal.
    replicas = "replicas >" + " -2" * _is_alike(rows, 1)
    precision = "format" + " -1" * _is_alike(rows, 2)
    columns = ["devices ~12+", replicas, precision, *titles, "requests/s > -3", "at most >"]
    return Table(columns=header(" | ".join(columns)), rows=rows)


def _is_alike(rows: Sequence[tuple[str, ...]], column: int) -> bool:
    return len({row[column] for row in rows}) == 1


def _times(seen: SeenTimes, detail: Detail) -> str:
    if detail == "all":
        return percentile_range(seen.p50_s, seen.p95_s, seen.p99_s)
    return duration_range(seen.p95_s) if detail == "tail" else format_duration(seen.p95_s.mid)


def _service_row(cell: ServiceCell, names: Sequence[str], detail: Detail) -> tuple[str, ...]:
    times = [
        ABSENT if seen is None else _times(seen, detail)
        for seen in (getattr(cell, name) for name in names)
    ]
    most = cell.capacity_requests_per_s
    return (
        f"{cell.num_devices}×{cell.device}",
        f"{cell.num_replicas}×{cell.num_ranks}",
        cell.precision,
        *times,
        ABSENT if cell.requests_per_s is None else format_significant(cell.requests_per_s),
        ABSENT if most is None else _most(most, detail),
    )


def _most(figure: Interval, detail: Detail) -> str:
    return number_range(figure) if detail != "middle" else format_significant(figure.mid)


def _service_notes(cells: Sequence[ServiceCell]) -> list[str]:
    """Why services cannot run or cannot keep up, and what to change of one."""
    failed = {cell.reason: None for cell in cells if cell.reason}
    slow = [f"{c.num_devices}×{c.device}" for c in cells if c.status == "overloaded"]
    advice = [
        f"one setting of {c.num_devices}×{c.device}: {'; '.join(c.settings)}"
        for c in cells
        if c.settings
    ]
    words = f"more is offered than {', '.join(slow)} can do: the queue grows as long as it lasts"
    return [*failed, *([words] if slow else []), *advice]


def ranking_text(grid: PredictionGrid, *, width: int = 100) -> str:
    """The devices of the catalogue, best first, at the batch of highest throughput each."""
    ranked = _ranked(grid.cells)
    shown = ranked[:_NUM_RANKED_SHOWN]
    table = text_table(ranking_table(shown, grid.sample_unit), width=width)
    hidden = len(ranked) - len(shown)
    more = f"{hidden} more with --json" if hidden > 0 else ""
    notes = (more, *_rough_words(shown), *_beyond_peak_words(shown), _energy_note(shown))
    more = "\n".join(filter(None, notes))
    left_out = "\n".join(labelled("left out", _without_figure(grid.cells), width))
    blocks = (_opening(grid, width), table, more, left_out, _unanswered(grid, width))
    return "\n\n".join(block for block in blocks if block)


def grid_markdown(grid: PredictionGrid) -> str:
    """The same tables as Markdown."""
    if grid.services:
        return services_markdown(grid)
    assumptions = "\n".join(f"- {text}" for text in grid.assumptions)
    parts = [f"# {_title(grid)}", predicted_headline(grid), assumptions]
    for cells in _by_device(grid):
        parts += [f"## {_device_title(cells)}", markdown_table(_device_table(grid, cells))]
        notes = _reasons(cells)
        if not _has_counts(cells):
            notes += [f"memory: {_memory_words(grid, cells)}", _energy_note(cells)]
        parts.append("\n".join(f"- {note}" for note in notes if note))
    return "\n\n".join(part for part in parts if part)


def ranking_markdown(grid: PredictionGrid) -> str:
    """The ranking as Markdown."""
    table = markdown_table(ranking_table(_ranked(grid.cells), grid.sample_unit))
    assumptions = "\n".join(f"- {text}" for text in grid.assumptions)
    left_out = "\n".join(f"- left out: {text}" for text in _without_figure(grid.cells))
    energy = _energy_note(grid.cells)
    blocks = (f"# {_title(grid)}", assumptions, table, energy, left_out)
    return "\n\n".join(block for block in blocks if block)


def ranking_table(cells: Sequence[GridCell], sample_unit: str) -> Table:
    """One row per device."""
    return Table(
        columns=header(
            f"# > | device ~20+ | {sample_unit}/s > | step -3 | batch > | memory >"
            f" | J/{sample_unit.removesuffix('s')} > -1 | bound by -2"
        ),
        rows=tuple(
            (
                str(rank),
                cell.device,
                _rate(cell),
                ABSENT if cell.step_s is None else duration_range(cell.step_s),
                str(cell.batch_per_device),
                memory_share(cell.memory_bytes, cell.memory_capacity_bytes),
                _energy(cell),
                cell.bound,
            )
            for rank, cell in enumerate(cells, start=1)
        ),
    )


def count_table(cells: Sequence[GridCell], sample_unit: str) -> Table:
    """Throughput by batch (down) and number of devices (across); OOM where it does not fit.

    Each with its interval, and beside it the efficiency against so many single devices.
    """
    counts = sorted({cell.num_devices for cell in cells})
    batches = sorted({cell.batch_per_device for cell in cells})
    by_place = {(cell.batch_per_device, cell.num_devices): cell for cell in cells}
    return Table(
        columns=header(
            " | ".join(("batch per device >", *(f"{count}× {sample_unit}/s >" for count in counts)))
        ),
        rows=tuple(
            (str(batch), *(_count_cell(by_place.get((batch, count))) for count in counts))
            for batch in batches
        ),
    )


def batch_table(cells: Sequence[GridCell], sample_unit: str, *, has_latency: bool = False) -> Table:
    """Everything about one device by batch; OOM where it does not fit.

    ``has_latency``: whether answers are written token by token.
    """
    waits, used = (" | per token | first token", "") if has_latency else ("", " | MFU > -2")
    return Table(
        columns=header(
            f"batch > | {sample_unit}/s > | step{waits} | memory >"
            f" | J/{sample_unit.removesuffix('s')} > -1{used} | bound by -4 | how -3"
        ),
        rows=tuple(_batch_cells(cell, has_latency=has_latency) for cell in cells),
    )


def _batch_cells(cell: GridCell, *, has_latency: bool) -> tuple[str, ...]:
    memory = memory_share(cell.memory_bytes, cell.memory_capacity_bytes)
    latency = (
        (
            ABSENT if cell.latency_s is None else duration_range(cell.latency_s),
            ABSENT if cell.ttft_s is None else duration_range(cell.ttft_s),
        )
        if has_latency
        else ()
    )
    return (
        str(cell.batch_per_device),
        _rate(cell),
        ABSENT if cell.step_s is None else duration_range(cell.step_s),
        *latency,
        memory,
        _energy(cell),
        *([] if has_latency else [_share(cell.mfu_frac)]),
        cell.bound if cell.status == "fits" else ABSENT,
        _way(cell),
    )


def _way(cell: GridCell) -> str:
    """How it runs: in which precision, by what."""
    return f"{cell.precision} {cell.engine or cell.compiler}"


def _title(grid: PredictionGrid) -> str:
    task = "training" if grid.task == "train" else "inference"
    return f"{grid.title} · {task} · {format_count(grid.num_parameters)} parameters"


def _opening(grid: PredictionGrid, width: int) -> str:
    told = predicted_headline(grid)
    head = "\n".join(textwrap.wrap(told, width, break_on_hyphens=False))
    opening = "\n".join((_title(grid), *labelled("assumed", grid.assumptions, width)))
    return "\n\n".join(filter(None, (head, opening)))


def _by_device(grid: PredictionGrid) -> list[list[GridCell]]:
    """The cells of each device; where counts stand side by side, of each way that it runs."""
    devices = [list(cells) for _, cells in groupby(grid.cells, key=lambda cell: cell.device)]
    return [part for cells in devices for part in _by_way(cells)]


def _by_way(cells: list[GridCell]) -> list[list[GridCell]]:
    places = {(cell.num_devices, cell.batch_per_device) for cell in cells}
    if not _has_counts(cells) or len(places) == len(cells):
        return [cells]
    ways: dict[tuple[str, str], list[GridCell]] = {}
    for cell in cells:
        ways.setdefault((cell.precision, cell.compiler), []).append(cell)
    return list(ways.values())


def _device_text(grid: PredictionGrid, cells: list[GridCell], width: int) -> str:
    unit = grid.sample_unit
    tables = (
        [count_table(part, unit) for part in _side_by_side(cells, unit, width)]
        if _has_counts(cells)
        else [batch_table(cells, unit, has_latency=grid.generates)]
    )
    shown = "\n\n".join(text_table(table, width=width) for table in tables)
    notes = _reasons(cells)
    if not _has_counts(cells):
        energy = [_energy_note(cells)] if _ENERGY in shown else _energy_words(grid, cells, width)
        notes += [*labelled("memory", (_memory_words(grid, cells),), width), *energy]
    return "\n".join((_device_title(cells), shown, *filter(None, notes)))


def _memory_words(grid: PredictionGrid, cells: Sequence[GridCell]) -> str:
    """Whose the memory is at the largest batch that fits, or else at the smallest."""
    fitting = [cell for cell in cells if cell.status != "out of memory"]
    cell = fitting[-1] if fitting else cells[0]
    parts = cell.memory_parts
    rest = "gradients and " if grid.task == "train" else "caches and " if grid.generates else ""
    named = {
        "weights": parts.weights_bytes,
        "optimizer states": parts.optimizer_bytes,
        f"{rest}activations": parts.rest_bytes,
        "driver, libraries and allocator": parts.process_bytes,
    }
    told = ", ".join(f"{name} {format_bytes(size)}" for name, size in named.items() if size)
    whole = format_bytes(cell.memory_bytes.mid)
    return f"{whole} in the median at batch {cell.batch_per_device}: {told}"


def _side_by_side(cells: Sequence[GridCell], sample_unit: str, width: int) -> list[list[GridCell]]:
    """Cells of as many device counts as stand beside each other in ``width`` characters."""
    parts: list[list[GridCell]] = []
    for count in sorted({cell.num_devices for cell in cells}):
        column = [cell for cell in cells if cell.num_devices == count]
        wider = [*parts[-1], *column] if parts else column
        is_too_wide = table_width(count_table(wider, sample_unit)) > width
        parts = [*parts, column] if is_too_wide or not parts else [*parts[:-1], wider]
    return parts


def _device_title(cells: Sequence[GridCell]) -> str:
    ways = dict.fromkeys(map(_way, cells))
    return f"{cells[0].device} · {' or '.join(ways)}"


def _device_table(grid: PredictionGrid, cells: Sequence[GridCell]) -> Table:
    if _has_counts(cells):
        return count_table(cells, grid.sample_unit)
    return batch_table(cells, grid.sample_unit, has_latency=grid.generates)


def _has_counts(cells: Sequence[GridCell]) -> bool:
    return any(cell.num_devices != cells[0].num_devices for cell in cells)


def _reasons(cells: Sequence[GridCell]) -> list[str]:
    """Why cells have no figure: one line per status and need, for the smallest batch each."""
    first: dict[tuple[str, float], GridCell] = {}
    stopped: set[tuple[str, int]] = set()
    for cell in cells:
        if cell.status == "fits" or (cell.status, cell.num_devices) in stopped:
            continue
        stopped.add((cell.status, cell.num_devices))
        first.setdefault((cell.status, cell.memory_bytes.mid), cell)
    lines = [
        f"{_STATUS_WORDS[cell.status]}: batch {cell.batch_per_device}"
        f"{f' on {cell.num_devices}' if cell.num_devices > 1 else ''} {cell.reason}"
        for cell in first.values()
    ]
    return [*lines[:_NUM_REASONS_SHOWN], *_rough_words(cells), *_beyond_peak_words(cells)]


def _rough_words(cells: Sequence[GridCell]) -> list[str]:
    """How wide the rough figures are, one line; none where all are narrower."""
    rough = [(c.step_s.high / c.step_s.mid, c) for c in cells if c.is_rough and c.step_s]
    if not rough:
        return []
    widest, cell = max(rough, key=lambda one: one[0])
    return [
        f"{_ROUGH}: known only within ×/÷ {widest:.1f}, as {width_cause(cell.num_devices)}; a plan "
        "chooses by it only where the device is named"
    ]


def _beyond_peak_words(cells: Sequence[GridCell]) -> list[str]:
    """What a share of the listed rate above one means, one line; none where all are below."""
    if all((cell.mfu_frac or 0.0) <= 1.0 for cell in cells):
        return []
    return ["MFU above 100 %: its rate is that with sums in FP32, its FLOP plain convolutions'"]


#: How the column of joules begins.
_ENERGY = " J/"


def _energy_note(cells: Sequence[GridCell]) -> str:
    """How sure the column of joules is, in words; empty without one."""
    known = [one for one in (c.energy_interval_j_per_sample for c in cells) if one is not None]
    if not known:
        return ""
    least, most = (pick(one.high / one.mid for one in known) for pick in (min, max))
    factors = " to ".join(dict.fromkeys((f"{least:.1f}", f"{most:.1f}")))
    return f"energy (J) is that of the device alone, within ×/÷ {factors} in four of five cases"


def _energy_words(grid: PredictionGrid, cells: Sequence[GridCell], width: int) -> list[str]:
    """The joules themselves where the screen has no room for their column; empty without one."""
    note, unit = _energy_note(cells), grid.sample_unit.removesuffix("s")
    known = [one for one in cells if one.energy_j_per_sample is not None]
    if not known:
        return []
    told = f"{_energy(known[-1])} J/{unit} at batch {known[-1].batch_per_device}"
    return labelled("energy", (note.replace("energy (J) is", f"{told},"),), width)


def _unanswered(grid: PredictionGrid, width: int) -> str:
    """Devices without an answer, by reason, the most frequent first."""
    by_reason: dict[str, list[str]] = {}
    for silent in grid.unanswered:
        reason = silent.reason.replace(silent.device, "it")
        by_reason.setdefault(reason, []).append(silent.device)
    groups = sorted(by_reason.items(), key=lambda group: -len(group[1]))
    sentences = [_group(reason, names) for reason, names in groups[:_NUM_REASONS_SHOWN]]
    hidden = sum(len(names) for _, names in groups[_NUM_REASONS_SHOWN:])
    if hidden:
        sentences.append(f"{hidden} more devices (all with --json)")
    return "\n".join(labelled("no answer", sentences, width))


def _group(reason: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NUM_NAMES_SHOWN])
    if len(names) <= _NUM_NAMES_SHOWN:
        return f"{shown}: {reason}"
    return f"{len(names)} devices ({shown}, …): {reason}"


def _ranked(cells: Sequence[GridCell]) -> list[GridCell]:
    answered = [cell for cell in cells if cell.samples_per_s is not None]
    return sorted(
        answered, key=lambda c: (c.is_rough, -c.samples_per_s.mid if c.samples_per_s else 0.0)
    )


def _without_figure(cells: Sequence[GridCell]) -> list[str]:
    """Devices of a ranking without a figure, by status, with what the nearest one lacks."""
    lines = []
    for status, word in _STATUS_WORDS.items():
        mine = [cell for cell in cells if cell.status == status]
        if mine:
            nearest = min(mine, key=lambda c: c.memory_bytes.mid / c.memory_capacity_bytes)
            devices = "1 device" if len(mine) == 1 else f"{len(mine):,} devices"
            lines.append(
                f"{word}: {devices}; {nearest.device} at batch {nearest.batch_per_device} "
                f"{'is ' if status == 'abstained' else ''}{nearest.reason}"
            )
    return lines


def _count_cell(cell: GridCell | None) -> str:
    if cell is None:
        return ABSENT
    if cell.samples_per_s is None:
        return _STATUS_WORDS[cell.status]
    efficiency = cell.efficiency_frac
    share = f" {100 * efficiency:.0f} %" if efficiency is not None and cell.num_devices > 1 else ""
    return f"{_rough_mark(cell)}{number_range(cell.samples_per_s)}{share}"


def _rate(cell: GridCell) -> str:
    if cell.samples_per_s is None:
        return _STATUS_WORDS[cell.status]
    return f"{_rough_mark(cell)}{number_range(cell.samples_per_s)}"


def _rough_mark(cell: GridCell) -> str:
    return f"{_ROUGH[0]} " if cell.is_rough else ""


def _share(frac: float | None) -> str:
    return ABSENT if frac is None else format_percent(frac)


def _energy(cell: GridCell) -> str:
    joules = cell.energy_j_per_sample
    return ABSENT if joules is None else format_significant(joules)
