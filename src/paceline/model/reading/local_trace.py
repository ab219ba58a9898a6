"""Trace a model object that this very process holds, through the same worker code."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.errors import InvalidInputError
from paceline.model.names.front_ends import FrontEnd, default_front_end, front_end_of_object
from paceline.model.reading.worker import WORKERS, reported_error, run_description


def report_of_object(model: object, request: Mapping[str, Any]) -> dict[str, Any]:
    """The worker's report on a model, or on an object with a model and its inputs.

    The model is copied to meta tensors; the original is not touched.

    Args:
        model: An ``nn.Module``, or an object with ``model`` and, where they cannot be guessed,
            ``inputs``, ``loss``, ``step``, ``optimizer``.
        request: The task, and settings as a worker's request has them (length, image size).

    Raises:
        InvalidInputError: Not a model, or its inputs cannot be guessed.
        WorkerError: Its code failed.
    """
    front_end = front_end_of_object(model)
    if front_end is not None and front_end is not default_front_end():
        return _report_of_other(model, request, front_end)
    if "torch" not in sys.modules:
        raise InvalidInputError(
            f"a {type(model).__name__} is no model", hint="give a name, a file or an nn.Module"
        )
    name = type(model).__name__
    with _importable(WORKERS):
        worker = importlib.import_module("torch_worker")
        event, report = worker.report_or_event(model, {"entry": name, **request})
    if event is not None:
        raise reported_error(event, name, sys.executable)
    decoded: dict[str, Any] = json.loads(json.dumps(report))
    return decoded


def _report_of_other(
    model: object, request: Mapping[str, Any], front_end: FrontEnd
) -> dict[str, Any]:
    """That of a model of another framework: described here, traced in a worker."""
    request = {"entry": type(model).__name__, **request}
    with _importable(WORKERS), _importable(front_end.folder):
        describer = importlib.import_module(f"{front_end.name}_description")
        description = describer.describe(model, request)
    return run_description(description, request, front_end)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """The workers import each other by plain names, as they do in a process of their own."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
