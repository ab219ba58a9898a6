"""Fit the levels of ``scoring/data/serving_levels.csv`` to published runs of services.

PYTHONPATH=tools python -m accuracy_serving.levels ROWS.csv ANSWERS.csv [--page PAGE.md]

ANSWERS are those of `paceline score` to ROWS with the table as it is. What a line is off by is the
mean of its sources, each of which counts as one, drawn towards the level of its engine on devices
of its maker, and that towards none: one source moves either half of the way, three move it three
quarters. Widths are those of sources left out in turn: what the other sources say of a source's
rows, by the number of sources that know the line. ``--page`` writes both figures for each source.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Z_80 = 1.2815515655446004
#: Of steps, in the mean of the devices that were measured.
STEP_LOG_SIGMA = 0.2
#: A source weighs as much as what is known beforehand.
PRIOR_SOURCES = 1.0
#: Lines that so many sources know have a width of their own.
KNOWN_BY = (0, 1, 2)
TABLE = Path(__file__).parents[2] / "src/paceline/scoring/data/serving_levels.csv"
_FIELDS = ("engine", "maker", "framework", "device", "model", "log_level", "log_sigma", "rows",
           "sources")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Log of predicted over measured rate of one row, with no level.

    Attributes:
        log_ratio: Positive where the prediction is too fast.
        source: Of the row.
        line: Number of its line.
        group: Its engine, and the maker of its device.
    """

    log_ratio: float
    source: str
    line: int
    group: tuple[str, str]


def main() -> None:
    """Rewrite the table, and the page where one is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    lines = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
    found = residuals(lines, asked.rows, asked.answers)
    left_out = list(without_each_source(found))
    if asked.page:
        asked.page.write_text("\n".join(page(found, left_out)) + "\n", encoding="utf-8")
    widths = widths_of(left_out)
    for number, line in enumerate(lines):
        own = [one for one in found if one.line == number]
        line["rows"], line["sources"] = str(len(own)), str(len({one.source for one in own}))
        group = (line["engine"], line["maker"])
        level = level_of(found, number, group)
        own_sigma = _beyond_steps([one.log_ratio - level for one in own])
        known = min(int(line["sources"]), KNOWN_BY[-1])
        line["log_level"] = f"{level:.3f}"
        line["log_sigma"] = f"{max(widths[known], own_sigma):.3f}"
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def residuals(lines: Sequence[Mapping[str, str]], rows: Path, answers: Path) -> list[Residual]:
    """Of every row of quality A or B whose rate its engine sets."""
    found = []
    with rows.open(encoding="utf-8") as given, answers.open(encoding="utf-8") as told:
        for row, answer in zip(csv.DictReader(given), csv.DictReader(told), strict=True):
            if row["quality"] not in ("A", "B") or not answer["throughput_mid"]:
                continue
            if _is_set_by_its_rate(row, answer) or not row["throughput"]:
                continue
            number = _line_of(lines, row, answer["device"])
            if number is None:
                continue
            ratio = math.log(float(answer["throughput_mid"]) / float(row["throughput"]))
            line = lines[number]
            found.append(
                Residual(
                    log_ratio=(-ratio if row["unit"].startswith("ms") else ratio)
                    + float(line["log_level"] or 0.0),
                    source=row["source"].partition(":")[0],
                    line=number,
                    group=(line["engine"], line["maker"]),
                )
            )
    return found


def level_of(found: Sequence[Residual], line: int, group: tuple[str, str]) -> float:
    """The level of a line: of its sources, drawn towards its engine's on devices of its maker."""
    prior = _drawn(found, lambda one: one.group == group, 0.0)
    return _drawn(found, lambda one: one.line == line, prior)


def _drawn(found: Iterable[Residual], is_it: Callable[[Residual], bool], prior: float) -> float:
    by_source: defaultdict[str, list[float]] = defaultdict(list)
    for one in found:
        if is_it(one):
            by_source[one.source].append(one.log_ratio)
    off = [float(np.median(ratios)) - prior for ratios in by_source.values()]
    return prior + sum(off) / (len(off) + PRIOR_SOURCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A row as the other sources know it.

    Attributes:
        residual: The row.
        log_error: What is left when the others' level is taken off.
        num_sources: Of the others, those that know its line.
    """

    residual: Residual
    log_error: float
    num_sources: int


def without_each_source(found: Sequence[Residual]) -> Iterable[LeftOut]:
    """Every row with the level that the other sources give its line."""
    for source in sorted({one.source for one in found}):
        others = [one for one in found if one.source != source]
        own = [one for one in found if one.source == source]
        for line, group in sorted({(one.line, one.group) for one in own}):
            level = level_of(others, line, group)
            known = len({one.source for one in others if one.line == line})
            for one in own:
                if one.line == line:
                    error = one.log_ratio - level
                    yield LeftOut(residual=one, log_error=error, num_sources=known)


def widths_of(left_out: Sequence[LeftOut]) -> dict[int, float]:
    """Log sigma beyond that of steps, by the number of sources that know a line.

    A line that one source knows is to another source what a line is that none of the others knows.
    The widths of sources count alike: their median is taken.
    """
    least = {0: (0, 0), 1: (0, 0), 2: (1, math.inf)}
    found: dict[int, float] = {}
    for number in KNOWN_BY:
        by_source: defaultdict[str, list[float]] = defaultdict(list)
        for one in left_out:
            if least[number][0] <= one.num_sources <= least[number][1]:
                by_source[one.residual.source].append(abs(one.log_error))
        found[number] = float(np.median([_beyond_steps(errors) for errors in by_source.values()]))
    return found


def _beyond_steps(errors: Sequence[float]) -> float:
    """Log sigma of an 80 % interval of errors, beyond that of steps."""
    spread = float(np.quantile(np.abs(errors), 0.8)) / Z_80 if errors else 0.0
    return math.sqrt(max(spread**2 - STEP_LOG_SIGMA**2, 0.0))


def page(found: Sequence[Residual], left_out: Sequence[LeftOut]) -> Iterable[str]:
    """Capacity of each source: fitted to it, and from the other sources alone."""
    widths = widths_of(left_out)
    yield "| source | rows | fitted error | left-out error | coverage, left out |"
    yield "|---|--:|--:|--:|--:|"
    levels = {one.line: level_of(found, one.line, one.group) for one in found}
    for source in sorted({one.source for one in found}):
        own = [one for one in left_out if one.residual.source == source]
        fitted = [one.residual.log_ratio - levels[one.residual.line] for one in own]
        errors = np.array([one.log_error for one in own])
        sigma = [
            math.hypot(STEP_LOG_SIGMA, widths[min(one.num_sources, KNOWN_BY[-1])]) for one in own
        ]
        inside = float(np.mean(np.abs(errors) <= Z_80 * np.array(sigma)))
        cells = (
            source, f"{len(own):,}", f"{np.median(np.abs(np.expm1(fitted))):.0%}",
            f"{np.median(np.abs(np.expm1(errors))):.0%}", f"{inside:.0%}",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _is_set_by_its_rate(row: dict[str, str], answer: dict[str, str]) -> bool:
    """Whether a service only gives what is offered: that says nothing of its steps."""
    same = math.isclose(
        float(answer["throughput_low"]), float(answer["throughput_mid"]), rel_tol=0.01
    )
    return "rate_per_s" in row["extra"] and same


def _line_of(lines: Sequence[Mapping[str, str]], row: Mapping[str, str], device: str) -> int | None:
    asked = {"framework": row["framework"], "device": device, "model": row["model"]}
    return next(
        (
            number
            for number, line in enumerate(lines)
            if all(re.fullmatch(line[k], text, re.IGNORECASE) for k, text in asked.items())
        ),
        None,
    )


if __name__ == "__main__":
    main()
