"""The first sentence of an answer: device, count, time or rate, money and fit, by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paceline.planning.forecast.services import first_cell
from paceline.reporting.figures import ItemRate, memory_range, memory_share
from paceline.units import (
    counted_name,
    efficiency_text,
    format_duration,
    format_significant,
    format_usd,
)

#: How long a token may take that is read as it comes: 238 words a minute, of 1.3 tokens each.
#: Source: Brysbaert, "How many words do we read per minute?", J. Memory and Language 2019.
_READ_S = 0.2
#: Share of an answer's time from which a rate of tokens is told to count the prompt's.
_READING_FRAC = 0.1

if TYPE_CHECKING:
    from paceline.planning.decisions.curve import ScalingCurve, ScalingPoint
    from paceline.planning.forecast.grid import GridCell, PredictionGrid
    from paceline.planning.forecast.services import ServiceCell


def predicted_headline(grid: PredictionGrid) -> str:
    """What the fastest of the cells does, in one sentence; empty where none has a figure.

    Such as ``1×A10 trains 2,047 images/s at batch 32 (15.6 ms a step) and fits: 1.4/24 GB.``; what
    takes longer than a second, by its time: ``runs an image in 5.60 s``.
    """
    if grid.services:
        return _served(grid.services)
    known = [c for c in grid.cells if c.status == "fits" and c.samples_per_s is not None]
    if not known:
        return ""
    best = _best(known)
    verb = "train" if grid.task == "train" else "run" if best.ttft_s is None else "write"
    if verb == "write" and grid.sample_unit == "seconds of sound":
        verb = "hear"
    prompt = _prompt_words(best) if verb == "write" else ""
    ending = "s" if best.num_devices == 1 else ""
    memory = memory_share(best.memory_bytes, best.memory_capacity_bytes)
    rate = f"{'roughly ' if best.is_rough else ''}{_rate(best, grid.sample_unit)}"
    devices = f"{best.num_devices}×{counted_name(best.device)}"
    return (
        f"{devices} {verb}{ending} {rate} at batch {best.batch_per_device}"
        f"{prompt}{_times(best)} and fit{ending}: {memory}."
    )


def _best(cells: Sequence[GridCell]) -> GridCell:
    """The fastest, of answers those that can be read as they come; else the least slow."""
    followed = [c for c in cells if _token_s(c) <= _READ_S]
    return max(followed, key=_mid_rate) if followed else min(cells, key=_token_s)


def _token_s(cell: GridCell) -> float:
    """Seconds between two tokens of an answer; zero of what writes none."""
    return 0.0 if cell.ttft_s is None or cell.latency_s is None else cell.latency_s.mid


def _rate(cell: GridCell, unit: str) -> str:
    """Items a second, or seconds of one where that is longer and the cell works on one."""
    rate = _mid_rate(cell)
    if rate >= 1 or cell.num_devices * cell.batch_per_device > 1:
        return f"{format_significant(rate)} {unit}/s"
    first, _, rest = unit.partition(" ")
    one = f"{first.removesuffix('s')} {rest}".strip()
    return f"one {one} in {format_duration(1 / rate)}"


def _prompt_words(cell: GridCell) -> str:
    """That a rate counts the time in which prompts are read, where that is a tenth and more."""
    if cell.ttft_s is None or cell.step_s is None:
        return ""
    return ", prompts included" if cell.ttft_s.mid > _READING_FRAC * cell.step_s.mid else ""


def _mid_rate(cell: GridCell) -> float:
    return 0.0 if cell.samples_per_s is None else cell.samples_per_s.mid


def _times(cell: GridCell) -> str:
    if cell.latency_s is not None and cell.ttft_s is not None:
        token, first = format_duration(cell.latency_s.mid), format_duration(cell.ttft_s.mid)
        return f" ({token} per token, the first after {first})"
    if cell.step_s is None or (cell.latency_s is not None and _mid_rate(cell) < 1):
        return ""
    return f" ({format_duration(cell.step_s.mid)} a {'batch' if cell.latency_s else 'step'})"


def _served(cells: Sequence[ServiceCell]) -> str:
    """The service that stands first, at its 95th percentile."""
    best = first_cell(cells)
    if best is None or best.request is None:
        return ""
    most = best.capacity_requests_per_s
    limit = "" if most is None else f"; it can do {format_significant(most.mid)}"
    rate = format_significant(best.requests_per_s or 0.0)
    devices = f"{best.num_devices}×{counted_name(best.device)}"
    verb = "answers" if best.num_devices == 1 else "answer"
    return f"{devices} {verb} {rate} requests/s, 95 % of them within {_seen(best)}{limit}."


def _seen(cell: ServiceCell) -> str:
    """What 95 of 100 requests see."""
    if cell.first_token is None or cell.per_token is None:
        return "" if cell.request is None else format_duration(cell.request.p95_s.mid)
    first, token = (format_duration(p.p95_s.mid) for p in (cell.first_token, cell.per_token))
    return f"{first} to the first token and {token} per token"


def scaled_headline(device: str, curve: ScalingCurve, rate: ItemRate) -> str:
    """What the count at the knee does, in one sentence.

    Such as ``64×A100 do 39,210 images/s (84 % efficient): the job takes 49 min for 180 USD, 5 GB
    each.``
    """
    point = next((p for p in curve.points if p.count == curve.knee.count), None)
    if point is None:
        return ""
    devices = f"{point.count:,}×{counted_name(device)}"
    memory, verb = memory_range(point.memory_interval_bytes), "does" if point.count == 1 else "do"
    return (
        f"{devices} {verb} {rate.text(point.items_per_s)} {rate.unit}/s"
        f"{_efficient(point, curve)}{_job(point)}, {memory} each."
    )


def _efficient(point: ScalingPoint, curve: ScalingCurve) -> str:
    """Against the smallest count, where there is a smaller one."""
    if point.count == min(one.count for one in curve.points):
        return ""
    return f" ({efficiency_text(point.efficiency_frac)})"


def _job(point: ScalingPoint) -> str:
    if point.time_s is None:
        return ""
    usd = "" if point.cost_usd is None else f" for {format_usd(point.cost_usd)} USD"
    return f": the job takes {format_duration(point.time_s)}{usd}"
