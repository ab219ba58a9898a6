"""Terms of engines and devices that published services fit, each source left out in turn.

The host's time between two steps (``step_s`` of ``stack/data/engines.toml``) is the median, over
sources, of each source's median of measured less predicted time of a step: on NVIDIA's devices,
with at most 64 requests in flight and no weights in 4-bit integers, where kernels are best known.
The level of a kind of device (``prediction/data/device_kinds.csv``) is the mean of its sources'
medians, drawn towards none as by one source more. Sources of fewer than eight rows say nothing of
a term. A source that is left out is judged with the terms of the others. An engine that no other
source measures is given the median of those that others do, as ``engines.toml`` gives one that
nobody measured; a level without another source is none. Levels of one source alone are shipped as
that source has them: those of early engines on devices of other makers, and of portable kernels
on Intel's (`portable_products.csv`, over NVIDIA's; those of AMD's follow from its lanes).
"""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paceline.scoring.completion import completed
from paceline.scoring.naming.serving import engine_of
from paceline.shipped import shipped_rows
from paceline.stack.engines import engine_in, engines

#: Devices with fewer rows are not shown apart, and sources say nothing of a term.
_LEAST_ROWS = 8
#: Beyond, requests wait for a cache, and steps are of unlike sizes.
_MOST_IN_FLIGHT = 64
_INTEGERS = re.compile(r"int4|awq|gptq|4-bit|w4|q4", re.IGNORECASE)
_OTHER_MAKERS = re.compile(r"instinct|max 1|gaudi|tpu|ascend|\bm\d ", re.IGNORECASE)
#: Devices of other makers, by whose kernels are told apart.
_VENDORS = (("AMD", re.compile(r"instinct", re.I)), ("Intel", re.compile(r"max 1550", re.I)))
_PORTABLE = "portable kernels, Intel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A rate that a row publishes, and what was predicted of it.

    Attributes:
        source: Of the row.
        device: As the catalogue names it.
        term: The fitted term that acts on it: an engine, a kind of device, or empty.
        shipped: That term as it is shipped, in seconds or as a logarithm.
        measured_step_s: Time of a step for all requests in flight; NaN where no requests are.
        log_ratio: Of predicted over measured rate, with the shipped term.
        log_width: Half of the 80 % interval.
        is_fitted: Whether its term is fitted to it too.
    """

    source: str
    device: str
    term: str
    shipped: float
    measured_step_s: float
    log_ratio: float
    log_width: float
    is_fitted: bool = True

    @property
    def predicted_step_s(self) -> float:
        """As told, with the shipped term."""
        return self.measured_step_s * math.exp(-self.log_ratio)

    @property
    def own(self) -> float:
        """The term that would make this row right."""
        if self.is_level:
            return self.shipped + self.log_ratio
        return self.measured_step_s - self.predicted_step_s + self.shipped

    @property
    def is_level(self) -> bool:
        """Whether its term multiplies steps; else it is added to them."""
        return self.term not in engines()

    def with_term(self, term: float) -> float:
        """``log_ratio`` with another value of its term."""
        if self.is_level:
            return self.log_ratio + self.shipped - term
        changed_s = self.predicted_step_s - self.shipped + term
        return self.log_ratio + math.log(self.predicted_step_s / changed_s)


def judged(row: Mapping[str, str], answer: Mapping[str, str]) -> Judged | None:
    """A row of quality A or B with a rate that its engine sets; None of all others."""
    if row["quality"] not in ("A", "B") or not (row["throughput"] and answer["throughput_mid"]):
        return None
    low, mid, high = (float(answer[f"throughput_{name}"]) for name in ("low", "mid", "high"))
    stated = dict(pair.partition("=")[::2] for pair in row["extra"].split(";"))
    if "rate_per_s" in stated and math.isclose(low, mid, rel_tol=0.05):
        return None
    sign = -1.0 if row["unit"].startswith("ms") else 1.0
    tokens_per_s = stated.get("output_tok_s") or (
        row["throughput"] if row["unit"].startswith("output") else ""
    )
    step_s = math.nan
    if tokens_per_s and stated.get("concurrency"):
        step_s = float(stated["concurrency"]) / float(tokens_per_s)
    term, shipped = _term(row["framework"], completed(row)["precision"], answer["device"], step_s)
    return Judged(
        source=row["source"].partition(":")[0],
        device=answer["device"],
        term=term,
        shipped=shipped,
        measured_step_s=step_s,
        log_ratio=sign * math.log(mid / float(row["throughput"])),
        log_width=math.log(high / low) / 2.0,
        is_fitted=_is_best_known(row, stated, answer["device"])
        or (bool(term) and term not in engines()),
    )


def _is_best_known(row: Mapping[str, str], stated: Mapping[str, str], device: str) -> bool:
    is_wide = not _INTEGERS.search(row["precision"])
    is_small = float(stated.get("concurrency") or math.inf) <= _MOST_IN_FLIGHT
    return is_wide and is_small and not _OTHER_MAKERS.search(device)


def _term(framework: str, precision: str, device: str, step_s: float) -> tuple[str, float]:
    engine = engine_of(framework)
    vendor = next((name for name, spelling in _VENDORS if spelling.search(device)), "")
    is_portable = engine is not None and engine.kernels == "portable"
    if is_portable and vendor == "AMD":
        return "", 0.0
    if is_portable and vendor:
        per_clock = {
            one["vendor"]: float(one["bytes_per_clock"])
            for one in _per_clock()
            if not one["architecture"]
        }
        return _PORTABLE, math.log(per_clock["NVIDIA"] / per_clock.get(vendor, per_clock[""]))
    is_early = engine is None or engine.kernels == "early"
    if vendor and is_early and precision != "fp8":
        return f"early engines, {vendor}", _level(vendor, "gpu", "served early")
    if engine is None or engine.step_s is None or engine.overlaps or math.isnan(step_s):
        return "", 0.0
    if engine_in(framework) is None:  # Another engine stands for what the row names.
        return "", 0.0
    return engine.name, engine.step_s


def _per_clock() -> tuple[Mapping[str, str], ...]:
    return tuple(shipped_rows("prediction", "portable_products.csv"))


def _level(vendor: str, kind: str, runs: str) -> float:
    lines = shipped_rows("prediction", "device_kinds.csv")
    asked = (vendor, kind, runs)
    line = next(one for one in lines if (one["vendor"], one["kind"], one["runs"]) == asked)
    return float(line["log_level"])


def terms(found: Sequence[Judged]) -> dict[str, float]:
    """Each term, of the sources that are given."""
    fitted = {}
    for name in sorted({one.term for one in found if one.term}):
        own = [one for one in found if one.term == name and one.is_fitted]
        medians = _by_source(own, lambda one: one.own)
        if not medians:
            continue
        is_level = own[0].is_level
        fitted[name] = (
            sum(medians) / (len(medians) + 1) if is_level else max(float(np.median(medians)), 0.0)
        )
    return fitted


def _by_source(found: Sequence[Judged], value: Callable[[Judged], float]) -> list[float]:
    groups = [rows for _, rows in _grouped(found, lambda one: one.source)]
    return [float(np.median([value(x) for x in rows])) for rows in groups if _says(rows)]


def _says(rows: Sequence[Judged]) -> bool:
    return len(rows) >= _LEAST_ROWS


def left_out(found: Sequence[Judged]) -> Iterator[tuple[Judged, float]]:
    """Each row with its log ratio by the terms of the other sources."""
    for source in sorted({one.source for one in found}):
        others = terms_without(found, source)
        for one in found:
            if one.source == source:
                yield one, one.with_term(others[one.term]) if one.term else one.log_ratio


def terms_without(found: Sequence[Judged], source: str) -> dict[str, float]:
    """Each term by the other sources; of an engine that none of them says, that of the others."""
    others = terms([one for one in found if one.source != source])
    own_s = [value for name, value in others.items() if name in engines()]
    unknown = {
        one.term: 0.0 if one.is_level or not own_s else float(np.median(own_s)) for one in found
    }
    return unknown | others


def page(found: Sequence[Judged]) -> Iterator[str]:
    """Terms, then capacity by source and by device, each source left out."""
    yield "| term | rows | sources | shipped | without each source |"
    yield "|---|--:|--:|--:|---|"
    for name, rows in _grouped(found, lambda one: one.term):
        if name and (fitted := [one for one in rows if one.is_fitted]):
            yield _line_of_term(name, fitted, found)
    ratios = {id(one): ratio for one, ratio in left_out(found)}
    for title, key in (("source", lambda one: one.source), ("device", lambda one: one.device)):
        yield f"\n| {title} | rows | shipped terms | left out | coverage | far |"
        yield "|---|--:|--:|--:|--:|--:|"
        for name, rows in [("all", list(found)), *_grouped(found, key)]:
            if title == "source" or len(rows) >= _LEAST_ROWS:
                yield _line(name, rows, ratios)


def _grouped(
    found: Sequence[Judged], key: Callable[[Judged], str]
) -> list[tuple[str, list[Judged]]]:
    names = sorted({key(one) for one in found})
    groups = [(name, [one for one in found if key(one) == name]) for name in names]
    return sorted(groups, key=lambda pair: -len(pair[1]))


def _line_of_term(name: str, rows: list[Judged], found: Sequence[Judged]) -> str:
    def shown(value: float) -> str:
        return f"x {math.exp(value):.2f}" if rows[0].is_level else f"{value * 1e3:.2f} ms"

    sources = sorted(name for name, own in _grouped(rows, lambda one: one.source) if _says(own))
    without = "; ".join(
        f"{source.rpartition('/')[2]}: " + shown(terms_without(found, source)[name])
        for source in sources
    )
    cells = (name, f"{len(rows):,}", str(len(sources)), shown(rows[0].shipped), without)
    return f"| {' | '.join(cells)} |"


def _line(name: str, rows: list[Judged], ratios: Mapping[int, float]) -> str:
    shipped = np.array([one.log_ratio for one in rows])
    others = np.array([ratios[id(one)] for one in rows])
    inside = np.abs(others) <= np.array([one.log_width for one in rows])
    far = int((np.abs(others) > math.log(5.0)).sum())
    cells = (
        name, f"{len(rows):,}", f"{np.median(np.abs(np.expm1(shipped))):.0%}",
        f"{np.median(np.abs(np.expm1(others))):.0%}", f"{np.mean(inside):.0%}", str(far),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def read(rows: Path, answers: Path) -> list[Judged]:
    """All that can be judged."""
    return [one for row, answer in paired(rows, answers) if (one := judged(row, answer))]


def paired(rows: Path, answers: Path) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Rows with their answers, but for those whose table was copied from another device's page.

    Rates and all times of a run to the digit on two kinds of devices are those of at most one.
    """
    with rows.open(encoding="utf-8") as given, answers.open(encoding="utf-8") as told:
        pairs = list(zip(csv.DictReader(given), csv.DictReader(told), strict=True))
    devices = defaultdict[tuple[str, ...], set[str]](set)
    for row, _ in pairs:
        devices[_measured(row)].add(row["gpu"])
    return [
        (row, answer)
        for row, answer in pairs
        if "ttft_ms" not in row["extra"] or len(devices[_measured(row)]) == 1
    ]


def _measured(row: Mapping[str, str]) -> tuple[str, ...]:
    return row["source"].partition(":")[0], row["model"], row["throughput"], row["extra"]
