"""Fit the energy of an operation on matrix units: what power leaves of the burst rate in training.

    PYTHONPATH=tools python -m fit.sustained ../shared/truth

Prints the constant of `sustained_clock.csv` and the rows it was fitted on: training of
MPT on one node of eight H100 (llm-foundry). No other device is used: A100 and B200 are predicted.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from accuracy_parallel import sites
from accuracy_parallel.sites import CACHE, Run, Simulator, Site
from traced_models import traced

MODELS = {
    "MPT-760m": "layers=24,hidden=1536,heads=12", "MPT-1b": "layers=24,hidden=2048,heads=16",
    "MPT-3b": "layers=32,hidden=2560,heads=20", "MPT-7b": "layers=32,hidden=4096,heads=32",
    "MPT-13b": "layers=40,hidden=5120,heads=40",
}  # fmt: skip
LINKS = {"H100-SXM5-80GB": ("H100 SXM5 80GB", "dgx-h100-nvls", "dgx-h100-ib"),
         "A100-SXM4-80GB": ("A100 SXM4 80GB", "dgx-a100", "azure-nd-a100")}  # fmt: skip
FITTED_GPU = "H100-SXM5-80GB"
CANDIDATES_J = np.arange(0.6e-12, 2.0e-12, 0.01e-12)


def rows_of(truth: Path) -> pd.DataFrame:
    """BF16 training on one node, without a change of length, of models that stand in `MODELS`."""
    rows = pd.read_csv(truth / "e2e" / "llm_foundry.csv")
    chosen = (rows.n_gpus == 8) & (rows.precision == "amp_bf16") & (rows.seq_len == 2048)
    return rows[chosen & rows.model.isin(list(MODELS)) & rows.gpu.isin(list(LINKS))]


def predicted_s(simulator: Simulator, row: Any) -> float:
    """One step of FSDP on eight devices."""
    device, device_link, node_link = LINKS[row.gpu]
    site = Site(device=device, device_link=device_link, node_link=node_link, overlaps=True,
                precision="bf16", attention="memory-efficient")  # fmt: skip
    spec = f"{MODELS[row.model]},vocab=50368,gated=0,norm=layer,bias=0"
    extra = dict(part.split("=") for part in row.extra.split(";"))
    recomputes = float(extra["hfu"]) > 1.1 * float(extra["mfu"])
    run = Run(
        graph=lambda: traced(CACHE, row.model.lower(), f"transformer:{spec}"), key=(row.model,),
        seq=2048, tp=1, dp=8, pp=1, microbatch=float(row.batch_per_gpu), num_gpus=8, sharding=3,
        num_microbatches=int(row.grad_accum), checkpointing="block" if recomputes else "none",
    )  # fmt: skip
    simulator.blocks.clear()
    return float(simulator.run(run, site).steps.step_s[0])


def ratios_at(j_per_flop: float, rows: pd.DataFrame, simulator: Simulator) -> np.ndarray:
    """Predicted over measured step of each row, were an operation to take so many joules."""
    constants = dict(simulator.calibration.constants)
    constants["sustained_clock"] = {**constants["sustained_clock"], "j_per_flop": j_per_flop}
    simulator.calibration = dataclasses.replace(simulator.calibration, constants=constants)
    predicted = [predicted_s(simulator, row) for row in rows.itertuples()]
    return np.asarray(predicted / (rows.global_batch * rows.seq_len / rows.throughput))


def main() -> None:
    """Print the energy that fits best, and every row without it and with it."""
    rows = rows_of(Path(sys.argv[1]))
    sites.MICROBATCHES = np.union1d(sites.MICROBATCHES, rows.batch_per_gpu.astype(float))
    simulator, fitted = Simulator(), rows[rows.gpu == FITTED_GPU]
    level = {j: float(np.median(ratios_at(float(j), fitted, simulator))) for j in CANDIDATES_J}
    best = min(level, key=lambda energy: abs(np.log(level[energy])))
    print(f"j_per_flop {best:.3g}")
    for energy in (0.0, best):
        for row, ratio in zip(rows.itertuples(), ratios_at(energy, rows, simulator), strict=True):
            print(f"{energy:.3g} {row.model} {row.gpu} batch {row.batch_per_gpu}: {ratio:.3f}")


if __name__ == "__main__":
    main()
