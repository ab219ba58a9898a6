"""Real PyTorch jobs on CPU processes, each run once per test session."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import paceline.model
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph
from paceline.model.reading.load import load_workload

WORKER = Path(__file__).parent / "gloo_worker.py"
MODELS = (
    Path(paceline.model.__file__).parents[1] / "frontends" / "torch" / "torch_networks" / "zoo.py"
)

#: The model and batch of the worker.
ENTRY = "transformer:layers=4,hidden=128,heads=4,vocab=512,positions=64,ffn=512"
BATCH, SEQ, FP32_BYTES = 4, 32, 4.0
#: Length of the sequences that ranks share.
CONTEXT_SEQ = 512
FP32 = Configuration(precision="fp32", platform="cpu", optimizer_kernel="plain")


@cache
def graph() -> Graph:
    """One training step of the worker's model."""
    return load_workload(ENTRY, optimizer="adam").passes[0].graph


@cache
def context_graph() -> Graph:
    """One training step of the worker's model for long sequences."""
    entry = ENTRY.replace("positions=64", f"positions={CONTEXT_SEQ}")
    return load_workload(entry, optimizer="adam").passes[0].graph


@cache
def expert_graph() -> Graph:
    """One training step of the model with experts."""
    with contextlib.chdir(WORKER.parent):
        return load_workload("expert_model:make_job", optimizer="adam").passes[0].graph


@cache
def run_ranks(mode: str, world: int) -> tuple[dict, ...]:
    """What every rank of a job printed: loss, expected loss, calls, and bytes that it keeps."""
    command = [sys.executable, str(WORKER), mode]
    with tempfile.TemporaryDirectory() as met:
        how = [str(world), f"file://{met}/met", str(MODELS)]
        ranks = [
            subprocess.Popen([*command, str(rank), *how], stdout=subprocess.PIPE)
            for rank in range(world)
        ]
        try:
            return tuple(json.loads(rank.communicate(timeout=300)[0]) for rank in ranks)
        finally:
            for rank in ranks:
                rank.kill()
