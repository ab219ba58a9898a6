"""T8: training on new hardware, SimuMax's cases on eight B200."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fit_collectives
import pandas as pd
from memory_sources.simumax import simumax, simumax_reserved

from accuracy_parallel.held_out import calibration_without, links_without
from accuracy_parallel.sites import GIB, Run, Simulator, Site, traced
from accuracy_parallel.tables import markdown

SIMUMAX = Site(
    device="B200", device_link="hgx-b200-nvls", node_link="dgx-b300-ib", overlaps=True,
    compiler="compiled", precision="bf16",
)  # fmt: skip
#: SimuMax runs the 405B with 16 query groups (simu_tools/megatron_scripts/scripts/
#: run_pretrain_llama3.sh), not with the 8 of Meta's model.
LLAMA = {
    "llama3-70b": "hidden=8192,heads=64,kv_heads=8,ffn=28672",
    "llama3-405b": "hidden=16384,heads=128,kv_heads=16,ffn=53248",
}
SIMUMAX_SEQ = 4096
#: Whose op rows and collectives are left out of what predicts these cases.
HELD_OUT = "b200_sxm"


def simumax_run(row) -> Run | str:
    """A case's run, or why there is none."""
    if row.model not in LLAMA:
        return "mixture of experts"
    degrees = {name: int(size) for name, size in re.findall(r"([a-z]+)(\d+)", row.parallel)}
    length = re.search(r"_seq(\d+)_", row.case)
    dp = 8 // math.prod(degrees.values())
    spec = f"layers={row.layer_num},{LLAMA[row.model]},vocab=128256,gated=1,norm=rms,bias=0"
    name = "llama-" + spec.replace("=", "").replace(",", "-")
    return Run(
        graph=lambda: traced(name, f"transformer:{spec}", {}), key=(name,),
        seq=int(length[1]) if length else SIMUMAX_SEQ, dp=dp, microbatch=1.0,
        num_microbatches=int(row.mbc), num_gpus=8, sequence_parallel=degrees["tp"] > 1,
        sharding=1 if dp * degrees.get("cp", 1) > 1 else 0, **degrees,
    )  # fmt: skip


def simumax_section(truth: Path) -> Iterator[str]:
    with links_without(fit_collectives.measured(truth / "ops"), HELD_OUT):
        yield from _section(truth, Simulator(calibration_without(truth, HELD_OUT)))


def _predicted_bytes(truth: Path, make) -> dict[str, float]:
    """Peak of each dense case, as the table of predicted memory has it."""
    cache = Path(tempfile.gettempdir()) / "paceline-memory-traces"
    return {row.case: row.predicted_bytes for row in make(truth, cache).rows}


def _section(truth: Path, simulator: Simulator) -> Iterator[str]:
    rows = pd.read_csv(truth / "ops" / "simumax_b200_training.csv")
    allocated, reserved = (_predicted_bytes(truth, make) for make in (simumax, simumax_reserved))
    scored, abstained = [], {}
    for row in rows.itertuples():
        run = simumax_run(row)
        if isinstance(run, str):
            abstained.setdefault(run, []).append(row.case)
            continue
        found = simulator.run(run, SIMUMAX)
        scored.append((row.case, row.measured_iter_ms / 1e3, found.step_s[0],
                       row.measured_peak_alloc_gib, allocated[row.case] / GIB,
                       row.measured_peak_reserved_gib, reserved[row.case] / GIB))  # fmt: skip
    table = pd.DataFrame(scored, columns=["case", "measured s", "predicted s", "measured GiB",
                                          "predicted GiB", "measured reserved GiB",
                                          "predicted reserved GiB"]).set_index("case")  # fmt: skip
    table["time error"] = table["predicted s"] / table["measured s"] - 1
    table["memory error"] = table["predicted GiB"] / table["measured GiB"] - 1
    table["reserved error"] = table["predicted reserved GiB"] / table["measured reserved GiB"] - 1
    yield "\n## T8 New hardware (SimuMax's cases on 8 × B200)\n"
    yield (
        "No B200 measurement is used: networks of matrix units and link coefficients are fitted "
        "for this section without the B200's rows (its siblings GB200, B300 and GB300 stay), and "
        "the clock under the power limit on four H100 rows. "
        f"Sequence {SIMUMAX_SEQ}, distributed optimizer, sequence parallel. Memory is that of "
        "`make accuracy-memory`, whose graph keeps what Transformer Engine keeps; seven cases with "
        "context parallelism stand there too. "
        "Targets: 10 % time, 2 % allocated and reserved memory. Mean absolute "
        f"error: time {table['time error'].abs().mean():.1%}, allocated memory "
        f"{table['memory error'].abs().mean():.1%}, reserved "
        f"{table['reserved error'].abs().mean():.1%} over {len(table)} cases.\n"
    )
    yield markdown(table)
    for reason, cases in abstained.items():
        yield f"\nAbstained ({reason}): {', '.join(cases)}\n"
