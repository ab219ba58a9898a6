"""Score predictions of whole clusters against published measurements.

    PYTHONPATH=tools python -m accuracy_clusters ../shared/truth --out FILE

Every row goes through `paceline score`. Nothing is fitted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import pandas as pd
from pages import deliver, need, page_parser

from accuracy_clusters import bridge, eight_gpus, foundry, mlperf
from accuracy_clusters import report as say
from accuracy_clusters.scored import read, with_answers

CAUSES = Path(__file__).with_name("causes.md")


def main() -> None:
    """Write the page, or print it."""
    asked = page_parser(__doc__, "../shared/truth").parse_args()
    need(asked.folder / "e2e" / "megatron_bridge.csv")
    deliver(page(asked.folder / "e2e", asked.cache), asked.out)


def page(folder: Path, cache: Path | None) -> str:
    """The whole page."""
    pairs = eight_gpus.efficiencies(folder, cache)
    mpt = foundry.with_predictions(folder / "llm_foundry.csv", cache)
    dense = bridge.with_predictions(read(folder / "megatron_bridge.csv"), cache)
    rounds = with_answers(read(folder / "mlperf_training.csv"), cache)
    head = (
        "# Accuracy on clusters\n",
        f"{datetime.now(tz=UTC).date()}, `make accuracy-clusters`; errors are relative to the",
        "measurement, bias is the median of predicted over measured (1 is none).\n",
    )
    sections = (
        eight_section(pairs), foundry_section(mpt), bridge_section(dense), mlperf_section(rounds),
    )  # fmt: skip
    causes = CAUSES.read_text(encoding="utf-8")
    return "\n".join([*head, summary(pairs, mpt, dense, rounds), causes, *chain(*sections)])


def summary(
    pairs: pd.DataFrame, mpt: pd.DataFrame, dense: pd.DataFrame, rounds: pd.DataFrame
) -> str:
    """One line per test."""
    one, judged = rounds[rounds.n_nodes <= 1], mpt[~mpt.is_fitted & ~mpt.is_assumed]
    scaling = mlperf.scaling_pairs(rounds)
    lines = ["| test | rows | predicted | figure | target | holds |", "|---|--:|--:|--:|--:|---|"]
    for name, table, figure, unit, most in (
        ("8-GPU scaling efficiency", pairs, say.median_points(pairs), "points", 6),
        ("llm_foundry tokens/s", judged, 100 * say.median_error(judged), "%", 12),
        ("Megatron-Bridge tokens/s", dense, 100 * say.median_error(dense), "%", 15),
        ("MLPerf, one node", one, 100 * say.median_error(one), "%", 15),
        ("MLPerf, scaling over nodes", scaling, say.median_points(scaling), "points", 10),
    ):
        holds = "yes" if figure <= most else "no"
        lines.append(
            f"| {name} (median) | {len(table)} | {say.coverage(table):.0%} | {figure:.1f} {unit} "
            f"| {most} {unit} | {holds} |"
        )
    return "\n".join(lines) + "\n"


def eight_section(pairs: pd.DataFrame) -> Iterator[str]:
    """One against eight GPUs."""
    yield "## One GPU against eight\n"
    yield "Same table, model, software, precision and batch per GPU; the share of eight times"
    yield "the speed of one that eight reach.\n"
    yield say.points_table(pairs, ("table",))
    yield say.points_table(pairs, ("gpu",))
    yield "Furthest off:\n"
    yield say.worst_points(pairs, ("table", "model", "gpu"))
    yield say.not_built(pairs)


def foundry_section(rows: pd.DataFrame) -> Iterator[str]:
    """llm-foundry."""
    fitted, assumed = rows[rows.is_fitted], rows[rows.is_assumed]
    rows = rows[~rows.is_fitted & ~rows.is_assumed]
    yield "## llm-foundry (MPT, FSDP)\n"
    yield f"Left out of these figures: {len(fitted)} rows of one node of H100, on which the clock"
    yield "under the power limit was fitted (one constant; median error"
    yield f"{100 * say.median_error(fitted):.1f} %), and {len(assumed)} rows of several nodes of"
    yield "H100 whose network is not stated; with that of the vendor's own system they are"
    yield f"{100 * say.median_error(assumed):.1f} % off.\n"
    yield say.ratio_table(rows, ("gpu", "precision"))
    yield say.ratio_table(rows, ("n_gpus",))
    yield say.ratio_table(rows, ("gpu", "seq_len"))
    yield "Furthest off:\n"
    yield say.worst_ratios(rows, ("model", "gpu", "precision", "seq_len"))
    yield say.not_built(rows)


def bridge_section(rows: pd.DataFrame) -> Iterator[str]:
    """Megatron-Bridge."""
    yield "## Megatron-Bridge (pretraining)\n"
    yield say.ratio_table(rows, ("model",))
    yield "By recipe. What tensor ranks exchange is hidden but for one chunk, as the recipes' user"
    yield "buffers do; a strategy of `paceline scale` cannot state that.\n"
    yield say.ratio_table(rows[rows.predicted.notna()], ("model", "gpu", "parallelism"))
    yield say.not_built(rows)


def mlperf_section(rows: pd.DataFrame) -> Iterator[str]:
    """MLPerf training."""
    yield "## MLPerf training\n"
    one, scaling = rows[rows.n_nodes <= 1], mlperf.scaling_pairs(rows)
    yield "One node:\n"
    yield say.ratio_table(one, ("model",))
    yield say.ratio_table(one[one.predicted.notna()], ("model", "device"))
    yield "Furthest off:\n"
    yield say.worst_ratios(one, ("model", "device"))
    yield "Several nodes against one of the same submitter and release, throughput per GPU:\n"
    yield say.points_table(scaling, ("model",))
    yield say.worst_points(scaling, ("model", "gpu", "n_gpus"))
    yield say.not_built(rows)


if __name__ == "__main__":
    main()
