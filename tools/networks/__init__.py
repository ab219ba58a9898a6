"""Networks that ship as graphs: built here, traced, and written.

A builder is a class or function of `networks.builders` without arguments; it makes a model with
``inputs``, or a job that has one, as users write them. Its shape is one, or pictures of sides that
its layers divide: ``side`` is the usual one, ``multiple`` and ``rest`` say that a side is so much
above a multiple, ``least`` is the smallest. What takes any side, or is a library's, is built beside
the trace worker instead.
"""

import importlib
import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from paceline.model.graph.sides import Sides
from paceline.model.graph.store import read_workload, save_sides, save_workload
from paceline.model.graph.workload import Task, Workload
from paceline.model.names.zoo_facts import zoo_facts
from paceline.model.reading.load import workload_from_report

MODEL = Path(__file__).parents[2] / "src" / "paceline" / "model"
READER = MODEL.parent / "frontends" / "torch"
_OPTIMIZER = "adamw"
#: Module of `networks.builders` of each beginning of an entry; "" has the zoo.
_SCHEMES = {
    "": "zoo", "published": "models", "published_diffusion": "diffusion",
    "published_folding": "folding", "published_frames": "frames", "published_images": "images",
    "published_litgpt": "litgpt", "published_parts": "parts", "published_recurrent": "recurrent",
    "published_sequences": "sequences", "published_speech": "speech",
    "published_tables": "tables", "published_volumes": "volumes", "published_graphs": "messages",
    "published_series": "series", "published_fields": "fields", "published_gans": "adversarial",
    "published_classes": "classes", "published_detectors": "darknet", "published_points": "points",
    "published_cifar": "cifar", "published_segments": "segments", "published_clips": "clips",
    "published_upscalers": "upscalers",
}  # fmt: skip


def worker(name: str) -> Any:
    """A module of the trace worker by its plain name."""
    if str(READER) not in sys.path:
        sys.path.append(str(READER))
    return importlib.import_module(name)


def all_builders() -> dict[str, Callable[[], Any]]:
    """Builders by entry: ``published_speech:jasper``, ``dcgan``. Needs torch."""
    worker("torch_networks.zoo")
    found: dict[str, Callable[[], Any]] = {}
    for scheme, home in _SCHEMES.items():
        models = importlib.import_module(f"networks.builders.{home}").MODELS
        found |= {f"{scheme}:{name}" if scheme else name: make for name, make in models.items()}
    return found


def asked_entries() -> tuple[str, ...]:
    """Entries of models of libraries whose graphs ship."""
    lines = Path(__file__).with_name("asked.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def sides_of(entry: str) -> Sides | None:
    """The sides that a network can be asked at; None where it has one shape."""
    job = _job(entry)
    usual = getattr(job, "side", None)
    if usual is None or getattr(job, "has_one_size", False):
        return None
    step, rest = getattr(job, "multiple", 1), getattr(job, "rest", 0)
    least = getattr(job, "least", step + rest)
    return Sides(usual=usual, first=max(least, usual - 2 * step), step=step, least=least)


def traced(entry: str, task: Task, side: int | None = None) -> Workload:
    """The workload of a network, traced in this process at its usual side or another."""
    facts = zoo_facts().get(entry)
    request = {"entry": entry, "task": task, "image_size": side}
    report = worker("torch_worker").serve(request, lambda _: None, build=subject)
    return workload_from_report(
        json.loads(json.dumps(report)),
        entry=entry,
        task=task,
        optimizer=facts.optimizer if facts else _usual_optimizer(entry),
    )


def _usual_optimizer(entry: str) -> str:
    """What the published runs of a network use, where its builder says so."""
    return str(getattr(_job(entry), "usual_optimizer", _OPTIMIZER))


def write(entry: str, task: Task) -> Path:
    """Trace a network, at as many sides as it takes to know all, and write its file.

    Raises:
        ValueError: Its layers round the side, which no polynomial says.
    """
    path, sides = path_of(entry, task), sides_of(entry)
    path.parent.mkdir(exist_ok=True)
    if sides is None:
        save_workload(traced(entry, task), path)
    else:
        save_sides([traced(entry, task, side) for side in sides.traced()], sides, path)
        far = sides.traced()[-1] + 7 * sides.step
        told, found = read_workload(path, side=far), traced(entry, task, far)
        if not same(told, found):
            path.unlink()
            raise ValueError(f"{entry} is no polynomial of the side: at {far} it is another")
    return path


def same(left: Workload, right: Workload) -> bool:
    """Whether two workloads have the same ops, tensors and storages in every pass."""
    pairs = [(a.graph, b.graph) for a, b in zip(left.passes, right.passes, strict=True)]
    tables = ("ops", "tensors", "storages")
    return all(_same(getattr(a, t), getattr(b, t)) for a, b in pairs for t in tables)


def _same(left: Any, right: Any) -> bool:
    pairs = [(getattr(left, f.name), getattr(right, f.name)) for f in fields(left)]
    return all(a.shape == b.shape and np.allclose(a, b, rtol=1e-12, atol=0.0) for a, b in pairs)


def path_of(entry: str, task: Task) -> Path:
    """Where the graph of an entry is shipped."""
    return MODEL / "zoo" / f"{entry.replace(':', '/')}-{task}.npz"


def subject(request: dict[str, Any]) -> Any:
    """What the worker traces of an entry: its job, in the words of its own class."""
    job = _job(request["entry"])
    made = worker("torch_entries.subjects").job_subject(job, request)
    made.described = worker("torch_entries.subjects").item_of(job)
    made.taken = getattr(made.model, "taken", made.taken)
    return made


def _job(entry: str) -> Any:
    return worker("torch_entries.building").build(all_builders()[entry])
