"""How errors of steps go together: of several devices over one, and of a model on two devices.

    PYTHONPATH=tools python -m accuracy_time.rows --most 10000 --cache CACHE --out ROWS 'La*' timm
    PYTHONPATH=tools python -m accuracy_time.together ROWS --out benchmarks/accuracy_together.md

Errors are logs of measured over predicted speed. What several devices add is the error of a model
on them less that on one of them: `parallelism/data/link_spread.csv` has the widths. What errors of
one model on two devices have in common is `_WITHIN_MODEL_FRAC` of `planning/search/preference.py`;
other laws of it are judged on suites that they were not fitted to.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from pages import deliver

from paceline.catalog.entities import Device
from paceline.catalog.load import load_catalog
from paceline.planning.search.preference import _WITHIN_MODEL_FRAC
from paceline.prediction.uncertainty.intervals import Z_80

_KEYS = ["suite", "entry", "task", "precision", "compiler", "dev"]
#: Errors beyond are rows of something else than the model predicted.
_LARGEST_LOG_ERROR = 0.7
#: Suites with fewer pairs of devices judge no law.
_LEAST_PAIRS = 60
_SENT_FRACS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
#: What widths may grow with.
_SCALES = ("sent_frac", "doublings")
_GENERATIONS = ("Kepler", "Maxwell", "Pascal", "Volta Turing", "Ampere", "Ada Hopper", "Blackwell")
_KINDS = {"pcie-host": "GeForce cards over PCIe", "pcie": "other cards over PCIe",
          "nvlink": "NVLink"}  # fmt: skip


def read(folder: Path) -> pd.DataFrame:
    """Answered rows of one machine, a suite's rows on one and on several devices together."""
    every = pd.concat([pd.read_pickle(path) for path in sorted(folder.glob("*.pkl"))])
    every = every[np.isfinite(every.log_error) & (every.num_devices <= 16)]
    return every.assign(suite=every.set.str.removesuffix(", several"))


def added(rows: pd.DataFrame) -> pd.DataFrame:
    """What several devices of a training step err apart from one, with how long they send."""
    one = rows[rows.num_devices == 1].groupby(_KEYS).log_error.median().rename("alone")
    kinds = {link.name: link.kind for link in load_catalog().links}
    several = rows[(rows.num_devices > 1) & (rows.task == "train")].assign(
        kind=lambda found: found.link.str.partition(" of ")[0].map(kinds),
        sent_frac=lambda found: np.minimum(found.communication_s / found.step_s, 1.0),
    )
    found = several.groupby([*_KEYS, "kind", "num_devices"], as_index=False).agg(
        log_error=("log_error", "median"), sent_frac=("sent_frac", "median")
    )
    found = found.join(one, on=_KEYS).dropna(subset="alone")
    return found.assign(added=found.log_error - found.alone, doublings=np.log2(found.num_devices))


def width(errors: pd.Series) -> float:
    """Standard deviation of a normal quantity of which as many lie within 80 %."""
    return float(errors.abs().quantile(0.8)) / Z_80


def by_sent(found: pd.DataFrame) -> Iterator[str]:
    """Widths of each kind of link, by the share of the step in which ranks send."""
    for kind, words in _KINDS.items():
        mine = found[found.kind == kind]
        bounds = {scale: Z_80 * width(mine.added / mine[scale]) * mine[scale] for scale in _SCALES}
        mine = mine.assign(**{scale: mine.added.abs() <= of for scale, of in bounds.items()})
        for sent, rows in mine.groupby(pd.cut(found.sent_frac, _SENT_FRACS), observed=True):
            if len(rows) > 5:
                inside = " | ".join(f"{rows[scale].mean():.0%}" for scale in _SCALES)
                yield (f"| {words} | {sent.left:.0%} to {sent.right:.0%} | {len(rows)} |"
                       f" {width(rows.added):.3f} | {inside} |")  # fmt: skip


def left_out_links(found: pd.DataFrame) -> Iterator[str]:
    """Coverage of 80 % intervals of a suite by what the others fit."""
    for kind, words in _KINDS.items():
        mine = found[found.kind == kind]
        for suite, rows in mine.groupby("suite"):
            others, inside = mine[mine.suite != suite], []
            for scale in _SCALES:
                fitted = width(others.added / others[scale])
                inside += [fitted, (rows.added.abs() <= Z_80 * fitted * rows[scale]).mean()]
            yield (f"| {words} | {suite} | {len(rows)} | {inside[0]:.2f} | {inside[1]:.0%} |"
                   f" {inside[2]:.3f} | {inside[3]:.0%} |")  # fmt: skip


def pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Errors of one model on two devices, in standard deviations of the suite."""
    alone = rows[(rows.num_devices == 1) & (rows.log_error.abs() < _LARGEST_LOG_ERROR)]
    alone = alone.assign(error=alone.log_error / alone.device_log_sigma)
    size = alone.groupby("suite").error.agg(lambda errors: np.sqrt((errors**2).mean()))
    alone = alone.assign(error=alone.error / alone.suite.map(size))
    devices = {one.name: one for one in load_catalog().devices}
    told = [
        {"suite": group.suite.iloc[0], "a": a.error, "b": b.error,
         **_apart(devices[a.dev], devices[b.dev])}
        for _, group in alone.groupby(_KEYS, as_index=False).error.median()
        .assign(suite=lambda found: found.suite).groupby(_KEYS[:-1])
        for a, b in combinations(group.itertuples(), 2)
        if _generation(devices[a.dev]) is not None and _generation(devices[b.dev]) is not None
    ]  # fmt: skip
    return pd.DataFrame(told)


def _generation(device: Device) -> int | None:
    return next((n for n, one in enumerate(_GENERATIONS) if device.architecture in one), None)


def _apart(one: Device, other: Device) -> dict[str, int]:
    is_hbm = {"HBM" in (device.memory_type or "") for device in (one, other)}
    gap = abs((_generation(one) or 0) - (_generation(other) or 0))
    alike = one.architecture == other.architecture
    return {"gap": min(gap, 2), "alike": int(alike), "twins": int(alike and len(is_hbm) == 1)}


_LAWS: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "one share for all": lambda found: 0 * found.gap,
    "by architecture (others; the same)": lambda found: found.alike,
    "by architecture and kind of memory (others; the same)": lambda found: found.twins,
    "by generations apart (none; one; more)": lambda found: found.gap,
}  # fmt: skip


def common(found: pd.DataFrame) -> float:
    """Share of variance that both errors have, the middle of suites."""
    each = [
        float((rows.a * rows.b).mean() / np.sqrt((rows.a**2).mean() * (rows.b**2).mean()))
        for _, rows in found.groupby("suite")
    ]
    return float(np.mean(each))


def surprise(rows: pd.DataFrame, share: pd.Series | float) -> float:
    """Negative log likelihood per pair of the difference, that of normal errors."""
    variance = 2.0 - 2.0 * share
    return float(np.mean(0.5 * np.log(variance) + 0.5 * (rows.a - rows.b) ** 2 / variance))


def left_out_devices(found: pd.DataFrame, shipped: float) -> Iterator[str]:
    """Each law, and its surprise in every suite by what the others fit."""
    suites = [suite for suite, rows in found.groupby("suite") if len(rows) >= _LEAST_PAIRS]
    found = found[found.suite.isin(suites)]
    yield "| law | shares | " + " | ".join(suites) + " | mean |"
    yield "|---|--:|" + "--:|" * (len(suites) + 1)
    plain = [surprise(found[found.suite == suite], shipped) for suite in suites]
    yield _line("as shipped", f"{shipped:.2f}", plain)
    for words, law in _LAWS.items():
        kept = found.assign(kind=law(found))
        shares = [f"{common(rows):.2f}" for _, rows in kept.groupby("kind")]
        told = []
        for suite in suites:
            others, rows = kept[kept.suite != suite], kept[kept.suite == suite]
            fitted = {kind: common(part) for kind, part in others.groupby("kind")}
            told.append(surprise(rows, rows.kind.map(fitted).clip(-0.9, 0.9)))
        yield _line(words, "; ".join(shares), told)


def _line(words: str, shares: str, told: Sequence[float]) -> str:
    figures = " | ".join(f"{one:.3f}" for one in (*told, np.mean(told)))
    return f"| {words} | {shares} | {figures} |"


def page(rows: pd.DataFrame) -> str:
    """The page."""
    several, two = added(rows), pairs(rows)
    return "\n".join([
        "# How errors go together",
        "",
        "Logs of measured over predicted speed (`python -m accuracy_time.together`), suites that",
        "one tester ran on many devices. The predictor was fitted to rows on one device of these",
        "suites; the widths and shares are judged on suites that they were not fitted to.",
        "",
        "## What several devices add",
        "",
        f"The error on 2 to 16 devices less that on one, {len(several)} settings. Width: 80 % lie",
        "within 1.28 of it. Over PCIe it grows as the share of the step in which ranks send,",
        "hidden or not. Inside: of 80 % intervals whose width is one number times that share, or",
        "times the doublings of ranks.",
        "",
        "| links | ranks send | settings | width | inside, by share | inside, by doublings |",
        "|---|---|--:|--:|--:|--:|",
        *by_sent(several),
        "",
        "80 % intervals of a suite by widths that the others fit, as the share of the step in",
        "which ranks send, and as doublings of ranks:",
        "",
        "| links | left out | settings | over the share | inside | per doubling | inside |",
        "|---|---|--:|--:|--:|--:|--:|",
        *left_out_links(several),
        "",
        "## What a model's errors on two devices have in common",
        "",
        f"{len(two)} pairs. Surprise of the difference, negative log likelihood per pair, by what",
        "the other suites fit; less is better.",
        "",
        *left_out_devices(two, _WITHIN_MODEL_FRAC),
    ])  # fmt: skip


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, help="what `accuracy_time.rows` wrote")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    deliver(page(read(asked.rows)), asked.out)


if __name__ == "__main__":
    main()
