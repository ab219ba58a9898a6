"""Models as published jobs ran them, written down for tracing, and traces that are made once.

A model's hyperparameters stand in an environment variable, since its code runs in a process of its
own, which finds the modules of this folder, and builders of `networks`, by their names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paceline.model.graph.graph import Graph
from paceline.model.graph.store import read_workload, save_workload
from paceline.model.reading.load import trace_workload

_HERE = Path(__file__).parent
_FOLDERS = (str(_HERE), str(_HERE.parent / "networks" / "builders"))


def traced(
    cache_folder: Path,
    name: str,
    entry: str,
    *,
    optimizer: str = "adam",
    environment: Mapping[str, str] | None = None,
) -> Graph:
    """A training step, from the cache if it is there.

    Args:
        cache_folder: Where traces are kept.
        name: Of the trace.
        entry: What to trace; modules of this folder can be named.
        optimizer: Recipe.
        environment: Variables in which ``entry`` finds its hyperparameters.
    """
    path = cache_folder / f"{name}.npz"
    if not path.exists():
        cache_folder.mkdir(parents=True, exist_ok=True)
        os.environ.update(environment or {}, PYTHONPATH=os.pathsep.join(_FOLDERS))
        save_workload(trace_workload(entry, optimizer=optimizer), path)
    return read_workload(path).passes[0].graph
