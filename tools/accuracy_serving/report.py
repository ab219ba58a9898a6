"""The page: coverage, errors by what runs where, the worst by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

#: Why figures are what they are, written by hand.
CAUSES = Path(__file__).with_name("causes.md")
#: Upper ends of the ranges of requests in flight.
CONCURRENCIES = (8, 32, 64, 128, 4096)
NUM_WORST = 15
MIN_ROWS = 3

_INTRODUCTION = """# Accuracy of serving predictions

Made by `make accuracy-serving` from 5,256 published runs of vLLM, SGLang and TensorRT-LLM
(aiconfigurator's silicon samples, Apache-2.0). **Nothing is fitted to their times per token**, and
one number per engine to their times to the first token: the way of a request, on the H100 and H200
with prompts of 1,024 tokens and at most 8 requests in flight; those runs are judged per token only.
A ratio is predicted over measured; an error is its distance from one. The time to the first token
is told only where the benchmark states how its requests follow one another.
"""
_ERRORS = "ratio | median error | mean error"
_HEADER = f"""
| {{name}} | runs | per token: {_ERRORS} | first token: runs | {_ERRORS} |
|---|---|---|---|---|---|---|---|---|"""


def page(runs: pd.DataFrame) -> str:
    """The whole page from runs with predictions."""
    known = _with_ratios(runs)
    is_one = known.ranks == 1
    limits = pd.cut(
        known.concurrency, [0, *CONCURRENCIES], labels=[f"≤ {c}" for c in CONCURRENCIES]
    )
    several = np.where(is_one, "one", "several")
    groupings = {
        "model class": known.model_class,
        "class and devices": known.model_class + ", " + pd.Series(several, known.index),
        "model": known.model_path,
        "device": known.system,
        "format": known.format,
        "ranks": known.ranks.astype(int).astype(str),
        "attention": np.where(known.replicas > 1, "of each rank's requests", "shared by ranks"),
        "engine": known.backend,
        "requests in flight": limits,
    }
    lines = [_INTRODUCTION, *_coverage(runs), "\n## Errors"]
    for name, labels in groupings.items():
        lines += [_HEADER.format(name=name), *_lines(known, labels)]
    lines += ["\n## Worst\n", *_worst(known), "", CAUSES.read_text(encoding="utf-8").rstrip()]
    return "\n".join(lines)


def _with_ratios(runs: pd.DataFrame) -> pd.DataFrame:
    known = runs[runs.tpot_ms.notna()]
    return known.assign(
        tpot_ratio=known.tpot_ms / known.silicon_tpot_ms,
        ttft_ratio=(known.ttft_ms / known.silicon_ttft_ms).mask(known.gave_path),
    )


def _coverage(runs: pd.DataFrame) -> Iterator[str]:
    count = int(runs.tpot_ms.notna().sum())
    share = count / len(runs)
    yield f"## Coverage\n\n{count:,} of {len(runs):,} runs ({share:.0%}) are predicted.\n"
    yield "| not predicted because | runs |\n|---|---|"
    missed = runs[runs.tpot_ms.isna()]
    for reason, number in missed.reason.value_counts().items():
        yield f"| {reason} | {number:,} |"


def _lines(known: pd.DataFrame, labels: pd.Series) -> Iterator[str]:
    for label, part in known.groupby(labels, observed=True):
        if len(part) >= MIN_ROWS:
            first = part.ttft_ratio.dropna()
            cells = [str(label), f"{len(part):,}", *_cells(part.tpot_ratio)]
            cells += [f"{len(first):,}", *(_cells(first) if len(first) else ["", "", ""])]
            yield f"| {' | '.join(cells)} |"


def _cells(ratio: pd.Series) -> Sequence[str]:
    error = np.abs(ratio - 1.0)
    return f"{ratio.median():.2f}", f"{error.median():.0%}", f"{error.mean():.0%}"


def _worst(known: pd.DataFrame) -> Iterator[str]:
    """What runs where, by the median of its runs."""
    yield "| model | device | engine | format | ranks | runs | per token: ratio |"
    yield "|---|---|---|---|---|---|---|"
    keys = ["model_path", "system", "backend", "format", "ranks"]
    found = known.groupby(keys).tpot_ratio.agg(["median", "size"])
    found = found[found["size"] >= MIN_ROWS]
    order = np.log(found["median"]).abs().sort_values(ascending=False).index[:NUM_WORST]
    for key in order:
        ratio, size = found.loc[key]
        *names, ranks = key
        yield f"| {' | '.join(names)} | {ranks:.0f} | {size:.0f} | {ratio:.2f} |"
