"""How far a newcomer may trust the rest: error and coverage per left-out source, on one page.

PYTHONPATH=tools python -m accuracy_memory.strangers ROWS.csv ANSWERS.csv --pictures ROWS ANSWERS
    --as-of "2026-11-29, commit 880d33c8" --out benchmarks/strangers.md

ROWS are published peaks of training, ANSWERS those of `paceline score`: of language models, and
apart from them of what makes or reads pictures. Rows of quality A and B count, and of fits also
those that ran out of memory. No figure of a source is part of what judges it: each source is judged
by the width that the other sources give. The table of spreads is how those of
`parallelism/data/peak_spreads.csv` were found, and how to find them again. Causes that were read
stand in `strangers_causes.md` beside this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
from accuracy_time.band import band_lines

from paceline.catalog.load import load_catalog
from paceline.parallelism.memory.memory_fit import peak_log_sigma
from paceline.scoring.answers import Answer
from paceline.scoring.completion import read_published
from paceline.scoring.framework_memory import peaks_shown
from paceline.scoring.score import read_cell

Z_80 = 1.2815515655446004
#: Log sigma of all of a peak, and of what does not last of it, once more.
Spread: TypeAlias = tuple[float, float]
#: Bounds of the chances that are told apart.
_CHANCES = (-0.001, 0.1, 0.3, 0.5, 0.7, 0.86, 0.94, 0.99, 1.0)
#: Sources of fewer rows say little of a width.
MIN_ROWS = 5
#: Doubts of a peak beyond its law's, by more than rounding.
_MORE = 1.001
#: What neither a trainer's code nor the lengths of texts settle: one width, of all their sources.
_UNSETTLED = "lengths, rough"
#: Peaks of live blocks, and those that have their width for what lasts and another for the rest.
_LIVE, _GROWING = "derived", "driver"
#: How each width is called on the page.
_KNOWN = {
    _LIVE: "live blocks and segments, of trainers whose code settles them",
    _GROWING: "the same as a driver shows it, with libraries' buffers",
    _UNSETTLED: "lengths of texts, pictures or a trainer's code not known",
}
#: Sources whose gigabytes are 10^9 bytes, and remarks that say so; others' are 2^30 (README of the
#: tables).
_DECIMAL = r"fms-acceleration|Megatron-LM|FlagPerf"
_SAID_DECIMAL = "1e9 bytes"
#: Remarks that a thousand megabytes of PyTorch, which are 2^20 bytes each, were taken for one.
_THOUSAND_MIB = r"MB(?: as printed)? ?/ ?1000"
#: What rows may be off by before they count as far off, and what is asked of language models.
_FAR, _ASKED_MEDIAN, _ASKED_P90 = 0.25, 0.08, 0.25
_NOT_ASKED = "Tables of denoisers, clips and detection were not asked in this run."
_CAUSES = Path(__file__).with_name("strangers_causes.md")
_HEADING = """# Strangers: how far a newcomer may trust the rest

Published tables of training memory: what `paceline score` answers them, and what they measured. A
newcomer's job is such a stranger. Widths of intervals alone are fitted to such rows, and each
source is judged by those that the *other* sources give. Rules of trainers were read in their code,
often because a row of these was off.

- *answered*: the share of rows that get a figure; the rest name a reason, below.
- *ratio*: told over measured, in the middle; *median* and *p90*: how far off, either way.
- *far*: rows that are more than {far:.0%} off.
- *coverage*: the share inside its 80 % interval. 80 % is right; more is too wide, less too narrow.

`python -m accuracy_memory.strangers` makes this page. Asked on {as_of}.
Other questions have pages of their own: [time](strangers_time.md),
[services](accuracy_services.md), [fits under a cap](accuracy_fits.md)."""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--pictures", type=Path, nargs=2, help="rows and answers of other sources")
    parser.add_argument("--as-of", required=True, help="day and commit of the run")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    pictures = joined(*asked.pictures) if asked.pictures else None
    lines = page_lines(joined(asked.rows, asked.answers), pictures, as_of=asked.as_of)
    asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def page_lines(rows: pd.DataFrame, pictures: pd.DataFrame | None, *, as_of: str) -> Iterator[str]:
    """The page.

    Args:
        rows: Of language models, as `joined` has them.
        pictures: Likewise of other networks.
        as_of: Day and code.
    """
    yield _HEADING.format(as_of=as_of, far=_FAR)
    yield from ("", "## Language models", "", *summary_lines(rows), "", *memory_lines(rows))
    yield from ("", "By how well the figure is known:", "", *known_lines(rows))
    yield from ("", _CAUSES.read_text(encoding="utf-8").rstrip(), "")
    yield from ("## Pictures, clips and detection", "")
    yield from ([_NOT_ASKED] if pictures is None else memory_lines(pictures))
    every = rows if pictures is None else pd.concat([rows, pictures], ignore_index=True)
    yield from ("", "## Widths", "", "How much peaks spread, each source counted once:", "")
    yield from (*spread_lines(rows), "", "## Does it fit?", "", *fits_lines(every), "")
    yield "By the chance that the predicted peak stays below the memory of its device:"
    yield from ("", *reliability_lines(every), "", "## Unanswered", "", *reason_lines(every))


def summary_lines(rows: pd.DataFrame) -> Iterator[str]:
    """The figures that are asked for."""
    used = rows[rows.quality.isin(["A", "B"])]
    error = _errors(used)
    yield (
        f"Of {len(used):,} rows {len(error):,} are answered: **{error.median():.1%} off in the "
        f"median and {error.quantile(0.9):.1%} at p90** (asked {_ASKED_MEDIAN:.0%} and "
        f"{_ASKED_P90:.0%}); {(error > _FAR).sum()} are far off."
    )


def known_lines(rows: pd.DataFrame) -> Iterator[str]:
    """Errors by how well a figure is known, as `peaks_shown` has it."""
    used = rows[rows.quality.isin(["A", "B"])]
    yield "| figure | rows | median | p90 | far |"
    yield "|---|--:|--:|--:|--:|"
    for name, words in _KNOWN.items():
        error = _errors(used[used.width_of == name])
        yield (
            f"| {words} | {len(error):,} | {error.median():.1%} | {error.quantile(0.9):.0%} | "
            f"{(error > _FAR).sum()} |"
        )


def _errors(rows: pd.DataFrame) -> pd.Series:
    """How far off each answered row is, either way."""
    return np.expm1(rows.log_ratio.dropna()).abs()


def joined(rows: Path, answers: Path) -> pd.DataFrame:
    """Rows with their answers, what was measured in bytes and the log of predicted over that."""
    given = pd.read_csv(rows, dtype=str, keep_default_na=False)
    told = pd.read_csv(answers)
    told = told[[name for name in told.columns if name not in given.columns]]
    found = given.join(told)
    found["origin"] = found.source.str.partition(":")[0]
    found["measured_bytes"] = measured_bytes(found)
    known = found.memory_mid_bytes.notna() & (found.measured_bytes > 0)
    log_ratio = np.log(found.memory_mid_bytes / found.measured_bytes)
    found["log_ratio"] = log_ratio.where(known)
    found["peaks"] = _known_by(rows)
    found["width_of"] = found.peaks.replace(["lengths", "rough"], _UNSETTLED)
    return found


def measured_bytes(rows: pd.DataFrame) -> pd.Series:
    """The peak of each row in bytes; not a number where it has none."""
    peak = pd.to_numeric(rows.peak_mem_gb, errors="coerce")
    is_decimal = rows.origin.str.contains(_DECIMAL) | rows.extra.str.contains(_SAID_DECIMAL)
    is_thousand = (rows.extra + rows.notes).str.contains(_THOUSAND_MIB)
    unit = np.where(is_decimal, 1e9, np.where(is_thousand, 1000.0 * 2.0**20, 2.0**30))
    return peak * unit


def _known_by(rows: Path) -> list[str]:
    """How well the figure of each row is known (`peaks_shown`); empty where nothing is."""
    catalog = load_catalog()
    cells = (read_cell(place, row, catalog) for place, row in enumerate(read_published(rows)))
    return [
        "" if isinstance(c, Answer)
        else peaks_shown(c.reading.configuration.peaks, c.row.memory_kind)
        for c in cells
    ]  # fmt: skip


def memory_lines(rows: pd.DataFrame) -> Iterator[str]:
    """One line per source, then all together."""
    used = rows[rows.quality.isin(["A", "B"])]
    yield "| source | rows | answered | ratio | median | p90 | far | coverage, left out |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    inside = []
    for source, part in sorted(used.groupby("origin"), key=lambda pair: -len(pair[1])):
        widths = spreads(used[used.origin != source])
        covered = is_covered(part[part.log_ratio.notna()], widths)
        if len(covered) >= MIN_ROWS:
            inside.append(part.loc[covered.index].assign(covered=covered))
        yield _memory_line(str(source), part, covered)
    yield _memory_line("all", used, None)
    yield ""
    yield from band_lines(inside)


def is_covered(rows: pd.DataFrame, widths: Mapping[str, Spread]) -> pd.Series:
    """Whether each peak is within the width of its kind, or its own doubts if those are more.

    What a driver adds to small processes is in doubt by more than any law of peaks.
    """
    of_all, of_rest = (
        rows.width_of.map({name: one[place] for name, one in widths.items()}).astype(float)
        for place in (0, 1)
    )
    law = np.hypot(of_all, of_rest * _rest_frac(rows))
    below, above = (np.maximum(one, Z_80 * law) for one in _own_doubts(rows))
    return (rows.log_ratio <= below) & (-rows.log_ratio <= above)


def _own_doubts(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Widths of answers to either side where they exceed those of the shipped law, else zero."""
    lasting = zip(rows.peaks, 1.0 - _rest_frac(rows), strict=True)
    shipped = Z_80 * pd.Series([peak_log_sigma(*one) for one in lasting], index=rows.index)
    below = np.log(rows.memory_mid_bytes / rows.memory_low_bytes)
    above = np.log(rows.memory_high_bytes / rows.memory_mid_bytes)
    return below.where(below > _MORE * shipped, 0.0), above.where(above > _MORE * shipped, 0.0)


def _rest_frac(rows: pd.DataFrame) -> pd.Series:
    """Of each peak, what is not there at all times; all of it where that is not known."""
    return (1.0 - rows.memory_lasting_bytes / rows.memory_mid_bytes).clip(0.0, 1.0).fillna(1.0)


def spreads(rows: pd.DataFrame) -> Mapping[str, Spread]:
    """Log sigma by how well a peak is known: what holds 80 % of the errors of any one source.

    Of peaks whose own doubts are not more than that. Rows of one source err alike, so that a source
    counts once, however many it has: a newcomer's rows are those of one of them, drawn at random.
    What lasts of a driver's figure is known as surely as live blocks; beside it comes a width that
    grows with the rest.
    """
    known = rows[rows.log_ratio.notna()]
    below, above = _own_doubts(known)
    known = known[(below == 0.0) & (above == 0.0)]
    size = known.groupby(["width_of", "origin"]).log_ratio.transform("size")
    errors = known.assign(sigma=known.log_ratio.abs() / Z_80, weight=1.0 / size)[size >= MIN_ROWS]
    found = {
        str(name): (_holds(part.sigma, part.weight), 0.0)
        for name, part in errors.groupby("width_of")
    }
    if (part := errors[errors.width_of == _GROWING]).size:
        of_all = found.get(_LIVE, (0.0, 0.0))[0]
        more = np.sqrt(np.maximum(part.sigma**2 - of_all**2, 0.0))
        wanted = more / _rest_frac(part).clip(lower=1e-9)
        found[_GROWING] = (of_all, _holds(wanted, part.weight))
    return found


def _holds(sigmas: pd.Series, weights: pd.Series) -> float:
    """What 80 % of the weight of rows do not exceed."""
    order = np.argsort(sigmas.to_numpy(), kind="stable")
    before = weights.to_numpy()[order].cumsum() / weights.sum()
    return float(sigmas.to_numpy()[order][int(np.searchsorted(before, 0.8))])


def spread_lines(rows: pd.DataFrame) -> Iterator[str]:
    """What peaks spread by, of all sources and without each."""
    used = rows[rows.quality.isin(["A", "B"]) & rows.log_ratio.notna()]
    yield "| peaks | rows | sources | log sigma | of what does not last | without one source |"
    yield "|---|--:|--:|--:|--:|---|"
    for name, (of_all, of_rest) in spreads(used).items():
        part = used[used.width_of == name]
        sources = sorted(set(part.origin))
        place = int(name == _GROWING)
        left = [
            spreads(used[used.origin != one]).get(name, (np.nan, np.nan))[place] for one in sources
        ]
        low, high = np.nanmin(left), np.nanmax(left)
        yield (
            f"| {name} | {len(part):,} | {len(sources)} | {of_all:.2f} | {of_rest:.2f} | "
            f"{low:.2f} to {high:.2f} |"
        )


def _memory_line(name: str, part: pd.DataFrame, covered: pd.Series | None) -> str:
    answered = part.memory_mid_bytes.notna().mean()
    error = _errors(part)
    if not len(error):
        return f"| {name} | {len(part):,} | {answered:.0%} | – | – | – | – | – |"
    share = "" if covered is None else f"{covered.mean():.0%}"
    ratio = float(np.exp(part.log_ratio.median()))
    return (
        f"| {name} | {len(part):,} | {answered:.0%} | {ratio:.2f} | {error.median():.0%} | "
        f"{error.quantile(0.9):.0%} | {(error > _FAR).sum()} | {share} |"
    )


def fits_lines(rows: pd.DataFrame) -> Iterator[str]:
    """How often each answer was right."""
    yield "| answer | rows | ran | ran out |"
    yield "|---|--:|--:|--:|"
    told = rows[rows.fits.isin(["yes", "unsure", "no"])]
    for answer, part in told.groupby("fits", sort=False):
        out = (part.quality == "A-OOM").mean()
        yield f"| `{answer}` | {len(part):,} | {1 - out:.0%} | {out:.0%} |"


def reliability_lines(rows: pd.DataFrame) -> Iterator[str]:
    """How often jobs ran, by the chance that they were told to fit.

    Published jobs are those that mostly ran: a chance that is told too low shows at once, one that
    is told too high only in the rows that ran out.
    """
    used = rows[rows.chance_to_fit.notna() & rows.quality.isin(["A", "B", "A-OOM"])]
    chances = used.chance_to_fit
    yield "| told chance | rows | told, mean | ran |"
    yield "|---|--:|--:|--:|"
    for low, high in pairwise(_CHANCES):
        part = used[(chances > low) & (chances <= high)]
        if len(part):
            ran = (part.quality != "A-OOM").mean()
            told = chances[part.index].mean()
            yield f"| {max(low, 0.0):.0%} to {high:.0%} | {len(part):,} | {told:.0%} | {ran:.0%} |"


def reason_lines(rows: pd.DataFrame) -> Iterator[str]:
    """Reasons of rows without an answer, the most frequent first."""
    used = rows[rows.quality.isin(["A", "B"]) & rows.memory_mid_bytes.isna()]
    yield "| reason | rows |"
    yield "|---|--:|"
    counts = used.reason.astype(str).str.slice(0, 100).value_counts()
    yield from (f"| {reason} | {count} |" for reason, count in counts.head(40).items())
    yield f"| others | {counts.iloc[40:].sum()} |"


if __name__ == "__main__":
    main()
