"""Rebuild models of Keras in this process, without Keras."""

from __future__ import annotations

import importlib
import json
import sys
import zipfile
from functools import cache
from pathlib import Path

from paceline.model.names.front_ends import FRONT_ENDS
from paceline.model.reading.load import workload_from_report

DATA = Path(__file__).parent / "data"


@cache
def module(name: str):
    """A module of a front end by its plain name."""
    for folder in ("keras", "caffe", "gguf", "rebuilt", "torch"):
        path = str(FRONT_ENDS / folder)
        if path not in sys.path:
            sys.path.append(path)
    return importlib.import_module(name)


@cache
def cases():
    """What Keras said of small models, by name."""
    return json.loads((DATA / "keras_cases.json").read_text(encoding="utf-8"))["cases"]


def subject_of(settings, **request):
    """The rebuilt model of some settings, with its outputs."""
    building = module("keras_graph").Building(request.get("image_size"))
    outputs = building.outermost(settings)
    compiled = settings.get("compile_config") or {}
    loss, _ = module("keras_compiled").loss_of(compiled)
    optimizer = module("keras_compiled").optimizer_of(compiled)
    made = module("rebuilt_subjects").RebuiltSubject(
        building.program, outputs, loss=loss, optimizer=optimizer
    )
    return made, outputs


def workload_of(subject, task="infer"):
    """The workload of a subject, traced in this process."""
    request = {"entry": "rebuilt", "task": task}
    report = module("torch_worker").serve(request, lambda _: None, build=lambda _: subject)
    return workload_from_report(report, entry="rebuilt", task=task, optimizer="adamw")


def keras_file(path: Path, settings) -> Path:
    """A ``.keras`` file without weights."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.15.1"}')
        archive.writestr("config.json", json.dumps(settings))
    return path


def num_weights(subject):
    """(all, trained) weights of a rebuilt model, running numbers among the first."""
    model = subject.model
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    held = [*model.parameters(), *model.buffers()]
    return sum(t.numel() for t in held), trained
