"""Trace in this process, for tests that trace many models."""

from __future__ import annotations

import importlib
import sys
from functools import cache, lru_cache

import networks

from paceline.model.names.front_ends import FRONT_ENDS
from paceline.model.names.shipped_graphs import is_built_here
from paceline.model.reading.load import workload_from_report
from paceline.model.reading.worker import WORKERS, reported_error


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


def reader(monkeypatch, front_end, folders, **settings):
    """What traces a file by a front end in this process, or raises what its user would see."""
    for folder in folders:
        monkeypatch.syspath_prepend(str(FRONT_ENDS / folder))
    torch_worker = importlib.import_module("torch_worker")
    build = importlib.import_module(f"{front_end}_subject").build_subject

    def read(path, task="infer", **more):
        request = {"entry": str(path), "task": task, **settings, **more}
        try:
            report = torch_worker.serve(request, lambda _: None, build)
        except Exception as error:
            event = torch_worker.error_event(error)
            raise reported_error(event, str(path), sys.executable) from error
        return workload_from_report(report, entry=str(path), task=task, optimizer="adamw")

    return read
