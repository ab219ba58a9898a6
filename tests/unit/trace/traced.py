"""Trace in this process, for tests that trace many models."""

from __future__ import annotations

import importlib
import sys
from functools import cache

from paceline.trace.in_process import _WORKERS
from paceline.trace.load import workload_from_report


@cache
def worker(name: str):
    """A worker module by its plain name."""
    if _WORKERS not in sys.path:
        sys.path.append(_WORKERS)
    return importlib.import_module(name)


def trace_here(entry, task="train", optimizer="adamw", **settings):
    """The workload of an entry, traced in this process."""
    request = {"entry": entry, "task": task, **settings}
    report = worker("torch_worker").serve(request, lambda _: None)
    return workload_from_report(report, entry=entry, task=task, optimizer=optimizer)
