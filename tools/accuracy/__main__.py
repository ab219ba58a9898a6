"""The accuracy scoreboard: every fold refitted from raw rows in this run.

    PYTHONPATH=tools python -m accuracy --truth ../shared/truth --out benchmarks

Held-out devices leave with all their rows, their siblings and their copies before anything is
fitted, drawn, scaled or clamped. Models that are not in the cache of traces are traced first
unless ``--only-cached`` is given; coverage counts what is missing.
"""

from __future__ import annotations

import argparse
import dataclasses
import pickle
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from fit.operators import operator_frames
from fit.options import FitOptions
from fit.steps import Measured, Steps, build_steps, read_measured
from fit.traits import device_traits
from fit.truth import device_facts

from accuracy import operator_tests as ops
from accuracy import report, step_tests
from accuracy.figures import Figure
from accuracy.intervals import coverage, with_covariates, with_widths
from accuracy.limits import InsideAtBest, inside_at_best
from accuracy.operator_worst import Worst
from paceline.catalog.entities import Catalog
from paceline.catalog.load import load_catalog
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.scoring.workloads import default_cache_folder

_INTRODUCTION = """# Accuracy of predictions

Made by `make accuracy` (`tools/accuracy`) from published measurements on {today}. Errors are
absolute, in percent of the measured time; the compared statistic is in bold, with its bootstrap
90 % interval. *Ahead* means that the upper end of that interval is below the anchor. Every fold is
refitted from raw rows in the run: a held-out device leaves with its siblings and copies. Anchors:
T1 and T2 NeuSight (ASPLOS 2025) from its own files on the same rows (T2: its table, other rows);
T3 boosted trees on the same folds; T12 NeuSight on the same pairs. Coverage counts what cannot be
built as missing. Of each timm model a fit sees two rows per task and device; all are scored. Steps
are fitted with features whose tile constants (twenty numbers for all devices) were fitted once, to
op rows of all devices. Devices that were fitted keep their own effect and level: those of families
and zero-shot, never those of device folds.

"""


def main() -> None:
    """Run the tests asked for and write the scoreboard."""
    given = _arguments()
    torch.set_num_threads(1)
    catalog = load_catalog()
    facts = device_facts(catalog.devices)
    figures: list[Figure] = []
    sections: list[str] = []
    worst = Worst()
    for part in _OPERATOR_PARTS:
        if {part, "operators"} & set(given.tests):
            figures += _OPERATOR_PARTS[part](given.truth, facts, worst)
            print(f"{part} done", flush=True)
    if "steps" in given.tests:
        tables = list(dict.fromkeys(t for _, sources, _ in step_tests.SETS for t in sources))
        measured = read_measured(given.truth, tables)
        steps = _steps(given, measured, catalog)
        more, extra = _step_figures(given, steps, measured, catalog, facts)
        figures += more
        sections += extra
    _write(given, figures, sections, worst)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="accuracy", description=__doc__.splitlines()[0])
    parser.add_argument("--truth", type=Path, default=Path("../shared/truth"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks"))
    parser.add_argument("--cache", type=Path, default=default_cache_folder())
    parser.add_argument("--steps", type=Path, help="keep lowered steps in this file between runs")
    parser.add_argument("--lines", type=Path, help="keep predictions of folds in this folder")
    parser.add_argument("--epochs", type=int, default=FitOptions().epochs)
    parser.add_argument("--only-cached", action="store_true")
    parser.add_argument(
        "tests", nargs="*", default=["operators", "steps"],
        help="operators or parts of them (unseen: T1, T2, T12; products: T3, T4; attention: T5), "
        "steps",
    )  # fmt: skip
    return parser.parse_args()


def _unseen_figures(truth: Path, facts: pd.DataFrame, worst: Worst) -> list[Figure]:
    """T1, T2 and T12."""
    fitted = ops.fit_neusight(truth, facts)
    ends = ops.compose(truth, facts, fitted)
    figures = [*ops.test_models(ends, worst), *ops.test_operators(truth, facts, fitted, worst)]
    return figures + ops.test_choice(ends)


def _product_figures(truth: Path, facts: pd.DataFrame, worst: Worst) -> list[Figure]:
    """T3 and T4."""
    return ops.test_products(ops.bf16_products(truth, facts), worst)


#: Parts of ``operators``, which may be asked for alone.
_OPERATOR_PARTS = {
    "unseen": _unseen_figures, "products": _product_figures, "attention": ops.test_attention,
}  # fmt: skip


def _steps(given: argparse.Namespace, measured: list[Measured], catalog: Catalog) -> Steps:
    if given.steps and given.steps.exists():
        with given.steps.open("rb") as file:
            kept: Steps = pickle.load(file)
        return kept
    steps = build_steps(
        measured, catalog, builtin_calibration(), given.cache, only_cached=given.only_cached
    )
    if given.steps:
        with given.steps.open("wb") as file:
            pickle.dump(steps, file)
    return steps


def _step_figures(
    given: argparse.Namespace, steps: Steps, measured: list[Measured], catalog: Catalog, facts: Any
) -> Any:
    frames = operator_frames(given.truth, facts)
    options = dataclasses.replace(FitOptions(), epochs=given.epochs)
    given_rows = (steps, frames, device_traits(catalog.devices), options)

    def predicted(name: str, predict: Callable[..., pd.DataFrame]) -> pd.DataFrame:
        path = given.lines / f"{name}.pkl" if given.lines else None
        if path and path.exists():
            return pd.read_pickle(path)
        found = predict(*given_rows, lambda text: print(text, flush=True))
        if path:
            found.to_pickle(path)
        return found

    lines = predicted("devices", step_tests.predict_devices)
    families = predicted("families", step_tests.predict_families)
    zero_shot = predicted("zero", step_tests.predict_zero_shot)
    asked = step_tests.asked_of(measured)
    figures = step_tests.set_figures(lines, asked)
    figures += step_tests.training_figures(families, zero_shot)
    seen = with_covariates(lines, steps, catalog.devices, builtin_calibration())
    wide = with_widths(seen)
    lowest, middle = step_tests.rank_figures(lines, _group_of(lines, measured))
    sections = [
        f"Rank correlation of timm within one device, precision, layout and release, that device "
        f"held out: median {middle:.3f}, least {lowest:.3f} (target 0.98).\n",
        "## T11: 80 % intervals, widths from the other folds and what is known beforehand\n\n"
        + report.frame_table(coverage(wide))
        + f"\n{_told_of_folds(inside_at_best(wide))}\n",
        "## Worst models by name (log error, devices held out)\n\n"
        + report.frame_table(step_tests.worst(lines)),
    ]
    return figures, sections


def _told_of_folds(found: InsideAtBest) -> str:
    return (
        f"{found.num_inside} of {found.num_folds} folds lie inside; with one factor on all widths, "
        f"chosen by looking at every fold, at most {found.most_inside} would "
        f"(×{found.factor:.2f}). {found.share_between:.0%} of the variance of errors over widths "
        f"lies between folds: were errors normal and widths exact, "
        f"{found.expected_frac:.0%} of folds would be inside."
    )


def _group_of(lines: pd.DataFrame, measured: list[Measured]) -> list[str]:
    rows = {(m.source, m.index): m.row for m in measured}
    keys = zip(lines.source, lines["index"], strict=True)
    named = [rows[key] for key in keys]
    return [f"{r.precision}/{r.flags}/{r.framework}/{r.task}" for r in named]


def _write(
    given: argparse.Namespace, figures: list[Figure], sections: list[str], worst: Worst
) -> None:
    """Write what was run; the rest of the scoreboard stands as its last run left it."""
    today = date.today()
    given.out.mkdir(parents=True, exist_ok=True)
    table, steps = given.out / "accuracy.csv", given.out / "accuracy_steps.md"
    renewed = {f.test for f in figures}
    kept = [f for f in report.read_csv(table) if f.test not in renewed]
    every = sorted([*figures, *kept], key=lambda f: (len(f.test), f.test))
    operators = given.out / "accuracy_operators.md"
    if worst.frames:
        before = operators.read_text(encoding="utf-8") if operators.exists() else ""
        operators.write_text(worst.section(before), encoding="utf-8")
    if sections:
        steps.write_text("\n".join(sections), encoding="utf-8")
    text = _INTRODUCTION.format(today=today) + report.markdown_table(every)
    more = [path for path in (steps, operators, given.out / "accuracy_causes.md") if path.exists()]
    parts = [text, *(path.read_text(encoding="utf-8") for path in more)]
    (given.out / "accuracy.md").write_text("\n".join(parts), encoding="utf-8")
    report.write_csv(table, every)
    report.append_log(given.out / "accuracy_log.csv", figures, today)


if __name__ == "__main__":
    main()
