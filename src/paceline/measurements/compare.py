"""Did it get slower? Two sets of measurements, cell by cell, judged by confidence interval."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from paceline.errors import RegressionError
from paceline.measurements.records import Record
from paceline.measurements.statistics import MedianInterval, median_ratio
from paceline.values import dataclass

Verdict = Literal[
    "slower", "faster", "same", "unsure", "broke", "mended", "only-before", "only-after"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellComparison:
    """One cell before and after.

    Attributes:
        cell: Its key.
        before: Newest record of the first set; None if it is not there.
        after: Newest record of the second set; None if it is not there.
        ratio: Step time after over before, with its interval; None unless both have samples.
        verdict: ``slower``/``faster`` if the whole interval is beyond the tolerance, ``same`` if
            it is within, ``unsure`` if it reaches over; ``broke``/``mended`` if only one ended
            well.
    """

    cell: str
    before: Record | None
    after: Record | None
    ratio: MedianInterval | None
    verdict: Verdict


def compare(
    before: Iterable[Record],
    after: Iterable[Record],
    *,
    tolerance_frac: float = 0.05,
    confidence: float = 0.9,
) -> tuple[CellComparison, ...]:
    """Every cell of either set, in the order of the first and then of the second.

    Args:
        before: The reference; of several records of one cell the newest counts.
        after: What is judged.
        tolerance_frac: Change of the median that does not matter.
        confidence: Of the interval of the ratio.
    """
    first, second = _newest(before), _newest(after)
    cells = dict.fromkeys((*first, *second))
    return tuple(
        _compare_cell(cell, first.get(cell), second.get(cell), tolerance_frac, confidence)
        for cell in cells
    )


def require_no_regression(comparisons: Iterable[CellComparison]) -> None:
    """Do nothing if no cell got slower or broke.

    Raises:
        RegressionError: Some did; the message names the worst.
    """
    bad = [c for c in comparisons if c.verdict in ("slower", "broke")]
    if not bad:
        return
    worst = max(bad, key=lambda c: c.ratio.mid if c.ratio else float("inf"))
    change = f"{worst.ratio.mid:.2f} times its former step time" if worst.ratio else "it fails now"
    raise RegressionError(
        f"{len(bad)} cells regressed, worst {worst.cell}: {change}",
        hint="see the table above; measure again to rule out a busy machine",
    )


def other_machines(comparisons: Iterable[CellComparison]) -> str:
    """That two sets were measured on different devices or processors; empty where they were not.

    A ratio then is of machines as much as of what ran on them.
    """
    both = [(c.before, c.after) for c in comparisons if c.before and c.after]
    first, second = ({_machine_of(pair[side]) for pair in both} for side in (0, 1))
    if first == second:
        return ""
    names = (" and ".join(sorted(names)) for names in (first, second))
    return "two machines: {} before, {} after; the ratios are theirs, too".format(*names)


def _machine_of(record: Record) -> str:
    """Device and processor of a record, as far as it says them."""
    parts = (record.device_name, record.host_cpu)
    return " with ".join(dict.fromkeys(part for part in parts if part)) or "an unknown machine"


def _cell_key(record: Record) -> str:
    """What a record measured, without when, where and with which version."""
    if record.cell:
        return record.cell
    parts = (record.workload, record.task, record.precision, record.compiler, record.framework)
    count = f"b{record.batch_per_device}x{record.num_devices}"
    return "/".join(str(part) for part in (*parts, count) if part)


def _newest(records: Iterable[Record]) -> Mapping[str, Record]:
    found: dict[str, Record] = {}
    for record in records:
        key = _cell_key(record)
        if key not in found or found[key].recorded_at <= record.recorded_at:
            found[key] = record
    return found


def _compare_cell(
    cell: str,
    before: Record | None,
    after: Record | None,
    tolerance_frac: float,
    confidence: float,
) -> CellComparison:
    ratio = None
    if before and after and before.samples_s and after.samples_s:
        ratio = median_ratio(after.samples_s, before.samples_s, confidence=confidence)
    return CellComparison(
        cell=cell,
        before=before,
        after=after,
        ratio=ratio,
        verdict=_verdict(before, after, ratio, tolerance_frac),
    )


def _verdict(
    before: Record | None,
    after: Record | None,
    ratio: MedianInterval | None,
    tolerance_frac: float,
) -> Verdict:
    if before is None or after is None:
        return "only-after" if before is None else "only-before"
    if ratio is None:
        if before.outcome == after.outcome or "ok" not in (before.outcome, after.outcome):
            return "same"
        return "broke" if before.outcome == "ok" else "mended"
    low, high = 1.0 / (1.0 + tolerance_frac), 1.0 + tolerance_frac
    if ratio.low > high:
        return "slower"
    if ratio.high < low:
        return "faster"
    return "same" if low <= ratio.low and ratio.high <= high else "unsure"
