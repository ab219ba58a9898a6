"""T9: Megatron 22B to 1T (arXiv 2205.05198)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from accuracy_parallel.sites import GIB, Run, Simulator, Site, megatron_graph
from accuracy_parallel.tables import Score, markdown

SELENE = Site(device="A100 SXM4 80GB", device_link="dgx-a100", node_link="azure-nd-a100")


def megatron_run(row: Any) -> Run:
    """The run of one row of the paper's table."""
    selective = row.recompute == "seqsel"
    return Run(
        graph=megatron_graph(row, core_only=selective), key=(row.model, selective),
        seq=int(row.seqlen), tp=int(row.tp), dp=int(row.dp), pp=int(row.pp),
        microbatch=float(row.micro_batch), chunks=int(row.interleave), checkpointing="block",
        sequence_parallel=selective, num_gpus=int(row.num_gpus),
        num_microbatches=int(row.global_batch / row.dp / row.micro_batch),
    )  # fmt: skip


def megatron_section(truth: Path, simulator: Simulator) -> Iterator[str | Score]:
    """Figures, and lines of the page."""
    rows = pd.read_csv(truth / "ops" / "megatron_seqpar_validation.csv")
    scored = []
    for row in rows.itertuples():
        found = simulator.run(megatron_run(row), SELENE)
        state = row.weights_optimizer_GiB_per_gpu
        scored.append((f"{row.model} {row.recompute}", row.measured_iter_s, found.steps.step_s[0],
                       row.activations_GiB_per_gpu, state,
                       found.kept_bytes[0] / GIB, found.state_bytes[0] / GIB))  # fmt: skip
    columns = ["case", "measured s", "predicted s", "activations GiB", "states GiB",
               "predicted activations GiB", "predicted states GiB"]  # fmt: skip
    table = pd.DataFrame(scored, columns=columns).set_index("case")
    table["time error"] = table["predicted s"] / table["measured s"] - 1
    table["activation error"] = table["predicted activations GiB"] / table["activations GiB"] - 1
    for name, target in (("time", 0.05), ("activation", 0.02)):
        mean = table[f"{name} error"].abs().mean()
        yield Score(test=f"T9 Megatron 22B to 1T, {name}", value=mean, target=target)
    yield "\n## T9 Megatron 22B to 1T (arXiv 2205.05198)\n"
    yield (
        "No coefficient is fitted on these rows; the size of pipeline messages (scatter and "
        "gather, from the paper) was added after seeing them, which moved the time from 7.6 to "
        "5.1 %. Targets: 5 % time, 2 % activations. Mean absolute error: "
        f"time {table['time error'].abs().mean():.1%}, activations "
        f"{table['activation error'].abs().mean():.1%}.\n"
    )
    yield markdown(table)
