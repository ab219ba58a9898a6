"""What `paceline score` says of published jobs that ran and of jobs that ran out of memory.

Usage: python tools/accuracy_fits.py [FOLDER] [--cache FOLDER] [--out benchmarks/accuracy_fits.md]
FOLDER holds the published measurements (default ../shared/truth/e2e). Every row that ran out is
scored, and every row that ran, of whatever quality, on GPUs; of timm every twentieth model by name.
Runs of small models under a memory cap on a CPU are those of `benchmarks/fits_capped.py`.
Asked: no row that ran out is called `yes` at the stated chance of 95 %, and at most 5 % of the rows
that ran are called `no`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from accuracy_memory.strangers import reliability_lines
from fit.published import read_published
from pages import deliver, need, page_parser
from scored_rows import scored

RAN_OUT = "A-OOM"
CAPPED = Path(__file__).parents[1] / "benchmarks" / "fits_capped.csv"
EVERY_NTH_TIMM_MODEL = 20
#: Of the rows that ran.
MOST_WRONG_NO_FRAC = 0.05
#: Other columns say nothing of whether a job ran: ratios, minutes and watts of whole clusters.
TABLES = (
    "mxnet_perf", "litgpt", "memory_misc", "convnet_benchmarks", "lambda_tensorflow_benchmark",
    "lambda_deeplearning_benchmark", "lambda_deeplearning_benchmark_v0",
    "nvidia_deeplearningexamples", "mlenergy_leaderboard_v3", "llm_foundry", "timm",
)  # fmt: skip
ANSWERS = ("yes", "unsure", "no")
#: Columns of the answer that the page shows.
TOLD = ("memory_low_bytes", "memory_mid_bytes", "memory_high_bytes", "fits", "reason")


def chosen_rows(folder: Path, table: str) -> pd.DataFrame:
    """Rows on GPUs that are known to have run or to have run out of memory."""
    rows = read_published(folder, table)
    on_gpu = pd.to_numeric(rows.n_gpus, errors="coerce") >= 1
    ran = (
        rows[["throughput", "step_time_ms"]].apply(pd.to_numeric, errors="coerce").gt(0).any(axis=1)
    )
    ran |= pd.to_numeric(rows.peak_mem_gb, errors="coerce") > 0
    rows = rows[on_gpu & (ran | (rows.quality == RAN_OUT)) & (rows.quality != "D")]
    if table == "timm":
        rows = rows[rows.model.isin(sorted(rows.model.unique())[::EVERY_NTH_TIMM_MODEL])]
    return rows.assign(ran_out=rows.quality == RAN_OUT, table=table)


CAUSES = """\
* BERT (DeepLearningExamples): the printed batch is that of all microbatches, and is divided by
  nothing here; BART's sources checkpoint, which no input column says.
* MPT-350m with 18 sequences (llm-foundry): its loss overwrites the logits; here they are kept
  three times over.
* CaiT, Mixer and TResNet (timm, one RTX 3090 of 24 GB): in-place activations and scripted
  kernels keep less than their modules do one by one.
* Wan 2.1 at a batch of 32: its pipeline decodes and encodes slice by slice.
* Called `unsure`: mostly Lambda's ResNet-50 and BERT, whose batches were raised until the device
  was full, and FSDP of MPT, of which the same is true. PyTorch before 2.0 keeps the scores of
  BERT's attention, which today's trace says and an earlier one did not: 148 rows more.
* Without an answer though there is a rate: jobs whose batch is not stated, and Tacotron 2, of
  which a cut is traced."""


def capped_lines(path: Path = CAPPED) -> list[str]:
    """How often small models ran under a cap, by the chance that they were told."""
    rows = pd.read_csv(path)
    told = rows.assign(chance_to_fit=rows.chance, quality=rows.ran.map({1: "A", 0: RAN_OUT}))
    return [
        "## Small models under a memory cap",
        "",
        f"{len(rows)} runs of {rows.number.nunique()} models on a CPU",
        "(`benchmarks/fits_capped.py`), each under a cap of its data at which a chance was told",
        "that was drawn before.",
        "",
        *reliability_lines(told),
    ]


def share_no(rows: pd.DataFrame) -> float:
    """Share of `no` among jobs that ran, every table counting the same."""
    return float((rows.fits == "no").groupby(rows.table).mean().mean())


def table_lines(rows: pd.DataFrame) -> list[str]:
    """One line per table and outcome: how often each answer was given."""
    lines = []
    for (table, ran_out), part in rows.groupby(["table", "ran_out"], sort=False):
        counts = [int((part.fits == answer).sum()) for answer in ANSWERS]
        cells = [table, "ran out" if ran_out else "ran", f"{len(part):,}", *map(str, counts)]
        lines.append(f"| {' | '.join([*cells, str(int(part.fits.isna().sum()))])} |")
    return lines


def row_lines(rows: pd.DataFrame) -> list[str]:
    """One line per row, with the three figures in GB."""
    columns = ["memory_low_bytes", "memory_mid_bytes", "memory_high_bytes"]
    lines = []
    for row in rows.itertuples():
        gigabytes = " | ".join(f"{getattr(row, column) / 1e9:.1f}" for column in columns)
        batch = "" if pd.isna(row.batch_per_gpu) else f"{row.batch_per_gpu:g}"
        flags = "" if pd.isna(row.compiler_flags) else row.compiler_flags
        lines.append(
            f"| {row.table} | {row.model} | {row.task} | {flags} | {row.n_gpus:g} × {row.gpu} | "
            f"{batch} | {gigabytes} | {row.fits} |"
        )
    return lines


HEADING = """\
# Does it fit? Published jobs that ran, and that ran out of memory

{today}, `tools/accuracy_fits.py`. `yes`: the bound that holds
at a chance of 95 % is within the device. `no`: even the lower bound is not.
Rows without an answer are those whose model, settings or device `score` refuses.
"""
TABLE_HEADER = (
    "| table | outcome | rows | yes | unsure | no | no answer |\n|---|---|--:|--:|--:|--:|--:|"
)
ROW_HEADER = (
    "| table | model | task | settings | devices | batch | low GB | mid GB | 95 % GB | fits |\n"
    "|---|---|---|---|---|--:|--:|--:|--:|---|"
)


def main() -> None:
    """Print the page."""
    asked = page_parser(__doc__, "../shared/truth/e2e").parse_args()
    need(asked.folder / f"{TABLES[0]}.csv")
    parts = [scored(chosen_rows(asked.folder, table), TOLD, asked.cache) for table in TABLES]
    deliver(page(pd.concat(parts, ignore_index=True)), asked.out)


def page(rows: pd.DataFrame) -> str:
    """The whole page."""
    told = rows[rows.fits.notna()]
    out, ran = told[told.ran_out], told[~told.ran_out]
    missed = ran[ran.fits == "no"]
    return "\n".join(
        [
            HEADING.format(today=datetime.now(tz=UTC).date()),
            *headline(out, ran),
            "",
            TABLE_HEADER,
            *table_lines(rows),
            "",
            "## Every row that ran out",
            "",
            ROW_HEADER,
            *row_lines(out),
            "",
            "## Rows that ran and are called `no`",
            "",
            *([ROW_HEADER, *row_lines(missed[:40])] if len(missed) else ["None."]),
            "",
            "## Causes",
            "",
            CAUSES,
            "",
            *capped_lines(),
        ]
    )


def headline(out: pd.DataFrame, ran: pd.DataFrame) -> list[str]:
    """What is asked of the answers, and what of them holds."""
    wrong_yes = int((out.fits == "yes").sum())
    is_no, is_unsure = ran.fits == "no", ran.fits == "unsure"
    holds = ["no" if wrong else "yes" for wrong in (wrong_yes, is_no.mean() > MOST_WRONG_NO_FRAC)]
    return [
        "| answer | rows | figure | asked | holds |\n|---|--:|--:|--:|---|",
        f"| ran out and called `yes` | {len(out)} | {wrong_yes} | none | {holds[0]} |",
        f"| ran and called `no` | {len(ran):,} | {is_no.mean():.1%} | "
        f"≤ {MOST_WRONG_NO_FRAC:.0%} | {holds[1]} |",
        "",
        f"Called `no` are {is_no.sum()} rows that ran, {share_no(ran):.1%} where every table",
        f"counts the same; `unsure` {is_unsure.mean():.1%}. Of {len(out)} rows that ran",
        "out, none allows 17 % of such rows to be called `yes` (at a chance of 95 %). The K80 and",
        "M60 rows taught what is known of MXNet's buffers.",
    ]


if __name__ == "__main__":
    main()
