"""Trace in this process, for tests that trace many models."""

from __future__ import annotations

import importlib
import sys
from functools import cache, lru_cache

import networks

from paceline.model.names.shipped_graphs import is_built_here
from paceline.model.reading.load import workload_from_report
from paceline.model.reading.worker import WORKERS


@cache
def worker(name: str):
    """A worker module by its plain name."""
    if str(WORKERS) not in sys.path:
        sys.path.append(str(WORKERS))
    return importlib.import_module(name)


def trace_here(entry, task="train", optimizer="adamw", **settings):
    """The workload of an entry, traced in this process; once for tests that follow one another."""
    # The file of a path may be another one by the next test.
    traced = reported.__wrapped__ if "/" in entry else reported
    report = traced(entry, task=task, **settings)
    return workload_from_report(report, entry=entry, task=task, optimizer=optimizer)


@lru_cache(maxsize=16)
def reported(entry, **settings):
    """What the worker says of an entry, which no optimizer is part of."""
    build = None if is_built_here(entry) else networks.subject
    request = {"entry": entry, **settings}
    return worker("torch_worker").serve(request, lambda _: None, build=build)
