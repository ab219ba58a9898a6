"""How far a newcomer may trust times: error and coverage per source that is left out.

    PYTHONPATH=tools python -m accuracy_time ROWS --out benchmarks/strangers_time.md

ROWS is a folder that `accuracy_time.rows` wrote. Widths that judge a source are those that the
others give; coefficients are those that the rows were answered with.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from accuracy_time.band import band_lines
from accuracy_time.widths import MIN_ROWS, between, coverage
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.scoring.assumed import widening

CAUSES = Path(__file__).with_name("causes.md")
#: Sources whose single-GPU rows took part in the fit of the shipped coefficients.
FITTED = (
    "timm", "Lambda TensorFlow", "Lambda PyTorch v1, v2", "Lambda PyTorch v0",
    "DeepLearningExamples", "convnet-benchmarks", "MXNet",
)  # fmt: skip
#: What an item of a batch is called where networks of one kind are of one kind of data.
_KINDS = {
    "images": "vision", "tokens": "language", "sequences": "language",
    "samples": "tables, series, other",
    "seconds of sound": "speech", "clips": "video",
}  # fmt: skip


def read_rows(folder: Path) -> pd.DataFrame:
    """Rows with an error, their source and the log sigma that they were told with."""
    rows = pd.concat([pd.read_pickle(path) for path in sorted(folder.glob("*.pkl"))])
    rows = rows[~rows.quality.isin(["C", "D"])].reset_index(drop=True)
    source = rows.set.str.removesuffix(", several")
    sigma = np.hypot(rows.log_sigma, rows.added_log_sigma)
    by_trainer = rows.assumed.fillna("").str.contains("trainer")
    own = np.sqrt(np.square(sigma) - by_trainer * widening(["trainer"]) ** 2)
    return rows.assign(
        source_name=source,
        sigma=sigma,
        own_sigma=own,
        by_trainer=by_trainer,
        is_told=rows.log_error.notna() & rows.log_sigma.notna(),
    )


def source_lines(rows: pd.DataFrame) -> Iterator[str]:
    """One line per source and task, judged by the widths that the other sources ask for."""
    told, judged = rows[rows.is_told], []
    yield "| source | task | rows | told | ratio | median | p90 | width | coverage | left out |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for (source, task), part in rows.groupby(["source_name", "task"], sort=False):
        mine = part[part.is_told]
        if len(mine) < MIN_ROWS:
            continue
        error = np.expm1(mine.log_error.abs())
        width = np.exp(1.2816 * mine.sigma.median())
        sigma = _sigma_of_others(mine, told[told.source_name != source])
        judged.append(mine.assign(covered=mine.log_error.abs() <= Z_80 * sigma))
        mark = " (in the fit)" if source in FITTED else ""
        yield (
            f"| {source}{mark} | {task} | {len(part):,} | {len(mine) / len(part):.0%} "
            f"| {np.exp(mine.log_error.median()):.2f} | {error.median():.1%} "
            f"| {error.quantile(0.9):.0%} | ×/÷ {width:.2f} | {coverage(mine, mine.sigma):.0%} "
            f"| {coverage(mine, sigma):.0%} |"
        )
    yield ""
    yield from band_lines(judged)


def _sigma_of_others(mine: pd.DataFrame, others: pd.DataFrame) -> pd.Series:
    """Of each row, with what the other sources of its kind show that a source adds."""
    of_kind = [others[others.by_trainer == one] for one in (False, True)]
    added = [between(part, part.own_sigma) for part in of_kind]
    return pd.Series(np.hypot(mine.own_sigma, np.take(added, mine.by_trainer.astype(int))))


def kind_lines(rows: pd.DataFrame) -> Iterator[str]:
    """Error and coverage by what was unknown of a row."""
    told = rows[rows.is_told]
    kinds = {
        "single device": told.n_gpus == 1,
        "several devices": told.n_gpus > 1,
        "inference, the host takes over half of the step": (told.task == "infer")
        & (told.host_s > 0.5 * told.step_s),
        "inference, it takes less": (told.task == "infer") & (told.host_s <= 0.5 * told.step_s),
        "device not measured": told.knowledge > 0,
    }
    kinds |= {name: told.unit_of.map(_KINDS) == name for name in dict.fromkeys(_KINDS.values())}
    yield "| rows | count | ratio | median | p90 | coverage |"
    yield "|---|--:|--:|--:|--:|--:|"
    for name, chosen in kinds.items():
        part = told[chosen]
        if len(part) < MIN_ROWS:
            continue
        error = np.expm1(part.log_error.abs())
        yield (
            f"| {name} | {len(part):,} | {np.exp(part.log_error.median()):.2f} "
            f"| {error.median():.1%} | {error.quantile(0.9):.0%} "
            f"| {coverage(part, part.sigma):.0%} |"
        )


def page(rows: pd.DataFrame) -> str:
    """The whole page."""
    return "\n".join(
        [
            "# Time of training and inference on strangers",
            "",
            "Made by `python -m accuracy_time` (`tools/accuracy_time`), at most 320 rows of a",
            "set, drawn with a seed. *Ratio*: predicted over measured time, the median. *Width*:",
            "half of the 80 % interval. *Left out*: coverage where a source adds the doubt that",
            "the median of the other sources adds, of those run by trainers and of others",
            "apart (decision 0204). Coefficients are the shipped ones: sources",
            "in the fit are told better than strangers are. Sources that are not listed have not",
            "been answered yet.",
            "",
            "## By source",
            "",
            *source_lines(rows),
            "",
            "## By what is unknown",
            "",
            *kind_lines(rows),
            "",
            CAUSES.read_text(encoding="utf-8").rstrip(),
            "",
        ]
    )


def main() -> None:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    text = page(read_rows(asked.rows))
    if asked.out is None:
        print(text)
    else:
        asked.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
